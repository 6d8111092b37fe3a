package routing_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// way is how it is known what nodes do.
type way struct {
	// told: programs say how they are.
	told bool
	// withFailures: gateways' daemons tell how long requests took, those that failed, too, as older
	// ones have it.
	withFailures bool
}

var ways = map[string]way{"programs' word": {told: true}, "access logs": {}, "older access logs": {withFailures: true}}

// loop is a site that weights have an effect on: how long requests stay on a node, and so what
// gateways tell, is by how many it gets.
type loop struct {
	*site
	way
	demand map[string]float64 // requests per second, by gateway
	// really is how many workers a node has, fails the part of its requests that it fails at once.
	really, fails map[string]float64
	gets          map[string]float64 // requests per second, by node
	seconds       int
}

func newLoop(by way) *loop {
	return &loop{site: newSite(), way: by, demand: map[string]float64{"edge": 200, "cloud-1": 200, "cloud-2": 200},
		really: map[string]float64{"edge": 2, "cloud-1": 7, "cloud-2": 7}, fails: map[string]float64{}, gets: map[string]float64{}}
}

// pass is site's. Each looks at what there is after each second.
func (l *loop) pass(seconds int, each func()) {
	for range seconds {
		time.Sleep(time.Second)
		l.matrix = l.planner.Plan(l.state, gateways, time.Now())[fire]
		for _, node := range gateways {
			l.gets[node] = 0
			for gateway, rps := range l.demand {
				l.gets[node] += rps * l.share(gateway, node)
			}
		}
		for _, node := range gateways {
			switch lie := l.liars[node]; {
			case lie != nil:
				lie()
				l.far(node, l.seconds)
			case l.told:
				l.tell(node, l.seconds)
			default:
				l.far(node, l.seconds)
			}
			l.send(node)
		}
		l.seconds++
		each()
	}
}

const (
	// atOnce is how long it takes to fail.
	atOnce = 100 * time.Microsecond
	// long is how long requests stay where more come than can be served.
	long = 500 * ms
)

// full tells whether a node gets more requests than it can serve, or as good as.
func (l *loop) full(node string) bool { return l.utilization(node) > 0.95 }

func (l *loop) utilization(node string) float64 {
	return l.gets[node] * (1 - l.fails[node]) * service / l.really[node]
}

// stay is how long a request is on a node that does not fail, in seconds (Sakasegawa).
func (l *loop) stay(node string) float64 {
	if l.full(node) {
		return long.Seconds()
	}
	rho, workers := l.utilization(node), l.really[node]
	return service * (1 + math.Pow(rho, math.Sqrt(2*(workers+1))-1)/workers/(1-rho))
}

// send has a gateway tell what has come of its requests.
func (l *loop) send(gateway string) {
	routed := &nodeapi.RoutedSignals{Function: fire}
	for k, a := range l.matrix.Endpoints {
		node := l.state.Instances[k].Node
		rps := l.demand[gateway] * l.share(gateway, node) / max(1, l.utilization(node))
		away, stay, fails := distance(gateway, node).Seconds(), l.stay(node), l.fails[node]
		all := away + (1-fails)*stay + fails*atOnce.Seconds()
		to := &nodeapi.EndpointSignals{Address: a.String(), RpsFractional: rps, Eps: fails * rps, NamedMetrics: map[string]float64{"in_flight": rps * all}}
		switch {
		case rps > 0 && l.withFailures:
			to.NamedMetrics["sojourn_time"] = all
		case rps > 0 && fails < 1:
			to.NamedMetrics["sojourn_time"] = away + stay
		}
		routed.Endpoints = append(routed.Endpoints, to)
	}
	l.relay(gateway, routed)
}

func (l *loop) weights() map[string][]uint32 {
	of := map[string][]uint32{}
	for gateway, row := range l.matrix.Rows {
		of[gateway] = row.Weights
	}
	return of
}

func allWays(t *testing.T, test func(t *testing.T, by way)) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, by) })
		})
	}
}

// A node whose function fails at once is idle, and would be the fastest of all. It draws
// nobody's requests, and loses its own within seconds; some find out now and then whether it is
// well again, and when it is they come back.
func TestANodeThatFailsAtOnceDrawsNoRequests(t *testing.T) {
	for _, sink := range []string{"edge", "cloud-2"} {
		t.Run(sink, func(t *testing.T) {
			allWays(t, func(t *testing.T, by way) {
				l := newLoop(by)
				l.pass(90, func() {})
				before := l.weights()
				l.fails[sink] = 1
				failed := 0.0
				look := func() {
					failed += l.gets[sink]
					for gateway := range l.demand {
						if gateway != sink && l.share(gateway, sink) > 0 {
							t.Fatalf("%s sends it %v", gateway, l.share(gateway, sink))
						}
					}
				}
				l.pass(20, look)
				want := []routing.Problem{{
					Function: fire, Gateways: []string{},
					Message: "requests fail on node " + sink + " that other nodes answer; it gets few, if any",
				}}
				if d := cmp.Diff(want, l.planner.Problems()); d != "" {
					t.Error(d)
				}
				if most := 15 * l.demand[sink]; failed > most {
					t.Errorf("%v have failed in 20 s", failed)
				}
				failed = 0
				l.pass(600, look)
				if most := 0.03 * 600 * l.demand[sink]; failed > most {
					t.Errorf("%v have failed in the ten minutes then, of at most %v", failed, most)
				}
				l.fails[sink] = 0
				l.pass(600, func() {})
				if d := cmp.Diff(before, l.weights()); d != "" {
					t.Errorf("after ten minutes in which it was well: %s", d)
				}
			})
		})
	}
}

// One that fails some of its requests is no faster for it, unless older daemons have it so.
func TestANodeThatFailsSomeDrawsNoRequests(t *testing.T) {
	for _, fails := range []float64{0.05, 0.2, 0.45, 0.55, 0.8} {
		allWays(t, func(t *testing.T, by way) {
			if by.withFailures {
				return
			}
			l := newLoop(by)
			l.pass(90, func() {})
			l.fails["cloud-2"] = fails
			l.pass(300, func() {
				if got := l.share("cloud-1", "cloud-2") + l.share("edge", "cloud-2"); got > 0 {
					t.Fatalf("%v fail there, and others send it %v", fails, got)
				}
			})
		})
	}
}

// What an application fails on its own account says nothing of nodes.
func TestWhatFailsEverywhereChangesNothing(t *testing.T) {
	for _, fails := range []float64{0.05, 0.3, 0.7, 1} {
		allWays(t, func(t *testing.T, by way) {
			l := newLoop(by)
			l.pass(90, func() {})
			before := l.weights()
			for _, node := range gateways {
				l.fails[node] = fails
			}
			l.pass(600, func() {})
			if d := cmp.Diff(before, l.weights()); d != "" {
				t.Errorf("when %v fail: %s", fails, d)
			}
			if p := l.planner.Problems(); len(p) > 0 {
				t.Errorf("when %v fail: %v", fails, p)
			}
		})
	}
}

// A node that says that it has more room than it has is found out, and then no longer believed,
// though nobody waits there any more: by its word it would get them all again.
func TestALiarIsFoundOutOnce(t *testing.T) {
	for name, c := range map[string]struct{ service, capacity float64 }{
		"fast and endless": {1e-6, 1e6}, "fast": {1e-6, 7}, "endless": {service, 1e6}, "seven for one": {service, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoop(way{told: true})
				l.demand["cloud-1"], l.demand["cloud-2"], l.really["cloud-2"] = 300, 300, 1
				l.liars["cloud-2"] = func() {
					said := map[string]float64{"in_flight": 0, "sojourn_time": c.service, "service_time": c.service, "capacity": c.capacity}
					l.Signals("cloud-2", "", &nodeapi.Signals{Functions: []*nodeapi.FunctionSignals{{Function: fire, NamedMetrics: said}}})
				}
				l.pass(60, func() {})
				l.pass(600, func() {
					if l.full("cloud-2") {
						t.Fatalf("after %d s it gets %v requests per second", l.seconds, l.gets["cloud-2"])
					}
				})
			})
		})
	}
}
