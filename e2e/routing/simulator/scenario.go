package simulator

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// square is a matrix of durations as a function.
func square(m [][]time.Duration) func(a, b int) time.Duration {
	return func(a, b int) time.Duration { return m[a][b] }
}

func matrix(n int, of func(a, b int) time.Duration) [][]time.Duration {
	m := make([][]time.Duration, n)
	for a := range m {
		m[a] = make([]time.Duration, n)
		for b := range m[a] {
			m[a][b] = of(a, b)
		}
	}
	return m
}

func all(n int) []int {
	nodes := make([]int, n)
	for i := range nodes {
		nodes[i] = i
	}
	return nodes
}

const (
	// perUser is the paper's users' rate, in requests per second.
	perUser = 10
	// testbedEdge and testbedCloud are workers of its nodes: sixteen in all, and enough at
	// the edge for less than 50 users.
	testbedEdge, testbedCloud = 2, 7
	// within is the round trip between two nodes of a region.
	within = 800 * time.Microsecond
)

// Testbed is the paper's (section III.A and IV.B): an edge node and two cloud nodes, a
// function of 3 to 5 ms, and as many users at the edge as in the cloud, where they are
// half on either node. rtt and jitter are those between edge and cloud.
func Testbed(users int, rtt, jitter time.Duration, requests int, seed uint64) *World {
	service, mean := Uniform(3*time.Millisecond, 5*time.Millisecond)
	rate := float64(users * perUser)
	w := &World{Name: fmt.Sprintf("testbed, %d users, %v±%v", users, rtt, jitter),
		Nodes:     []Node{{Region: 0, Workers: testbedEdge, Speed: 1}, {Region: 1, Workers: testbedCloud, Speed: 1}, {Region: 1, Workers: testbedCloud, Speed: 1}},
		Functions: []Function{{Nodes: all(3), Service: service, Mean: mean}},
		Sources:   []Source{{0, 0, Constant(rate), rate}, {1, 0, Constant(rate / 2), rate / 2}, {2, 0, Constant(rate / 2), rate / 2}},
		RTT:       square([][]time.Duration{{0, rtt, rtt}, {rtt, 0, within}, {rtt, within, 0}}),
		Jitter:    square([][]time.Duration{{0, jitter, jitter}, {jitter, 0, 0}, {jitter, 0, 0}}),
		Warmup:    warmup, Seed: seed}
	w.Length = w.Warmup + time.Duration(float64(requests)/(2*rate)*float64(time.Second))
	return w
}

// warmup is until all gateways have weights of what was measured.
const warmup = decideEvery + time.Second

// Topology is a kind of network.
type Topology string

// The topologies.
const (
	Line    Topology = "line"
	Star    Topology = "star"
	Regions Topology = "three regions"
	Random  Topology = "random"
)

// Topologies are all of them.
var Topologies = []Topology{Line, Star, Regions, Random}

// Shape is what varies between generated worlds of a topology.
type Shape struct {
	Topology Topology
	Nodes    int
	// Load is the requests' work as a part of what each node could do, on average; Uneven
	// says how far sources differ from it: 0 not at all, 1 from nothing to twice.
	Load, Uneven float64
	// Mean is the first function's time of service; 0: 4 ms.
	Mean time.Duration
	// Functions, of which each has its own times; they share nodes' workers.
	Functions int
	// Mixed says that nodes differ in workers and speed.
	Mixed bool
	// Bursts multiplies a region's demand for some seconds, again and again; 0: none.
	Bursts float64
	// Heavy says that times of service are exponential; otherwise they are uniform.
	Heavy bool
	// Slow, Down and Cut are faults, for the middle half of the time: the last node is so many
	// times slower, off, or cut off from all others.
	Slow      float64
	Down, Cut bool

	// Requests are counted, or as many as come in the shortest window if these are more.
	Requests int
	Seed     uint64
}

func (s Shape) String() string {
	name := fmt.Sprintf("%s, %d nodes, load %.2g", s.Topology, s.Nodes, s.Load)
	for _, x := range []struct {
		is   bool
		name string
	}{{s.Mixed, "mixed"}, {s.Uneven > 0, "uneven"}, {s.Functions > 1, fmt.Sprint(s.Functions, " functions")}, {s.Heavy, "heavy"}, {s.Bursts > 0, fmt.Sprintf("bursts x%g", s.Bursts)},
		{s.Slow > 0, "a slow node"}, {s.Down, "a node off"}, {s.Cut, "a node cut off"}} {
		if x.is {
			name += ", " + x.name
		}
	}
	return name
}

// World makes it.
func (s Shape) World() *World {
	r := rand.New(rand.NewPCG(s.Seed, 7))
	w := &World{Name: s.String(), Nodes: make([]Node, s.Nodes), Warmup: warmup, Seed: s.Seed}
	for n := range w.Nodes {
		w.Nodes[n] = Node{Workers: 8, Speed: 1}
		if s.Mixed {
			w.Nodes[n].Workers, w.Nodes[n].Speed = 2+r.IntN(15), 0.5+r.Float64()
		}
	}
	s.network(w, r)
	var total float64
	functions := max(1, s.Functions)
	for f := range functions {
		mean := cmp.Or(s.Mean, 4*time.Millisecond)
		if f > 0 {
			mean = time.Duration(float64(time.Millisecond) * math.Exp(4*r.Float64()))
		}
		fn := Function{Nodes: all(s.Nodes)}
		if s.Heavy {
			fn.Service, fn.Mean = Exponential(mean)
		} else {
			fn.Service, fn.Mean = Uniform(mean*3/4, mean*5/4)
		}
		w.Functions = append(w.Functions, fn)
		for n, node := range w.Nodes {
			rate := s.Load * float64(node.Workers) * node.Speed / fn.Mean.Seconds() / float64(functions) * (1 + s.Uneven*(2*r.Float64()-1))
			src := Source{Node: n, Function: f, Rate: Constant(rate), Peak: rate}
			if s.Bursts > 0 && node.Region == 0 {
				src.Rate, src.Peak = Bursts(rate, rate*s.Bursts, burstEvery, burstFor), rate*s.Bursts
			}
			w.Sources = append(w.Sources, src)
			total += rate
		}
	}
	window := max(shortest, time.Duration(float64(s.Requests)/total*float64(time.Second)))
	if s.Bursts > 0 { // whole periods
		window = (window + burstEvery - 1) / burstEvery * burstEvery
	}
	if s.Slow > 0 || s.Down || s.Cut {
		window = max(2*faultFor, window)
		from := w.Warmup + window/4
		w.Faults = []Fault{{From: from, To: from + window/2, Slow: s.Slow, Down: s.Down, Nodes: []int{s.Nodes - 1}}}
	}
	w.Length = w.Warmup + window
	return w
}

const (
	// shortest is the least time that counts, however many requests come in it: weights are
	// decided on twice within it, and so what comes of that shows.
	shortest = 2 * decideEvery
	// faultFor is how long a fault lasts at least: as long as measurements are averaged over,
	// so that weights follow it, and not the choice per request alone.
	faultFor = smoothing
)

// burstEvery and burstFor are a burst's period and length: shorter than the time in which
// weights follow.
const burstEvery, burstFor = 10 * time.Second, 2 * time.Second

// network sets round trips, jitter and regions.
func (s Shape) network(w *World, r *rand.Rand) {
	n := s.Nodes
	var rtt [][]time.Duration
	switch s.Topology {
	case Line: // 5 ms from each to the next, regions of three
		for i := range w.Nodes {
			w.Nodes[i].Region = i / 3
		}
		rtt = matrix(n, func(a, b int) time.Duration { return 5 * time.Millisecond * time.Duration(max(a-b, b-a)) })
	case Star: // a cloud of a quarter of the nodes, edges at different distances, each its region
		cloud := max(1, n/4)
		far := make([]time.Duration, n)
		for i := range w.Nodes {
			w.Nodes[i].Region = max(0, i-cloud+1)
			if i >= cloud {
				far[i] = 20*time.Millisecond + time.Duration(r.Float64()*float64(80*time.Millisecond))
				w.Nodes[i].Workers = max(2, w.Nodes[i].Workers/2)
			}
		}
		rtt = matrix(n, func(a, b int) time.Duration {
			if a < cloud && b < cloud {
				return within
			}
			return far[a] + far[b]
		})
		// Bursts are an edge's: it is region 0 for this.
		if n > cloud {
			for i := range w.Nodes {
				w.Nodes[i].Region = (w.Nodes[i].Region + n - cloud) % (n - cloud + 1)
			}
		}
	case Regions:
		between := [3][3]time.Duration{{0, 30, 90}, {30, 0, 70}, {90, 70, 0}}
		for i := range w.Nodes {
			w.Nodes[i].Region = i % 3
		}
		rtt = matrix(n, func(a, b int) time.Duration { return within + between[a%3][b%3]*time.Millisecond })
	default: // points on a square of 60 ms, each with up to 5 ms of its own
		x, y, own := make([]float64, n), make([]float64, n), make([]float64, n)
		for i := range x {
			x[i], y[i], own[i] = r.Float64(), r.Float64(), r.Float64()
			w.Nodes[i].Region = int(2*x[i]) + 2*int(2*y[i])
		}
		rtt = matrix(n, func(a, b int) time.Duration {
			return time.Duration((60*math.Hypot(x[a]-x[b], y[a]-y[b]) + 5*(own[a]+own[b])/2) * float64(time.Millisecond))
		})
	}
	for i := range rtt {
		rtt[i][i] = 0
	}
	w.RTT = square(rtt)
	// A tenth of the way, as the paper's links have it, from a metropolis on.
	w.Jitter = func(a, b int) time.Duration {
		if d := rtt[a][b]; d > 5*time.Millisecond {
			return d / 10
		}
		return 0
	}
}
