package routing_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// nobody is told anything here.
type nobody struct{}

func (nobody) Connected() map[string]*nodeapi.Register { return nil }

func (nobody) Send(string, *nodeapi.ControlMessage) error { return errors.New("away") }

// site is the testbed with a real survey: nodes and gateways report each second, and gateways
// send requests by the weights that they were given.
type site struct {
	*survey.Survey
	planner *routing.Planner
	state   platform.State
	matrix  *routing.Matrix
	// silent nodes say nothing, and liars something else.
	silent map[string]bool
	liars  map[string]func()
	// said is what daemons are about to say, with what their gateways tell them.
	said map[string]*nodeapi.Signals
}

// Signals has the one daemon of a node say it with the next word on its gateway's requests.
func (s *site) Signals(node, process string, m *nodeapi.Signals) {
	if process != "" {
		s.Survey.Signals(node, process, m)
		return
	}
	s.said[node] = m
}

const service = 0.004

var workers = map[string]float64{"edge": 2, "cloud-1": 7, "cloud-2": 7}

func newSite() *site {
	s := &site{
		Survey: survey.New(nobody{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler)),
		silent: map[string]bool{}, liars: map[string]func(){}, said: map[string]*nodeapi.Signals{},
	}
	s.planner = routing.New(s, prometheus.NewRegistry())
	s.state = platform.State{Functions: []platform.Function{{Name: fire}}}
	for i, node := range gateways {
		address := netip.MustParseAddrPort(fmt.Sprintf("10.0.%d.1:8080", i))
		s.state.Instances = append(s.state.Instances, platform.Instance{ID: node, Function: fire, Node: node, Phase: platform.Ready, Address: address})
		s.Came(node, "")
	}
	s.SetState(s.state)
	return s
}

// pass has everybody report and the planner look, each second.
func (s *site) pass(seconds int) {
	for n := range seconds {
		time.Sleep(time.Second)
		s.matrix = s.planner.Plan(s.state, gateways, time.Now())[fire]
		for _, node := range gateways {
			switch lie := s.liars[node]; {
			case lie != nil:
				lie()
			case !s.silent[node]:
				s.tell(node, n)
			}
			if !s.silent[node] {
				s.send(node)
			}
		}
	}
}

// tell is an honest daemon's word.
func (s *site) tell(node string, n int) {
	said := map[string]float64{"in_flight": 0, "sojourn_time": service, "service_time": service, "capacity": workers[node]}
	s.Signals(node, "", &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: fire, RpsFractional: 1, NamedMetrics: said}}})
	s.far(node, n)
}

// far is what a daemon says of the ways to other nodes, each five seconds.
func (s *site) far(node string, n int) {
	if n%5 > 0 {
		return
	}
	m := &nodeapi.RoundTrips{}
	for _, to := range gateways {
		if to != node {
			m.Measured = append(m.Measured, &nodeapi.RoundTrip{Node: to, RttUs: distance(node, to).Microseconds(), Age: durationpb.New(0)})
		}
	}
	s.RoundTrips(node, m)
}

func distance(a, b string) time.Duration {
	switch {
	case a == b:
		return 0
	case a == "edge" || b == "edge":
		return 50 * ms
	}
	return ms
}

// send has a gateway report 200 requests per second that went by its weights. How long they took it does
// not say: of that daemons tell.
func (s *site) send(gateway string) {
	load := &nodeapi.RoutedSignals{Function: fire}
	for k, a := range s.matrix.Endpoints {
		rps := 200 * float64(s.matrix.Rows[gateway].Weights[k]) / total
		away := distance(gateway, s.state.Instances[k].Node).Seconds()
		load.Endpoints = append(load.Endpoints, &nodeapi.EndpointSignals{Address: a.String(), RpsFractional: rps,
			NamedMetrics: map[string]float64{"in_flight": rps * (away + service)}})
	}
	s.relay(gateway, load)
}

// relay has the gateway's daemon say all that there is to say, unless it lies.
func (s *site) relay(gateway string, load *nodeapi.RoutedSignals) {
	m := &nodeapi.Signals{Functions: s.said[gateway].GetFunctions(), Routed: s.said[gateway].GetRouted()}
	delete(s.said, gateway)
	if m.Routed == nil {
		m.Routed = []*nodeapi.RoutedSignals{load}
	}
	s.Survey.Signals(gateway, "", m)
}

// share is which part of a gateway's requests goes to a node.
func (s *site) share(gateway, node string) float64 {
	for k, in := range s.state.Instances {
		if in.Node == node {
			return float64(s.matrix.Rows[gateway].Weights[k]) / total
		}
	}
	return 0
}

// Whatever a node of the cloud says, the edge keeps its requests, and what its neighbour sends
// goes to one of the two.
func TestHostileReportsDoNoHarm(t *testing.T) {
	signal := func(node string, rps, inFlight, sojourn, service, capacity float64) *nodeapi.Signals {
		return &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: fire, RpsFractional: rps, NamedMetrics: map[string]float64{
			"in_flight": inFlight, "sojourn_time": sojourn, "service_time": service, "capacity": capacity}}}}
	}
	far := func(rtt int64, age time.Duration) *nodeapi.RoundTrips {
		m := &nodeapi.RoundTrips{Coordinate: &nodeapi.Coordinate{Vector: []float64{math.NaN(), 1, 1, 1, 1, 1, 1, 1}}}
		for _, to := range gateways {
			m.Measured = append(m.Measured, &nodeapi.RoundTrip{Node: to, RttUs: rtt, Age: durationpb.New(age)})
		}
		return m
	}
	const liar = "cloud-2"
	for name, lie := range map[string]func(s *site){
		"negative":     func(s *site) { s.Signals(liar, "", signal(liar, -5, -1, -1, -1, -7)) },
		"not a number": func(s *site) { s.Signals(liar, "", signal(liar, math.NaN(), 0, math.NaN(), math.NaN(), math.NaN())) },
		"infinite":     func(s *site) { s.Signals(liar, "", signal(liar, math.Inf(1), 0, 0, 0, math.Inf(1))) },
		"absurd":       func(s *site) { s.Signals(liar, "", signal(liar, 1e30, 1e30, 1e30, 1e30, 1e30)) },
		"nothing":      func(s *site) { s.Signals(liar, "", nil) },
		"endless room": func(s *site) { s.Signals(liar, "", signal(liar, 1, 0, 1e-6, 1e-6, 1e6)) },
		"next door":    func(s *site) { s.RoundTrips(liar, far(1, 0)) },
		"behind us":    func(s *site) { s.RoundTrips(liar, far(-1000, 0)) },
		"on the moon":  func(s *site) { s.RoundTrips(liar, far(math.MaxInt64, 0)) },
		"of tomorrow":  func(s *site) { s.RoundTrips(liar, far(1, -24*time.Hour)) },
		"of yesterday": func(s *site) { s.RoundTrips(liar, far(1, 24*time.Hour)) },
		"of other functions": func(s *site) {
			s.Signals(liar, "", &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: "x/y", RpsFractional: 1}}})
		},
		"as another daemon": func(s *site) {
			s.Came(liar, "second")
			s.Signals(liar, "second", signal(liar, 1, 0, 1e-6, 1e-6, 1e6))
			s.RoundTrips(liar, far(1, 0))
			s.Came(liar, "")
			s.Signals(liar, "", signal(liar, 1, 0, service, service, 7))
		},
		"endless demand": func(s *site) {
			s.tell(liar, 1)
			s.said[liar].Routed = []*nodeapi.RoutedSignals{{Function: fire, Endpoints: []*nodeapi.EndpointSignals{
				{Address: "10.0.2.1:8080", RpsFractional: 9e5, NamedMetrics: map[string]float64{"in_flight": 10}}}}}
		},
		"loads of nobody's": func(s *site) {
			s.tell(liar, 1)
			s.said[liar].Routed = []*nodeapi.RoutedSignals{{Function: fire, Endpoints: []*nodeapi.EndpointSignals{
				{Address: "10.0.0.1:8080", RpsFractional: math.NaN(), NamedMetrics: map[string]float64{"in_flight": math.Inf(1)}}, {Address: "x", RpsFractional: 1}}}, {Function: "x/y"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite()
				s.pass(60)
				if s.share("edge", "edge") != 1 || s.share("cloud-1", "edge") != 0 {
					t.Fatalf("before: %v", s.matrix.Rows)
				}
				s.liars[liar] = func() { lie(s) }
				s.pass(120)
				if got := s.share("edge", "edge"); got != 1 {
					t.Errorf("the edge keeps %v of its requests", got)
				}
				if got := s.share("cloud-1", "edge"); got != 0 {
					t.Errorf("the honest node of the cloud sends %v to the edge", got)
				}
				for gateway, row := range s.matrix.Rows {
					var sum uint32
					for _, w := range row.Weights {
						sum += w
					}
					if sum != total {
						t.Errorf("%s has %v", gateway, row.Weights)
					}
				}
			})
		})
	}
}

// A control plane that hears of nobody any more leaves the weights as they are: then it is the
// one that is cut off.
func TestSilenceOfAllChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.pass(60)
		before := s.matrix
		for range 120 {
			time.Sleep(time.Second)
			s.matrix = s.planner.Plan(s.state, nil, time.Now())[fire]
		}
		for gateway, row := range before.Rows {
			for k, w := range row.Weights {
				if got := s.matrix.Rows[gateway].Weights[k]; got != w {
					t.Errorf("%s had %v and has %v", gateway, row.Weights, s.matrix.Rows[gateway].Weights)
				}
			}
		}
	})
}

// Steady load is no reason for anything, in ten minutes of reports.
func TestSteadyReportsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		s.pass(90)
		before := s.matrix
		s.pass(600)
		for gateway, row := range before.Rows {
			for k, w := range row.Weights {
				if got := s.matrix.Rows[gateway].Weights[k]; got != w {
					t.Errorf("%s had %v and has %v", gateway, row.Weights, s.matrix.Rows[gateway].Weights)
				}
			}
		}
	})
}
