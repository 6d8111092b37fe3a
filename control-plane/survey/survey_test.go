package survey_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fire = "default/fire"

func near(got, want float64) bool { return math.Abs(got-want) < 0.01*want }

// daemons are connected, and remember whom they were told to probe.
type daemons struct {
	mu    sync.Mutex
	of    map[string]*nodeapi.Register
	heard map[string][]string
	sites map[string][]*nodeapi.Site
}

func (d *daemons) Connected() map[string]*nodeapi.Register {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[string]*nodeapi.Register{}
	for name, r := range d.of {
		all[name] = r
	}
	return all
}

func (d *daemons) Send(node string, m *nodeapi.ControlMessage) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of[node] == nil {
		return errors.New("away")
	}
	if site := m.GetSite(); site != nil {
		d.sites[node] = append(d.sites[node], site)
		return nil
	}
	var peers []string
	for _, n := range m.GetNeighbours().GetNeighbours() {
		peers = append(peers, n.GetNode()+"@"+n.GetPeerAddress())
	}
	d.heard[node] = append(d.heard[node], strings.Join(peers, " "))
	return nil
}

func (d *daemons) told(node string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.heard[node], "; ")
}

type rig struct {
	*survey.Survey
	*daemons
	registry *prometheus.Registry
}

func newRig() *rig {
	r := &rig{daemons: &daemons{of: map[string]*nodeapi.Register{}, heard: map[string][]string{}, sites: map[string][]*nodeapi.Site{}}, registry: prometheus.NewRegistry()}
	r.Survey = survey.New(r.daemons, r.registry, slog.New(slog.DiscardHandler))
	return r
}

func (r *rig) connect(node string, probes bool) {
	r.mu.Lock()
	r.of[node] = &nodeapi.Register{PeerAddress: "10.0.0." + node + ":7444", Probes: probes}
	r.mu.Unlock()
	r.Came(node, "")
}

func (r *rig) disconnect(node string) {
	r.mu.Lock()
	delete(r.of, node)
	r.mu.Unlock()
	r.Went(node, "")
}

func (r *rig) run(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

func at(seconds float64) *nodeapi.Coordinate {
	return &nodeapi.Coordinate{Vector: []float64{seconds, 0, 0, 0, 0, 0, 0, 0}, Error: 0.05}
}

// Nodes are told whom to probe when others come and go, and not again while nothing changes.
// Daemons that cannot probe are left out.
func TestNodesAreToldWhomToProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.run(t)
		r.connect("1", true)
		r.connect("2", true)
		r.connect("3", false)
		time.Sleep(5 * time.Minute)
		if got := r.told("1"); got != "2@10.0.0.2:7444" {
			t.Errorf("told %q", got)
		}
		r.connect("4", true)
		time.Sleep(2 * time.Second)
		if got := r.told("2"); got != "1@10.0.0.1:7444; 1@10.0.0.1:7444 4@10.0.0.4:7444" {
			t.Errorf("told %q", got)
		}
		r.disconnect("4")
		r.connect("2", true) // a daemon that was replaced has heard nothing
		time.Sleep(2 * time.Second)
		if got := r.told("2"); !strings.HasSuffix(got, "4@10.0.0.4:7444; 1@10.0.0.1:7444") || r.told("3") != "" {
			t.Errorf("told %q, and %q", got, r.told("3"))
		}
	})
}

// A node probes those that it has requests for, however many are nearer.
func TestNodesProbeWhereTheirRequestsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.run(t)
		for i := range 200 {
			name := fmt.Sprint(i)
			r.connect(name, true)
			r.RoundTrips(name, &nodeapi.RoundTrips{Coordinate: at(float64(i) / 1000)})
		}
		r.SetState(platform.State{Functions: []platform.Function{{Name: fire}}, Instances: []platform.Instance{{Function: fire, Node: "177"}}})
		r.Sends("0", fire)
		r.Sends("0", "default/none")
		time.Sleep(2 * time.Second)
		if got := r.told("0"); !strings.Contains(got, "177@") {
			t.Errorf("told %q", got)
		}
	})
}

func TestWhatIsSaidIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.connect("1", true)
		r.connect("2", true)
		r.SetState(platform.State{
			Functions: []platform.Function{{Name: fire}},
			Instances: []platform.Instance{{
				Function: fire, Node: "2", Address: netip.MustParseAddrPort("10.1.0.2:8080"),
			}},
		})
		r.RoundTrips("1", &nodeapi.RoundTrips{Coordinate: at(0), Measured: []*nodeapi.RoundTrip{{Node: "2", RttUs: 20_000, Age: durationpb.New(time.Second)}}})
		if e := r.RTT("1", "2", time.Now()); e.RTT != 20*time.Millisecond || e.Source != topology.Own || e.Age != time.Second {
			t.Errorf("%+v", e)
		}
		for range 60 {
			time.Sleep(time.Second)
			r.Signals("2", "", &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: fire, RpsFractional: 5, NamedMetrics: map[string]float64{"in_flight": 1, "sojourn_time": 0.2}}}})
			r.Signals("1", "", &nodeapi.Signals{Routed: []*nodeapi.RoutedSignals{{Function: fire,
				Endpoints: []*nodeapi.EndpointSignals{
					{
						Address: "10.1.0.2:8080", RpsFractional: 100, Eps: 1,
						NamedMetrics: map[string]float64{"in_flight": 12},
					},
					{Address: "10.9.9.9:1", NamedMetrics: map[string]float64{"in_flight": 1000}}}}}})
		}
		e := r.Of(fire, "2", time.Now())
		demand, known := r.Demand("1", time.Now())
		// Of the gateway's twelve two are on their way: 100 per second for 20 ms.
		if !near(e.RPS, 105) || !near(e.EPS, 1) || !near(e.InFlight, 11) || !near(e.SojournTime.Seconds(), 0.1) || !near(e.ServiceTime.Seconds(), 0.1) || !near(demand[fire], 100) || !known || e.Trust != 1 {
			t.Errorf("%+v", e)
		}
		want := `
# HELP headstart_signal_trust_ratio Which part of the estimates is the node's own.
# TYPE headstart_signal_trust_ratio gauge
headstart_signal_trust_ratio{function="default/fire",node="2"} 1
`
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "headstart_signal_trust_ratio"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(r.registry); n != 6 || err != nil {
			t.Errorf("%d series, %v", n, err)
		}
	})
}

// In a mesh the daemon tells what its node's gateways sent where: to pods, and to those of
// another autoscaler.
func TestDaemonsTellWhatGatewaysSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.run(t)
		r.connect("1", true)
		r.connect("2", true)
		r.SetState(platform.State{Functions: []platform.Function{{Name: fire}}, Instances: []platform.Instance{{
			Function: fire, Node: "2", Address: netip.MustParseAddrPort("10.1.0.2:8080"),
		}},
			Endpoints: []platform.Endpoint{{Function: fire, Node: "2", Address: netip.MustParseAddrPort("10.1.0.3:8080")}, {Function: fire, Node: "1", Address: netip.MustParseAddrPort("10.9.0.1:8012"), Relay: true}, {Function: fire, Address: netip.MustParseAddrPort("10.9.0.2:8080")}}})
		r.RoundTrips("1", &nodeapi.RoundTrips{Coordinate: at(0), Measured: []*nodeapi.RoundTrip{{Node: "2", RttUs: 20_000, Age: durationpb.New(time.Second)}}})
		endpoint := func(address string, rps, eps, inFlight, sojourn float64) *nodeapi.EndpointSignals {
			return &nodeapi.EndpointSignals{Address: address, RpsFractional: rps, Eps: eps, NamedMetrics: map[string]float64{"in_flight": inFlight, "sojourn_time": sojourn}}
		}
		for range 60 {
			time.Sleep(time.Second)
			r.Signals("1", "", &nodeapi.Signals{Routed: []*nodeapi.RoutedSignals{
				{Function: fire, Endpoints: []*nodeapi.EndpointSignals{endpoint("10.1.0.2:8080", 90, 1, 9, 0.1), endpoint("10.9.0.1:8012", 50, 0, 1000, 100), endpoint("made up", 1, 1, 1, 1)}},
				{Function: "default/none", Endpoints: []*nodeapi.EndpointSignals{endpoint("10.1.0.2:8080", 1, 1, 1, 1)}}, nil,
				{Function: fire, Endpoints: []*nodeapi.EndpointSignals{endpoint("10.1.0.3:8080", 10, 0, 2, 0.2), endpoint("10.1.0.3:8080", 0, 0, 0, 0), nil}},
			}})
			r.Signals("2", "", &nodeapi.Signals{})
		}
		// A round trip of 20 ms at 100 requests a second are two in flight that are on their way.
		if e := r.Of(fire, "2", time.Now()); !near(e.RPS, 100) || !near(e.EPS, 1) || !near(e.InFlight, 9) || !near(e.SojournTime.Seconds(), 0.09) || e.Trust != 1 {
			t.Errorf("%+v", e)
		}
		if got, known := r.Demand("1", time.Now()); !near(got[fire], 100) || !known {
			t.Errorf("demand %v", got)
		}
		if got, known := r.Demand("2", time.Now()); known {
			t.Errorf("demand %v by a node that has no gateways", got)
		}
		time.Sleep(time.Second)
		r.Signals("1", "", &nodeapi.Signals{Routed: []*nodeapi.RoutedSignals{{Function: fire, Endpoints: []*nodeapi.EndpointSignals{endpoint("10.1.0.2:8080", math.NaN(), 0, 0, 0)}}}})
		want := `
# HELP headstart_measurements_refused_total What nodes and gateways measured and does not count, by the reason.
# TYPE headstart_measurements_refused_total counter
headstart_measurements_refused_total{node="1",reason="NotANumber"} 1
`
		if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "headstart_measurements_refused_total"); err != nil {
			t.Error(err)
		}
	})
}

// What does not count is counted.
func TestRefusedMeasurementsAreCounted(t *testing.T) {
	r := newRig()
	r.connect("1", true)
	r.connect("2", true)
	bad := at(0)
	bad.Vector[0] = math.NaN()
	r.RoundTrips("1", &nodeapi.RoundTrips{Coordinate: bad, Measured: []*nodeapi.RoundTrip{{Node: "2", RttUs: math.MaxInt64}, {Node: "2", RttUs: math.MinInt64}, {Node: "2", RttUs: 1, Age: &durationpb.Duration{Seconds: math.MaxInt64}}, {Node: "x", RttUs: 1}, nil}})
	r.RoundTrips("2", nil)
	r.Signals("1", "", &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: "default/none"}}})
	problems := []routing.Problem{{
		Gateways: []string{"1"}, Message: "what its node measures does not count: CoordinateInvalid",
	}}
	if d := cmp.Diff(problems, r.Problems(time.Now())); d != "" {
		t.Error(d)
	}
	if got := r.Problems(time.Now().Add(2 * time.Minute)); len(got) > 0 {
		t.Errorf("two minutes later %v", got)
	}
	want := `
# HELP headstart_measurements_refused_total What nodes and gateways measured and does not count, by the reason.
# TYPE headstart_measurements_refused_total counter
headstart_measurements_refused_total{node="1",reason="CoordinateInvalid"} 1
headstart_measurements_refused_total{node="1",reason="FunctionUnknown"} 1
headstart_measurements_refused_total{node="1",reason="PeerUnknown"} 2
headstart_measurements_refused_total{node="1",reason="RTTInvalid"} 2
headstart_measurements_refused_total{node="1",reason="RTTStale"} 1
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
