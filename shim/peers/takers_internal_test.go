package peers

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func noTakers() *takers { return &takers{serving: map[string]int{}} }

// Many that come at once are a binary tree: none serves more than two, and the way from the owner is short.
func TestManyAtOnceAreATree(t *testing.T) {
	tr := noTakers()
	depth, under := map[string]int{}, map[string]int{}
	const n = 50
	for i := range n {
		node := fmt.Sprint("n", i)
		from, _ := tr.join(node, false)
		parent := "owner"
		if len(from) > 0 {
			parent = from[0]
		}
		if under[parent]++; under[parent] > takersMost {
			t.Errorf("%s serves %d", parent, under[parent])
		}
		if depth[node] = depth[parent] + 1; depth[node] > bits.Len(n)-1 {
			t.Errorf("%s is %d away from the owner", node, depth[node])
		}
	}
}

// However they come and go: a node is referred to others that came before it, never to itself or in a circle, and
// the node itself serves no more than a few.
func TestReferralsLeadSomewhere(t *testing.T) {
	type answer struct {
		node     string
		referred bool
	}
	rapid.Check(t, func(t *rapid.T) {
		tr := noTakers()
		var under []answer
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(under) > 0 && rapid.Bool().Draw(t, "leaves") {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "who")
				tr.leave(under[i].node, under[i].referred)
				under = slices.Delete(under, i, i+1)
				continue
			}
			node, only := rapid.StringMatching(`[a-j]`).Draw(t, "node"), rapid.Bool().Draw(t, "only")
			from, joined := tr.join(node, only)
			if joined {
				under = append(under, answer{node, len(from) > 0})
			}
			for _, name := range from {
				if only || slices.Index(tr.came, name) >= slices.Index(tr.came, node) {
					t.Fatalf("%s is referred to %s, which came later", node, name)
				}
			}
			if len(from) > referredMost || len(tr.serving) > 2*takersMost+spareTakers {
				t.Fatalf("%s is referred to %v; %v are served", node, from, tr.serving)
			}
		}
		for _, one := range under {
			tr.leave(one.node, one.referred)
		}
		if tr.answers != 0 || len(tr.serving) != 0 {
			t.Fatalf("%d answers and %v are left", tr.answers, tr.serving)
		}
	})
}

// One node is not both of those that everybody is referred to, nor does it take the places of all.
func TestAttackANodeIsTheWholeTree(t *testing.T) {
	tr := noTakers()
	for range 10 {
		tr.join("evil", false)
		tr.join("evil", true)
	}
	if from, _ := tr.join("honest", false); len(from) > 0 {
		t.Errorf("the second one is referred to %v", from)
	}
	if _, joined := tr.join("another", true); !joined {
		t.Error("there is no room for another one")
	}
}
