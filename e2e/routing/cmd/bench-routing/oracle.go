package main

import (
	"time"

	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/simulator"
)

// oracle is the simulator's in the same case, on the same nodes: what a gateway could do that
// knew every queue.
func (b *bench) oracle(c routing.Case) routing.Point {
	w := simulator.Testbed(c.Users, c.RTT, c.Jitter, b.requests, b.Seed)
	for i, n := range nodes {
		w.Nodes[i].Workers = n.Workers
	}
	r := simulator.Run(w, simulator.Oracle())
	ms := func(q float64) float64 { return float64(r.Quantile(q)) / float64(time.Millisecond) }
	p := routing.Point{Case: c, Variant: routing.Oracle, Room: c.Room(nodes[0].Workers), Sent: r.Requests, Completed: r.Requests - r.Failed,
		P50: ms(0.5), P95: ms(0.95), P99: ms(0.99)}
	for i := range routing.CDFSteps + 1 {
		p.CDF = append(p.CDF, ms(float64(i)/routing.CDFSteps))
	}
	return p
}
