package gateways

import (
	"context"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/weights"
)

// FaaSt weighs endpoints by the inverse of round trip and time on the node, averages of 10 s,
// anew every 2 s, as the published code does (bonavadeur/miporin, pkg/scraper). That rounds to
// whole milliseconds and percents; this does not.
func FaaSt() Variant {
	return Weighted{Title: "FaaSt", Interval: 2 * time.Second, Window: 10 * time.Second, Weigh: func(m Measured) [][]float64 {
		return weights.Inverse(m.Function())
	}}
}

// Function is what package weights takes.
func (m Measured) Function() weights.Function {
	f := weights.Function{Demand: m.Demand, RTT: func(source, node int) float64 { return m.RTT[source][node] }}
	for i := range m.Workers {
		f.Nodes = append(f.Nodes, weights.Node{Service: m.Service[i], Sojourn: m.Sojourn[i], Workers: float64(m.Workers[i])})
	}
	return f
}

const (
	// decideEvery is how often weights are looked at, over averages of decideOver.
	decideEvery = 2 * time.Second
	decideOver  = 30 * time.Second
)

// balance has the control plane's own loop decide on what was measured, and tells the
// gateways what is worth it: weights, and what their filters are to expect.
func (s *Set) balance(ctx context.Context, publish func(routing.Weights) error) {
	scraper := &scraper{set: s, window: decideOver}
	loop := weights.NewLoop(weights.ByLatency)
	s.repeat(ctx, decideEvery, func(ctx context.Context) error {
		m, err := scraper.measure(ctx)
		if err != nil {
			return err
		}
		if !s.decide(loop, m) {
			return nil
		}
		return publish(routing.Weights{functionName: s.matrix(loop)})
	})
}

// decide returns whether there is something to tell.
func (s *Set) decide(loop *weights.Loop, m Measured) bool {
	var names []string
	for _, n := range s.bed.Nodes {
		names = append(names, n.Name)
	}
	changes := loop.Decide(weights.Measured{Sources: names, Nodes: names, Function: m.Function(), Passed: min(m.Over, decideEvery)})
	return slices.ContainsFunc(changes, func(c weights.Change) bool { return c != weights.Held })
}

// matrix is what the control plane takes.
func (s *Set) matrix(loop *weights.Loop) *routing.Matrix {
	m := &routing.Matrix{Rows: map[string]routing.Row{}}
	for i, n := range s.bed.Nodes {
		m.Endpoints = append(m.Endpoints, n.Function)
		row := routing.Row{Weights: weights.Integers(loop.Shares(i), weightSum)}
		for _, e := range loop.Expect(i) {
			row.Expected = append(row.Expected, e.Expected)
		}
		m.Rows[n.Name] = row
	}
	return m
}
