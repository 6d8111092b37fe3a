package topology

import (
	"maps"
	"slices"
	"time"
)

const (
	// siteWithin is how near a node is to the one that leads a site, to become a member: bytes come from there as
	// soon as from next door, and a question costs less than one to a store as a rule.
	siteWithin = 2 * time.Millisecond
	// siteBeyond is how far it is when it leaves, if it is for siteAway. When members change, objects change owners,
	// and a full link delays by tens of milliseconds just while they are passed on.
	siteBeyond, siteAway = 2 * siteWithin, 10 * time.Minute
	// siteMost is how many members a site has: each is told of all.
	siteMost = 256
)

// Sites are nodes that are near each other. Each site has a member that leads it, of which the others are near, so
// no two members are further apart than twice siteBeyond for long. The zero value has none.
type Sites struct {
	of  map[string]string    // by node: who leads its site
	far map[string]time.Time // since when a node is beyond
}

// RTT is how far a node has found one to be that leads, if it has measured it.
type RTT func(node, leader string) (d time.Duration, known bool)

// Divide divides the nodes, and keeps together what it has put together before. It returns who leads
// each node's site.
func (s *Sites) Divide(nodes []string, now time.Time, rtt RTT) map[string]string {
	of, size := make(map[string]string, len(nodes)), map[string]int{}
	together := map[string]int{} // how many would be led, if those that join a site bring theirs
	for _, leader := range s.of {
		together[leader]++
	}
	var leaders []string
	// Those that lead come first: nodes join them, rather than the other way round.
	for _, leads := range []bool{true, false} {
		for _, node := range slices.Sorted(slices.Values(nodes)) {
			if (s.of[node] == node) != leads {
				continue
			}
			open := slices.DeleteFunc(slices.Clone(leaders), func(l string) bool {
				return size[l] >= siteMost || leads && together[l]+together[node] > siteMost
			})
			leader := s.nearest(node, open, now, rtt)
			if leader == "" {
				leader = node
				leaders = append(leaders, node)
			} else if leads {
				together[leader] += together[node]
			}
			of[node] = leader
			size[leader]++
		}
	}
	s.of = of
	maps.DeleteFunc(s.far, func(node string, _ time.Time) bool { return of[node] == "" })
	return of
}

// nearest is the leader whose site a node joins; empty: none. Nodes of one site stay together until they are measured
// to be far: when a leader goes, most have not measured their way to the next one.
func (s *Sites) nearest(node string, leaders []string, now time.Time, rtt RTT) (best string) {
	before, least := s.of[node], time.Duration(0)
	for _, l := range leaders {
		d, known := rtt(node, l)
		if before != "" && s.of[l] == before && s.stays(node, now, !known || d <= siteBeyond) {
			return l // they have been together
		}
		if known && d <= siteWithin && (best == "" || d < least) {
			best, least = l, d
		}
	}
	return best
}

// stays tells whether a node is still a member of its site, which it is near now or not.
func (s *Sites) stays(node string, now time.Time, near bool) bool {
	since, far := s.far[node]
	switch {
	case near:
		delete(s.far, node)
	case !far:
		if s.far == nil {
			s.far = map[string]time.Time{}
		}
		s.far[node] = now
	case now.Sub(since) >= siteAway:
		delete(s.far, node)
		return false
	}
	return true
}

// Measured is how far a node itself has found another one to be. So a node that lies can get into the sites of others,
// and cannot bring others into its own.
func (m *Map) Measured(node, other string, now time.Time) (d time.Duration, known bool) {
	e := m.RTT(node, other, now)
	return e.RTT, e.Source == Own
}

// Near tells whether a node has found another one to be as near as members of a site are.
func (m *Map) Near(node, other string, now time.Time) bool {
	d, known := m.Measured(node, other, now)
	return known && d <= siteWithin
}
