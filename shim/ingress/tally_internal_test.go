package ingress

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestTally(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tally := newTally(now)
	gone := map[string]bool{}
	there := func(instance string) bool { return !gone[instance] }
	want := func(all ...*nodeapi.FunctionSignals) {
		t.Helper()
		now = now.Add(2 * time.Second)
		if diff := cmp.Diff(&nodeapi.Signals{Functions: all}, tally.report(now, there), protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	want()
	first, second := tally.begin("default/fire", time.Second), tally.begin("default/fire", 3*time.Second)
	tally.begin("default/water", 0)
	want(&nodeapi.FunctionSignals{Function: "default/fire", NamedMetrics: map[string]float64{"in_flight": 2}},
		&nodeapi.FunctionSignals{Function: "default/water", NamedMetrics: map[string]float64{"in_flight": 1}})
	first(100*time.Millisecond, false)
	second(300*time.Millisecond, true)
	want(&nodeapi.FunctionSignals{Function: "default/fire", RpsFractional: 1, Eps: 0.5, NamedMetrics: map[string]float64{"in_flight": 0, "sojourn_time": 0.2, "queue_wait": 2}},
		&nodeapi.FunctionSignals{Function: "default/water", NamedMetrics: map[string]float64{"in_flight": 1}})
	tally.heard("default/water", "one", programLoad{utilization: 0.25, service: 1})
	tally.heard("default/water", "one", programLoad{utilization: 0.5, service: 2, capacity: 2})
	tally.heard("default/none", "none", programLoad{utilization: 0.5})
	water := func(utilization float64, metrics map[string]float64) *nodeapi.FunctionSignals {
		metrics["in_flight"] = 1
		return &nodeapi.FunctionSignals{Function: "default/water", ApplicationUtilization: utilization, NamedMetrics: metrics}
	}
	want(water(0.5, map[string]float64{"service_time": 1.5, "capacity": 2}))
	// Another instance on the node can do as much again, whether or not both have answered just now.
	tally.heard("default/water", "two", programLoad{utilization: 0.25, capacity: 3})
	want(water(0.25, map[string]float64{"capacity": 5}))
	tally.heard("default/water", "one", programLoad{utilization: 0.5})
	tally.heard("default/water", "two", programLoad{utilization: 1, capacity: 3})
	want(water(0.75, map[string]float64{"capacity": 5}))
	gone["one"] = true
	want(water(0, map[string]float64{"capacity": 3}))
	gone["two"] = true
	want(water(0, map[string]float64{}))
	if len(tally.said) != 0 {
		t.Errorf("%d instances are remembered", len(tally.said))
	}
	if len(tally.of) != 1 {
		t.Errorf("%d functions are remembered", len(tally.of))
	}
	if m := tally.report(now.Add(-time.Hour), there); len(m.GetFunctions()) > 0 {
		t.Errorf("of no time %v", m)
	}
}
