// Package simulator sends requests through a simulated edge-cloud and says how long they
// took under one way of routing or another. It is a simulation of discrete events: the same
// world and seed give the same figures, whatever the machine does meanwhile.
//
// A request begins at a gateway, which chooses a node, is there after half a round trip,
// waits for one of the node's workers in the order of arrival, holds it, and its answer is
// back after another half. All ways of routing see the same requests, with the same
// times of service and the same moments of jitter.
package simulator

import (
	"math/rand/v2"
	"time"

	"github.com/headstart-mesh/headstart/filters/route"
)

// World is where requests come from and where they can go. Times are since its start.
type World struct {
	Name      string
	Nodes     []Node
	Functions []Function
	Sources   []Source
	Faults    []Fault
	// RTT is the mean round-trip time between two nodes, Jitter its standard deviation.
	RTT, Jitter func(a, b int) time.Duration
	// Requests count when they begin from Warmup to Length.
	Warmup, Length time.Duration
	Seed           uint64
}

// Node has workers, which the functions on it share.
type Node struct {
	// Region is the locality that an operator would give it.
	Region  int
	Workers int
	// Speed divides times of service.
	Speed float64
}

// Function has an instance on each of its nodes.
type Function struct {
	Nodes []int
	// Service draws how long a request holds a worker of speed 1.
	Service func(*rand.Rand) time.Duration
	// Mean is Service's.
	Mean time.Duration
}

// Source is the requests for one function at one node's gateway, at random moments.
type Source struct {
	Node, Function int
	// Rate is how many there are, in requests per second, at a time.
	Rate func(time.Duration) float64
	// Peak is Rate's largest.
	Peak float64
}

// Fault is what goes wrong from one moment to another.
type Fault struct {
	From, To time.Duration
	// Slow, if above 0, multiplies times of service on Nodes. Down says that they are off:
	// requests there break off, further ones are refused. Otherwise the fault is a
	// partition: nothing passes between Nodes and others.
	Slow  float64
	Down  bool
	Nodes []int
}

// Uniform draws from low to high.
func Uniform(low, high time.Duration) (func(*rand.Rand) time.Duration, time.Duration) {
	return func(r *rand.Rand) time.Duration { return low + time.Duration(r.Float64()*float64(high-low)) }, (low + high) / 2
}

// Exponential draws with a mean.
func Exponential(mean time.Duration) (func(*rand.Rand) time.Duration, time.Duration) {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }, mean
}

// Constant is a rate that does not change.
func Constant(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// Bursts is a rate that is base, and peak for the first length of each period.
func Bursts(base, peak float64, period, length time.Duration) func(time.Duration) float64 {
	return func(t time.Duration) float64 {
		if t%period < length {
			return peak
		}
		return base
	}
}

// request is one, as it comes to its gateway.
type request struct {
	at     time.Duration
	source int
	work   time.Duration
	// jitter is how far round trips are from their mean at this moment, in standard
	// deviations.
	jitter float64

	tries  int
	began  time.Duration // the try that is under way
	sent   route.Sent
	failed bool
}

// requests draws the world's requests, in their order.
func (w *World) requests() []request {
	var all []request
	var heads []request
	rs := make([]*rand.Rand, len(w.Sources))
	next := func(s int) bool {
		src, r := &w.Sources[s], rs[s]
		at := heads[s].at
		for {
			if src.Peak <= 0 {
				return false
			}
			at += time.Duration(r.ExpFloat64() / src.Peak * float64(time.Second))
			if at >= w.Length {
				return false
			}
			if r.Float64()*src.Peak < src.Rate(at) {
				break
			}
		}
		heads[s] = request{at: at, source: s, work: w.Functions[src.Function].Service(r), jitter: r.NormFloat64()}
		return true
	}
	heads = make([]request, len(w.Sources))
	order := newHeap(func(a, b int) bool {
		if heads[a].at != heads[b].at {
			return heads[a].at < heads[b].at
		}
		return a < b
	})
	for s := range w.Sources {
		rs[s] = rand.New(rand.NewPCG(w.Seed, uint64(s)))
		if next(s) {
			order.push(s)
		}
	}
	for order.len() > 0 {
		s := order.pop()
		all = append(all, heads[s])
		if next(s) {
			order.push(s)
		}
	}
	return all
}

// rtt is the round trip between two nodes at a moment.
func (w *World) rtt(a, b int, jitter float64) time.Duration {
	return max(0, w.RTT(a, b)+time.Duration(jitter*float64(w.Jitter(a, b))))
}

// speed is how much faster than speed 1 a node works at a time.
func (w *World) speed(node int, at time.Duration) float64 {
	speed := w.Nodes[node].Speed
	for i := range w.Faults {
		if f := &w.Faults[i]; f.Slow > 0 && f.during(at) && f.has(node) {
			speed /= f.Slow
		}
	}
	return speed
}

// down tells whether a node is off at some time in [from, to], and since when.
func (w *World) down(node int, from, to time.Duration) (since time.Duration, down bool) {
	for i := range w.Faults {
		if f := &w.Faults[i]; f.Down && f.From <= to && from < f.To && f.has(node) {
			return max(from, f.From), true
		}
	}
	return 0, false
}

// cut tells whether nothing passes between two nodes at a time.
func (w *World) cut(a, b int, at time.Duration) bool {
	for i := range w.Faults {
		if f := &w.Faults[i]; f.Slow == 0 && !f.Down && f.during(at) && f.has(a) != f.has(b) {
			return true
		}
	}
	return false
}

func (f *Fault) during(at time.Duration) bool { return f.From <= at && at < f.To }

func (f *Fault) has(node int) bool {
	for _, n := range f.Nodes {
		if n == node {
			return true
		}
	}
	return false
}
