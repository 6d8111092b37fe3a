package routing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/topology"
)

// large is a platform where any two nodes are some milliseconds apart.
type large struct{ demand map[string]float64 }

func (large) RTT(from, to string, _ time.Time) topology.Estimate {
	return topology.Estimate{RTT: time.Duration(1+(7*len(from)+int(from[len(from)-1])*int(to[len(to)-1]))%50) * ms, Source: topology.Own}
}

func (large) Of(string, string, time.Time) signals.Estimate { return honest(100, 4) }

func (l large) Demand(string, time.Time) (map[string]float64, bool) { return l.demand, true }

func (large) Overdue(string, time.Time) (time.Duration, bool) { return 0, true }

// BenchmarkPlan is what deciding costs for one function with a hundred endpoints, for a thousand
// gateways that all have requests.
func BenchmarkPlan(b *testing.B) {
	r := newRig(testbed(0))
	r.Planner = routing.New(large{map[string]float64{fire: 10}}, prometheus.NewRegistry())
	r.state.Instances, r.gateways = nil, nil
	for i := range 100 {
		r.place(fmt.Sprintf("node-%d", i), fmt.Sprintf("10.1.%d.1:8080", i))
	}
	for i := range 1000 {
		r.gateways = append(r.gateways, fmt.Sprintf("node-%d", i))
	}
	r.state.Functions = []platform.Function{{Name: fire}}
	for b.Loop() {
		r.now = r.now.Add(5 * time.Second)
		r.plan()
	}
}
