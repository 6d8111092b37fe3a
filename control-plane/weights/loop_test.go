package weights_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/weights"
)

var testbedNodes = []string{"edge", "cloud-1", "cloud-2"}

// measured is the testbed after five seconds of so many requests per second.
func measured(edge, cloud float64) weights.Measured {
	return weights.Measured{Sources: testbedNodes, Nodes: testbedNodes, Function: testbed(edge, cloud), Passed: 5 * time.Second}
}

// Ten minutes of steady load, counted each five seconds as random arrivals are: nothing is
// replaced once it is known.
func TestLoopHoldsSteadyLoad(t *testing.T) {
	for _, edge := range []float64{50, 300, 450} {
		r := rand.New(rand.NewPCG(1, uint64(edge)))
		l := weights.NewLoop(weights.ByLatency)
		l.Decide(measured(edge, 300))
		replaced := 0
		for range 120 {
			m := measured(edge, 300)
			for i, d := range m.Function.Demand {
				m.Function.Demand[i] = max(0, d+r.NormFloat64()*math.Sqrt(d/5))
			}
			for _, c := range l.Decide(m) {
				if c == weights.Replaced {
					replaced++
				}
			}
		}
		if replaced > 0 {
			t.Errorf("%d rows are replaced at %v requests/s", replaced, edge)
		}
	}
}

// What lasts gets through, within the time that is averaged over.
func TestLoopFollowsLoadThatLasts(t *testing.T) {
	l := weights.NewLoop(weights.ByLatency)
	l.Decide(measured(250, 300))
	if far := 1 - l.Shares(0)[0]; far != 0 {
		t.Fatalf("%v go far while there is room", far)
	}
	for range 12 {
		l.Decide(measured(1000, 300))
	}
	if far := 1 - l.Shares(0)[0]; far < 0.4 {
		t.Errorf("after a minute of twice what the edge can do %v go to the cloud", far)
	}
	if d := l.Demand(0); d < 850 || d > 1000 {
		t.Errorf("the demand is taken for %v", d)
	}
}

// Sources come and go without others' rows being touched; with the nodes all is new.
func TestLoopFollowsSourcesAndNodes(t *testing.T) {
	l := weights.NewLoop(weights.ByLatency)
	want := func(what string, m weights.Measured, want ...weights.Change) {
		t.Helper()
		if got := l.Decide(m); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	m := measured(300, 300)
	all := []weights.Change{weights.Replaced, weights.Replaced, weights.Replaced}
	want("the first weights", m, all...)
	edge := slices.Clone(l.Shares(0))
	one := weights.Measured{Sources: []string{"edge"}, Nodes: testbedNodes, Function: testbed(300, 300), Passed: m.Passed}
	if l.Decide(one); !slices.Equal(l.Shares(0), edge) {
		t.Errorf("the edge had %v, and %v when it is alone", edge, l.Shares(0))
	}
	if got := l.Decide(m); got[0] == weights.Replaced || got[1] != weights.Replaced || got[2] != weights.Replaced {
		t.Errorf("others come back: %v", got)
	}
	turned := weights.Measured{Sources: m.Sources, Nodes: []string{"cloud-2", "edge", "cloud-1"}, Function: m.Function, Passed: m.Passed}
	nodes, rtt := m.Function.Nodes, m.Function.RTT
	turned.Function.Nodes = []weights.Node{nodes[2], nodes[0], nodes[1]}
	turned.Function.RTT = func(i, j int) float64 { return rtt(i, []int{2, 0, 1}[j]) }
	want("the same in another order", turned, weights.Held, weights.Held, weights.Held)
	if got := l.Shares(0); got[1] != edge[0] {
		t.Errorf("shares are %v in another order", got)
	}
	fewer := weights.Measured{Sources: m.Sources, Nodes: testbedNodes[:2], Function: m.Function, Passed: m.Passed}
	fewer.Function.Nodes = nodes[:2]
	want("a node is gone", fewer, all...)
	want("and back", m, all...)
}

// A gateway hears of what it is to expect when that is another, though its shares stay.
func TestLoopTellsWhatToExpect(t *testing.T) {
	l := weights.NewLoop(weights.ByLatency)
	l.Decide(measured(100, 300))
	e := l.Expect(0)
	if e[0].Service != 4*time.Millisecond || e[0].Workers != 2 || e[1].RTT != 50*time.Millisecond {
		t.Errorf("it expects %+v", e)
	}
	// Each cloud node has about the other's 300 requests/s and its own, 4 ms each.
	if others := l.Expect(1)[1].Others + l.Expect(2)[1].Others; others < 0.5 || others > 4 {
		t.Errorf("others have %v in flight", others)
	}
	slower := measured(100, 300)
	slower.Function.Nodes[0].Service = 6 * ms
	if got := l.Decide(slower); got[0] != weights.Expectations || got[1] != weights.Held {
		t.Errorf("a slower edge is told as %v", got)
	}
	if got := l.Expect(0)[0].Service; got != 6*time.Millisecond {
		t.Errorf("it expects %v", got)
	}
	silent := measured(100, 300)
	silent.Function.Nodes[0] = weights.Node{Service: 6 * ms, Workers: 2, Age: time.Minute}
	l.Decide(silent)
	if got := l.Expect(0)[0].Workers; got != 2 {
		t.Errorf("a silent node has %v workers left", got)
	}
}

// A node that fails at once has room whatever comes, so those hear of it, too, that send it
// nothing: they would where they have no room themselves.
func TestLoopTellsAllOfANodeThatFails(t *testing.T) {
	l := weights.NewLoop(weights.ByLatency)
	l.Decide(measured(100, 300))
	failing := measured(100, 300)
	failing.Function.Nodes[2].Success = 0.01
	l.Decide(failing)
	for i := range 3 {
		if e := l.Expect(i)[2]; e.Service < 300*time.Millisecond || e.Success != 0.01 {
			t.Errorf("source %d expects %+v of it", i, e)
		}
		if share := l.Shares(i)[2]; share > 0.01 {
			t.Errorf("source %d sends it %v", i, share)
		}
	}
	l.Decide(measured(100, 300))
	for i := range 3 {
		if e := l.Expect(i)[2]; e.Service != 4*time.Millisecond {
			t.Errorf("source %d expects %+v of it when it is well", i, e)
		}
	}
}

// The paper's weights do not follow each millisecond either.
func TestInverseIsHeld(t *testing.T) {
	l := weights.NewLoop(weights.ByInverse)
	l.Decide(measured(100, 100))
	m := measured(100, 100)
	m.Function.Nodes[0].Sojourn = 4.1 * ms
	if got := l.Decide(m); got[0] == weights.Replaced {
		t.Errorf("a tenth of a millisecond: %v", got)
	}
	m.Function.Nodes[0].Sojourn = 54 * ms
	if got := l.Decide(m); got[0] != weights.Replaced || math.Abs(l.Shares(0)[0]-1.0/3) > 1e-9 {
		t.Errorf("a near node that is as slow as far ones: %v, %v", got, l.Shares(0))
	}
}

// Whoever comes, goes, and says whatever: rows are shares, and what to expect are numbers.
func TestLoopTakesAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := rapid.SampledFrom([]weights.Policy{weights.ByLatency, weights.ByInverse}).Draw(t, "policy")
		l := weights.NewLoop(policy)
		for range rapid.IntRange(1, 5).Draw(t, "decisions") {
			f := hostile(t)
			m := weights.Measured{Sources: names(t, len(f.Demand)), Nodes: names(t, len(f.Nodes)), Function: f, Passed: time.Duration(rapid.Int64().Draw(t, "passed"))}
			changes := l.Decide(m)
			if len(changes) != len(m.Sources) {
				t.Fatalf("%d of %d rows", len(changes), len(m.Sources))
			}
			for i := range changes {
				check(t, "loop", l.Shares(i), len(m.Nodes))
				for _, e := range l.Expect(i) {
					if !(e.RTT >= 0) || !(e.Service > 0) || !(e.Workers >= 1) || !(e.Others >= 0) || math.IsInf(e.Workers+e.Others, 0) {
						t.Fatalf("it expects %+v", e)
					}
				}
				if !(l.Demand(i) >= 0) {
					t.Fatalf("demand %v", l.Demand(i))
				}
			}
		}
	})
}

// names are n of six, in any order.
func names(t *rapid.T, n int) []string {
	return rapid.Permutation([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "names")[:n]
}
