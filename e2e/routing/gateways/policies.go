package gateways

import (
	"context"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/weights"
	"github.com/headstart-mesh/headstart/control-plane/xds"
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

// matrix is w as the control plane takes it.
func (s *Set) matrix(w weights.Matrix) *xds.Matrix {
	m := &xds.Matrix{Rows: map[string]xds.Row{}}
	for i, n := range s.bed.Nodes {
		m.Endpoints = append(m.Endpoints, n.Function)
		m.Rows[n.Name] = xds.Row{Weights: weights.Integers(w[i], weightSum)}
	}
	return m
}

const (
	// decideEvery is how often weights are looked at, over averages of decideOver.
	decideEvery = 2 * time.Second
	decideOver  = 30 * time.Second
)

// balance gives the gateways the weights that are best for what was measured, if that is
// worth a change.
func (s *Set) balance(ctx context.Context, publish func(xds.Weights) error) {
	scraper := &scraper{set: s, window: decideOver}
	var held weights.Matrix
	s.repeat(ctx, decideEvery, func(ctx context.Context) error {
		m, err := scraper.measure(ctx)
		if err != nil {
			return err
		}
		f := m.Function()
		f.Over = m.Over
		wanted := weights.Balanced(f)
		replaced := false
		for i, worthwhile := range weights.Hold(f, held, wanted) {
			switch {
			case !worthwhile:
				continue
			case held == nil:
				held = wanted
			}
			held[i], replaced = wanted[i], true
		}
		if !replaced {
			return nil
		}
		return publish(xds.Weights{functionName: s.matrix(held)})
	})
}
