package topology

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"
)

const (
	// neighboursMost is how many peers a node probes, so that n nodes measure O(n): with
	// Vivaldi's own 32 (Dabek et al., section 4.1), half of them near. The simulation of
	// e2e/geography has the errors for other numbers.
	neighboursMost = 32
	// nearMost of them are the nearest: far ones alone say nothing about who is next door.
	nearMost = 16
	// trafficMost of them are those that the node sends requests to, whatever the distance.
	trafficMost = 8
	// rotation is how long the random rest stays the same.
	rotation = 10 * time.Minute
	// loyalty is how much nearer a node has to be, relatively, to take the place of one of the
	// near: each change costs a handshake, and within a site all are equally near.
	loyalty = 0.7
)

// Neighbours are whom the node is to probe: of those that it has traffic to some, the
// nearest, and a few at random, which change slowly; sorted.
func (m *Map) Neighbours(of string, traffic []string, now time.Time) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	self := m.of[of]
	if self == nil {
		return nil
	}
	chosen := map[string]bool{}
	choose := func(name string) bool {
		n := m.of[name]
		if n == nil || n == self || !n.joined || chosen[name] {
			return false
		}
		chosen[name] = true
		return true
	}
	left := trafficMost
	for _, name := range traffic {
		if left > 0 && choose(name) {
			left--
		}
	}
	near, random := shortlist{most: nearMost}, shortlist{most: neighboursMost}
	salt := seed(of)
	// Each node changes its random ones at a time of its own.
	epoch := uint64((now.UnixNano() + int64(salt%uint64(rotation))) / int64(rotation))
	for name, n := range m.of {
		if n == self || !n.joined || chosen[name] {
			continue
		}
		random.add(candidate{name, float64(mix(salt ^ n.seed ^ epoch*0x9e3779b97f4a7c15))})
		if rtt := self.guess(n, now); rtt > 0 {
			rank := float64(rtt)
			if self.near[name] {
				rank *= loyalty
			}
			near.add(candidate{name, rank})
		}
	}
	clear(self.near)
	for _, c := range near.of {
		self.near[c.name] = true
		choose(c.name)
	}
	for _, c := range random.of {
		if len(chosen) == neighboursMost {
			break
		}
		choose(c.name)
	}
	names := make([]string, 0, len(chosen))
	for name := range chosen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// guess is how far another node is, 0 if nobody knows: RTT without what takes longer.
func (n *node) guess(other *node, now time.Time) time.Duration {
	if w, fresh := n.way(other.name, now); fresh {
		return w.rtt
	}
	if n.placed(now) && other.placed(now) {
		return n.point.RTT(other.point)
	}
	return 0
}

// candidate is a node, and how little it is wanted.
type candidate struct {
	name string
	rank float64
}

func compare(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name))
}

// shortlist has the lowest candidates of many, in order.
type shortlist struct {
	most int
	of   []candidate
}

func (s *shortlist) add(c candidate) {
	at, _ := slices.BinarySearchFunc(s.of, c, compare)
	if at == s.most {
		return
	}
	s.of = slices.Insert(s.of, at, c)
	s.of = s.of[:min(len(s.of), s.most)]
}

func seed(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// mix spreads a number's bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
