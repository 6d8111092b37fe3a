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
	type candidate struct {
		name string
		rank float64 // the lower the rather
	}
	byRank := func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name))
	}
	near, random := make([]candidate, 0, len(m.of)), make([]candidate, 0, len(m.of))
	salt := seed(of)
	// Each node changes its random ones at a time of its own.
	epoch := (now.UnixNano() + int64(salt%uint64(rotation))) / int64(rotation)
	for name, n := range m.of {
		if n == self || !n.joined || chosen[name] {
			continue
		}
		random = append(random, candidate{name, float64(mix(salt ^ seed(name) ^ uint64(epoch)*0x9e3779b97f4a7c15))})
		rtt := time.Duration(0)
		if w, fresh := self.way(name, now); fresh {
			rtt = w.rtt
		} else if self.placed(now) && n.placed(now) {
			rtt = self.point.RTT(n.point)
		} else {
			continue
		}
		rank := float64(rtt)
		if self.near[name] {
			rank *= loyalty
		}
		near = append(near, candidate{name, rank})
	}
	slices.SortFunc(near, byRank)
	clear(self.near)
	for _, c := range near[:min(len(near), nearMost)] {
		self.near[c.name] = true
		choose(c.name)
	}
	slices.SortFunc(random, byRank)
	for _, c := range random {
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
