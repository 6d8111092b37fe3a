package topology

import (
	"slices"
	"time"
)

const (
	// siteWithin is how near a node is to the one that leads a site, to become a member: bytes come from there as
	// soon as from next door, and a question costs less than one to a store as a rule.
	siteWithin = 2 * time.Millisecond
	// siteBeyond is how far it is when it leaves. When members change, objects change owners.
	siteBeyond = 2 * siteWithin
	// siteMost is how many members a site has: each is told of all.
	siteMost = 256
)

// Sites are nodes that are near each other. Each site has a member that leads it, of which the others are near, so
// no two members are further apart than twice siteBeyond. The zero value has none.
type Sites struct {
	of map[string]string // by node: who leads its site
}

// Divide divides the nodes, and keeps together what it has put together before. rtt is how far a node is from one
// that leads, if the node has measured it. It returns who leads each node's site.
func (s *Sites) Divide(nodes []string, rtt func(node, leader string) (d time.Duration, known bool)) map[string]string {
	now, size := make(map[string]string, len(nodes)), map[string]int{}
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
			leader := s.nearest(node, open, rtt)
			if leader == "" {
				leader = node
				leaders = append(leaders, node)
			} else if leads {
				together[leader] += together[node]
			}
			now[node] = leader
			size[leader]++
		}
	}
	s.of = now
	return now
}

// nearest is the leader whose site a node joins; empty: none. Nodes of one site stay together until they are measured
// to be far: when a leader goes, most have not measured their way to the next one.
func (s *Sites) nearest(node string, leaders []string, rtt func(node, leader string) (time.Duration, bool)) (best string) {
	before, least := s.of[node], time.Duration(0)
	for _, l := range leaders {
		d, known := rtt(node, l)
		if before != "" && s.of[l] == before && (!known || d <= siteBeyond) { // they have been together
			return l
		}
		if known && d <= siteWithin && (best == "" || d < least) {
			best, least = l, d
		}
	}
	return best
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
