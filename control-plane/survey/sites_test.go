package survey_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// measure has each node say how far the others are that it was told to probe; places are in milliseconds.
func (r *rig) measure(places map[string]float64) {
	for node := range places {
		m := &nodeapi.RoundTrips{}
		for other := range places {
			if other != node {
				m.Measured = append(m.Measured, &nodeapi.RoundTrip{Node: other, Age: durationpb.New(0),
					RttUs: 50 + int64(1000*math.Abs(places[node]-places[other]))})
			}
		}
		r.RoundTrips(node, m)
	}
}

func (r *rig) share(nodes map[string]float64) {
	for node := range nodes {
		r.mu.Lock()
		r.of[node] = &nodeapi.Register{PeerAddress: "10.0.0." + node + ":7444", Probes: true, Shares: true}
		r.mu.Unlock()
		r.Came(node, "")
	}
}

// members are those of the site that a node was told last.
func (r *rig) members(node string) (names []string, digest string, often int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.sites[node]
	if len(of) == 0 {
		return nil, "", 0
	}
	last := of[len(of)-1]
	for _, m := range last.GetMembers() {
		names = append(names, m.GetNode())
		if want := "10.0.0." + m.GetNode() + ":7444"; m.GetPeerAddress() != want {
			names = append(names, fmt.Sprintf("%s is not at %s", m.GetNode(), want))
		}
	}
	return names, last.GetDigest(), len(of)
}

// Nodes are told who is in their site once they have measured, all of a site the same, and again when that changes.
// Daemons of a version before are in none.
func TestNodesAreToldTheirSite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.run(t)
		places := map[string]float64{"1": 0, "2": 0.3, "3": 0.6, "7": 40, "8": 40.1}
		r.connect("9", true)
		r.share(places)
		time.Sleep(2 * time.Second)
		r.measure(places)
		synctest.Wait()
		if names, _, _ := r.members("1"); names != nil {
			t.Errorf("told %v at once", names)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		_, east, _ := r.members("1")
		for node, want := range map[string][]string{"1": {"1", "2", "3"}, "3": {"1", "2", "3"}, "8": {"7", "8"}, "9": nil} {
			names, digest, often := r.members(node)
			if !slices.Equal(names, want) || often != min(len(want), 1) || (digest == east) != (len(want) == 3) {
				t.Errorf("%s is told %v, %s, %d times", node, names, digest, often)
			}
			if r.Site(node) != digest {
				t.Errorf("the status of %s has %q", node, r.Site(node))
			}
		}
		r.measure(places)
		time.Sleep(30 * time.Second)
		if _, _, often := r.members("2"); often != 1 {
			t.Errorf("told %d times", often)
		}
		r.disconnect("1")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if names, digest, _ := r.members("2"); !slices.Equal(names, []string{"2", "3"}) || digest == east {
			t.Errorf("then %v, %s", names, digest)
		}
	})
}
