package simulator

import "time"

// Kind is what a case is about, and so which bound holds for it.
type Kind string

// The kinds.
const (
	// Steady load, for which there is room near to where it comes from or not much farther:
	// within SteadyBound of the oracle that foresees all.
	Steady Kind = "steady"
	// Burst: a region's load is a multiple for seconds: within BurstBound of it.
	Burst Kind = "burst"
	// Near is the paper's testbed while the edge has room for its users: at most FaaStBound
	// of FaaSt.
	Near Kind = "testbed"
	// Overload is the paper's testbed when it has not: within OverloadBound of the oracle.
	Overload Kind = "testbed, overload"
	// Beyond has no bound: load so high or times so different that the oracle lives by what
	// nobody can know, such as how long this request will take.
	Beyond Kind = "beyond"
	// Faulty has no bound either: a node is slow, off or cut off for a part of the time.
	Faulty Kind = "fault"
)

// The bounds are ratios of the 99th percentiles.
const (
	SteadyBound   = 1.05
	BurstBound    = 1.5
	FaaStBound    = 0.5
	OverloadBound = 1.1
)

// Case is a world and what holds in it.
type Case struct {
	Kind  Kind
	World *World
}

// Links are the paper's round trips between edge and cloud, and their jitter.
var Links = [][2]time.Duration{{50 * time.Millisecond, 10 * time.Millisecond}, {70 * time.Millisecond, 10 * time.Millisecond}, {100 * time.Millisecond, 20 * time.Millisecond}}

// perNode is for how many nodes there are requests once more.
const perNode = 50

// roomFor is for how many users the edge has room: 0.9 of what its workers can do.
const roomFor = 45

// Cases are all that are compared, with about so many requests each: the paper's testbed, and
// each topology with so many nodes.
func Cases(requests int, sizes []int, seed uint64) []Case {
	var all []Case
	for _, link := range Links {
		for _, users := range []int{5, 15, 25, 35, 40, 45, 50, 60} {
			kind := Near
			if users > roomFor {
				kind = Overload
			}
			all = append(all, Case{kind, Testbed(users, link[0], link[1], requests, seed)})
		}
	}
	for _, topology := range Topologies {
		for _, n := range sizes {
			base := Shape{Topology: topology, Nodes: n, Requests: requests * max(1, n/perNode), Seed: seed}
			add := func(kind Kind, change func(*Shape)) {
				s := base
				change(&s)
				all = append(all, Case{kind, s.World()})
			}
			add(Steady, func(s *Shape) { s.Load = 0.3 })
			add(Steady, func(s *Shape) { s.Load = 0.6 })
			add(Steady, func(s *Shape) { s.Load, s.Mixed, s.Uneven = 0.5, true, 0.5 })
			add(Steady, func(s *Shape) { s.Load, s.Mixed, s.Uneven, s.Functions = 0.4, true, 0.5, 3 })
			add(Beyond, func(s *Shape) { s.Load = 0.8 })
			add(Beyond, func(s *Shape) { s.Load, s.Mixed, s.Uneven, s.Heavy = 0.6, true, 0.5, true })
			add(Burst, func(s *Shape) { s.Load, s.Bursts = 0.3, 5 })
			add(Burst, func(s *Shape) { s.Load, s.Bursts, s.Mixed = 0.2, 10, true })
			add(Faulty, func(s *Shape) { s.Load, s.Slow = 0.5, 10 })
			add(Faulty, func(s *Shape) { s.Load, s.Down = 0.5, true })
			add(Faulty, func(s *Shape) { s.Load, s.Cut = 0.5, true })
		}
	}
	return all
}
