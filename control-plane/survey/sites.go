package survey

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// leadersMost is how many nodes that lead sites a node measures its way to besides its neighbours.
	leadersMost = 3
	// digestBytes is how much of a hash tells two lists of members apart, for people as well.
	digestBytes = 8
)

// sites are as nodes know them; the survey's mu guards them.
type sites struct {
	division topology.Sites
	leader   map[string]string // by node
	told     map[string]*nodeapi.Site
}

// Site is the digest of the site that a node is told to be in; empty: it shares nothing, or is not told yet.
func (s *Survey) Site(node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sites.told[node].GetDigest()
}

// tellSites tells nodes who is in their site, if that is not what they were told last.
func (s *Survey) tellSites(connected map[string]*nodeapi.Register, now time.Time) {
	var sharing []string
	for node, r := range connected {
		if r.GetShares() {
			sharing = append(sharing, node)
		}
	}
	s.mu.Lock()
	leader := s.sites.division.Divide(sharing, now, func(node, leader string) (time.Duration, bool) {
		return s.topology.Measured(node, leader, now)
	})
	s.sites.leader = leader
	s.mu.Unlock()
	all := map[string]*nodeapi.Site{}
	for _, node := range sharing {
		if all[leader[node]] == nil {
			all[leader[node]] = &nodeapi.Site{}
		}
		m := all[leader[node]]
		m.Members = append(m.Members, &nodeapi.Neighbour{Node: node, PeerAddress: connected[node].GetPeerAddress()})
	}
	for _, m := range all {
		slices.SortFunc(m.GetMembers(), func(a, b *nodeapi.Neighbour) int { return cmp.Compare(a.GetNode(), b.GetNode()) })
		m.Digest = digest(m.GetMembers())
	}
	for _, node := range sharing {
		m := all[leader[node]]
		s.mu.Lock()
		before := s.sites.told[node]
		s.sites.told[node] = m // before it is sent: one that comes back meanwhile counts as told of nothing
		s.mu.Unlock()
		if before != nil && proto.Equal(before, m) {
			continue
		}
		if s.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Site{Site: m}}) != nil {
			s.mu.Lock()
			delete(s.sites.told, node) // it is told when it is back
			s.mu.Unlock()
		}
	}
}

// digest tells lists of members apart, by their names.
func digest(members []*nodeapi.Neighbour) string {
	names := sha256.New()
	for _, m := range members {
		names.Write([]byte(m.GetNode() + "\n"))
	}
	return hex.EncodeToString(names.Sum(nil)[:digestBytes])
}

// leaders are those that lead a node's site, and the sites of the nodes that it probes and that are near. It is to
// measure its way to them itself, which decides whether it is in their sites.
func (s *Survey) leaders(node string, now time.Time) (some []string) {
	s.mu.Lock()
	probed, leader := s.told[node].GetNeighbours(), s.sites.leader
	s.mu.Unlock()
	led := map[string]int{}
	if l := leader[node]; l != "" && l != node {
		led[l] = len(probed)
	}
	for _, n := range probed {
		if l := leader[n.GetNode()]; l != "" && l != node && s.topology.Near(node, n.GetNode(), now) {
			led[l]++
		}
	}
	some = slices.SortedFunc(maps.Keys(led), func(a, b string) int {
		return cmp.Or(cmp.Compare(led[b], led[a]), cmp.Compare(a, b))
	})
	return some[:min(len(some), leadersMost)]
}
