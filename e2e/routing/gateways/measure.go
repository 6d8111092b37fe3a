package gateways

import (
	"context"
	"fmt"
	"time"

	"github.com/headstart-mesh/headstart/e2e/routing/bed"
)

// Measured is what FaaSt's agents and its metric server know: averages over a while.
type Measured struct {
	Over time.Duration
	// Demand is how many requests come to each gateway, in requests per second.
	Demand []float64
	// RTT is the round trip from each node to each, in seconds.
	RTT [][]float64
	// Service and Sojourn are how long each node's requests held a worker, and were there at
	// all, in seconds; 0: it had none.
	Service, Sojourn []float64
	Workers          []int
}

// scraper measures by asking: all nodes' functions, and connections between each two nodes.
type scraper struct {
	set *Set
	// window is over how long it averages.
	window time.Duration
	past   []observation // the oldest first
}

// observation is what was seen at one time.
type observation struct {
	at       time.Time
	states   []bed.State
	requests []float64 // since each gateway began
	rtt      [][]float64
}

// measure looks once more, and returns the averages since what is a window old.
func (s *scraper) measure(ctx context.Context) (Measured, error) {
	o, err := s.observe(ctx)
	if err != nil {
		return Measured{}, err
	}
	s.past = append(s.past, o)
	for len(s.past) > 2 && o.at.Sub(s.past[1].at) >= s.window {
		s.past = s.past[1:]
	}
	return average(s.past), nil
}

func (s *scraper) observe(ctx context.Context) (o observation, err error) {
	o.at = time.Now()
	for _, n := range s.set.bed.Nodes {
		state, err := s.set.bed.State(ctx, n)
		if err != nil {
			return o, fmt.Errorf("state of %s: %w", n.Name, err)
		}
		o.states = append(o.states, state)
		count, err := s.set.counter(ctx, n, "upstream_rq_total")
		if err != nil {
			return o, fmt.Errorf("requests at %s: %w", n.Name, err)
		}
		o.requests = append(o.requests, count)
		row := make([]float64, len(s.set.bed.Nodes))
		for j, to := range s.set.bed.Nodes {
			if to.Name == n.Name {
				continue // no network between a node and itself
			}
			took, err := s.set.bed.RTT(ctx, n, to)
			if err != nil {
				return o, fmt.Errorf("round trip from %s to %s: %w", n.Name, to.Name, err)
			}
			row[j] = took.Seconds()
		}
		o.rtt = append(o.rtt, row)
	}
	return o, nil
}

// average is over at least one observation.
func average(past []observation) Measured {
	first, last := past[0], past[len(past)-1]
	n := len(last.states)
	m := Measured{Demand: make([]float64, n), RTT: make([][]float64, n), Service: make([]float64, n), Sojourn: make([]float64, n), Workers: make([]int, n)}
	m.Over = last.at.Sub(first.at)
	passed := m.Over.Seconds()
	for i := range n {
		a, b := first.states[i], last.states[i]
		m.Workers[i] = b.Workers
		if served := float64(b.Served - a.Served); served > 0 {
			m.Service[i], m.Sojourn[i] = (b.Service-a.Service)/served, (b.Sojourn-a.Sojourn)/served
		}
		if passed > 0 {
			m.Demand[i] = (last.requests[i] - first.requests[i]) / passed
		}
		m.RTT[i] = make([]float64, n)
		for j := range n {
			for _, o := range past {
				m.RTT[i][j] += o.rtt[i][j] / float64(len(past))
			}
		}
	}
	return m
}
