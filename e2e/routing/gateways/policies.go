package gateways

import (
	"context"
	"math"
	"slices"
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

const (
	// decideEvery is how often weights are looked at, over averages of decideOver.
	decideEvery = 2 * time.Second
	decideOver  = 30 * time.Second
	// outdatedBy is by how much a node's time of service may differ from what a gateway that
	// sends there was told last.
	outdatedBy = 0.25
)

// balancing is what the gateways have been told.
type balancing struct {
	rows weights.Matrix
	// expected is what their filters reckon with, by gateway and node.
	expected [][]xds.Expected
}

// balance gives the gateways the weights that are best for what was measured, if that is
// worth a change, and tells their filters what to expect.
func (s *Set) balance(ctx context.Context, publish func(xds.Weights) error) {
	scraper := &scraper{set: s, window: decideOver}
	told := balancing{expected: make([][]xds.Expected, len(s.bed.Nodes))}
	s.repeat(ctx, decideEvery, func(ctx context.Context) error {
		m, err := scraper.measure(ctx)
		if err != nil || !told.decide(m) {
			return err
		}
		return publish(xds.Weights{functionName: s.matrix(told)})
	})
}

// decide returns whether there is something to tell.
func (b *balancing) decide(m Measured) (changed bool) {
	f := m.Function()
	f.Over = m.Over
	wanted := weights.Balanced(f)
	replace := weights.Hold(f, b.rows, wanted)
	if b.rows == nil {
		b.rows = slices.Clone(wanted)
	}
	for i := range b.rows {
		if replace[i] {
			b.rows[i] = wanted[i]
		} else if !b.outdated(m, i) {
			continue
		}
		changed = true
	}
	if changed {
		for i := range b.rows {
			b.expected[i] = b.expect(m, i)
		}
	}
	return changed
}

// outdated says whether a gateway reckons with times of service that are no longer so.
func (b *balancing) outdated(m Measured, gateway int) bool {
	for j, e := range b.expected[gateway] {
		if told := e.Service.Seconds(); b.rows[gateway][j] > 0 && m.Service[j] > 0 && math.Abs(m.Service[j]-told) > outdatedBy*told {
			return true
		}
	}
	return false
}

func (b *balancing) expect(m Measured, gateway int) []xds.Expected {
	row := make([]xds.Expected, len(m.Workers))
	for j := range row {
		others := 0.0
		for i := range b.rows {
			if i != gateway {
				others += m.Demand[i] * b.rows[i][j] * m.Service[j]
			}
		}
		row[j] = xds.Expected{RTT: duration(m.RTT[gateway][j]), Service: duration(m.Service[j]), Workers: m.Workers[j], Others: others}
	}
	return row
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// matrix is what the control plane takes.
func (s *Set) matrix(b balancing) *xds.Matrix {
	m := &xds.Matrix{Rows: map[string]xds.Row{}}
	for i, n := range s.bed.Nodes {
		m.Endpoints = append(m.Endpoints, n.Function)
		m.Rows[n.Name] = xds.Row{Weights: weights.Integers(b.rows[i], weightSum), Expected: b.expected[i]}
	}
	return m
}
