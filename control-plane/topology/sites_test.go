package topology_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/topology"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// line has nodes at places, in milliseconds.
type line map[string]float64

func (l line) rtt(a, b string) (time.Duration, bool) {
	return time.Duration(math.Abs(l[a]-l[b]) * float64(time.Millisecond)), true
}

func (l line) names() []string { return slices.Collect(maps.Keys(l)) }

// Nodes that are near are one site, whatever order they are known in; those that are far are another one.
func TestNodesThatAreNearAreASite(t *testing.T) {
	var s topology.Sites
	l := line{"a1": 0, "a2": 0.4, "a3": 1, "b1": 30, "b2": 30.2, "c": 80}
	got := s.Divide(l.names(), noon, l.rtt)
	want := map[string]string{"a1": "a1", "a2": "a1", "a3": "a1", "b1": "b1", "b2": "b1", "c": "c"}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// Nodes are alone until something is measured, and come together then.
func TestNothingIsKnownAtFirst(t *testing.T) {
	var s topology.Sites
	l := line{"a": 0, "b": 0.1, "c": 0.2}
	alone := s.Divide(l.names(), noon, func(string, string) (time.Duration, bool) { return 0, false })
	if !maps.Equal(alone, map[string]string{"a": "a", "b": "b", "c": "c"}) {
		t.Errorf("%v", alone)
	}
	if got := s.Divide(l.names(), noon, l.rtt); !maps.Equal(got, map[string]string{"a": "a", "b": "a", "c": "a"}) {
		t.Errorf("%v", got)
	}
}

// However nodes are placed, come, go and are measured: each is in one site, near the one that leads it, and no site is too
// large. What is together stays together while the measurements of it waver, also when the one that leads it has gone.
func TestSitesAreNearAndStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s topology.Sites
		l := line{}
		for i := range rapid.IntRange(1, 30).Draw(t, "nodes") {
			site := rapid.IntRange(0, 3).Draw(t, "site")
			l[fmt.Sprintf("n%02d", rapid.IntRange(0, 99).Draw(t, "name")+100*i)] = 50*float64(site) + rapid.Float64Range(0, 0.9).Draw(t, "at")
		}
		site := func(node string) int { return int(l[node] / 50) }
		for range 5 {
			jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
			got := s.Divide(l.names(), noon, func(a, b string) (time.Duration, bool) {
				d, _ := l.rtt(a, b)
				return d + time.Duration(jitter*float64(time.Millisecond)), true
			})
			led := map[int]string{}
			for node, leader := range got {
				if got[leader] != leader || site(leader) != site(node) {
					t.Fatalf("%s is led by %s, of another site", node, leader)
				}
				if other := led[site(node)]; other != "" && other != leader {
					t.Fatalf("%s and %s lead one site", other, leader)
				}
				led[site(node)] = leader
			}
			if gone := rapid.SampledFrom(slices.Sorted(maps.Keys(l))).Draw(t, "gone"); len(l) > 1 {
				delete(l, gone)
			}
		}
	})
}

func TestSitesHaveALimit(t *testing.T) {
	var s topology.Sites
	l := line{}
	for i := range 600 {
		l[fmt.Sprintf("n%03d", i)] = 0
	}
	for range 2 {
		size := map[string]int{}
		for _, leader := range s.Divide(l.names(), noon, l.rtt) {
			size[leader]++
		}
		if !maps.Equal(size, map[string]int{"n000": 256, "n256": 256, "n512": 88}) {
			t.Errorf("%v", size)
		}
	}
}

// Links that are full for some minutes delay probes too, and divide no site. A node that has moved leaves.
func TestFullLinksDivideNoSite(t *testing.T) {
	var s topology.Sites
	l := line{"a": 0, "b": 0.4, "c": 1}
	s.Divide(l.names(), noon, l.rtt)
	full := line{"a": 0, "b": 20, "c": 25}
	for minute := range 9 {
		if got := s.Divide(l.names(), noon.Add(time.Duration(minute)*time.Minute), full.rtt); got["b"] != "a" || got["c"] != "a" {
			t.Fatalf("in minute %d: %v", minute, got)
		}
	}
	s.Divide(l.names(), noon.Add(9*time.Minute), line{"a": 0, "b": 0.4, "c": 25}.rtt)
	got := s.Divide(l.names(), noon.Add(11*time.Minute), full.rtt)
	if got["b"] != "a" || got["c"] != "c" {
		t.Errorf("only one has been far for ten minutes: %v", got)
	}
}

// The attacker is a node that says that it is next to all others. It gets into a site, and brings no two together.
func TestAttackANodeIsEverywhere(t *testing.T) {
	var s topology.Sites
	l := line{"a1": 0, "a2": 0.4, "b1": 30, "b2": 30.2, "aa-evil": 15}
	got := s.Divide(l.names(), noon, func(node, leader string) (time.Duration, bool) {
		if node == "aa-evil" {
			return time.Microsecond, true // its own word
		}
		return l.rtt(node, leader) // theirs
	})
	if got["a2"] == got["b2"] || got["a1"] != got["a2"] || got["b1"] != got["b2"] {
		t.Errorf("%v", got)
	}
}

// When the leader of a site is drained the others stay together, though most have not measured their way to the next
// one: a node measures a few dozen others.
func TestTheLeaderIsDrained(t *testing.T) {
	var s topology.Sites
	var nodes []string
	at := map[string]int{}
	for i := range 100 {
		n := fmt.Sprintf("n%03d", i)
		at[n] = i
		nodes = append(nodes, n)
	}
	rtt := func(node, leader string) (time.Duration, bool) {
		d := (at[leader] - at[node] + 100) % 100
		return time.Millisecond / 4, leader == "n000" || d <= 32
	}
	count := func(of map[string]string) int {
		set := map[string]bool{}
		for _, l := range of {
			set[l] = true
		}
		return len(set)
	}
	if n := count(s.Divide(nodes, noon, rtt)); n != 1 {
		t.Fatalf("%d sites at first", n)
	}
	if n := count(s.Divide(nodes[1:], noon, rtt)); n != 1 {
		t.Errorf("%d sites once the leader has gone", n)
	}
}
