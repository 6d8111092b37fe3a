package peers

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Many that come at once are a binary tree: none serves more than two, and the way from the owner is short.
func TestManyAtOnceAreATree(t *testing.T) {
	var tr tree
	depth := map[string]int{}
	under := map[string]int{}
	const n = 50
	for i := range n {
		node := fmt.Sprint("n", i)
		_, from := tr.join(node)
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

// However they come and go: a node is referred to others that are there, never to itself or in a circle, and no
// more than two are expected of any as long as others have room.
func TestReferralsLeadSomewhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr tree
		var under []*taker
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(under) > 0 && rapid.Bool().Draw(t, "leaves") {
				i := rapid.IntRange(0, len(under)-1).Draw(t, "who")
				tr.leave(under[i], rapid.Bool().Draw(t, "whole"))
				under = slices.Delete(under, i, i+1)
				continue
			}
			node := rapid.StringMatching(`[a-j]`).Draw(t, "node")
			known := slices.Clone(tr.takers)
			joined, from := tr.join(node)
			under = append(under, joined)
			if len(from) > referredMost || slices.Contains(from, node) {
				t.Fatalf("%s is referred to %v", node, from)
			}
			for _, name := range from {
				if !slices.ContainsFunc(known, func(k *taker) bool { return k.node == name }) {
					t.Fatalf("%s is referred to %s, which has nothing", node, name)
				}
			}
			for p := joined.from; p != nil; p = p.from {
				if p.node == node {
					t.Fatalf("%s would wait for itself", node)
				}
			}
		}
		if !tr.idle() != (len(under) > 0) {
			t.Fatalf("idle %v with %d under way", tr.idle(), len(under))
		}
		for _, one := range under {
			tr.leave(one, false)
		}
		if !tr.idle() || tr.direct != 0 {
			t.Fatalf("%d are left", tr.direct)
		}
		for _, one := range tr.takers {
			if one.under != 0 {
				t.Fatalf("%s serves %d", one.node, one.under)
			}
		}
	})
}

// A node that has most is preferred, as long as it has room.
func TestWhoHasMostServes(t *testing.T) {
	var tr tree
	a, _ := tr.join("a")
	b, _ := tr.join("b")
	a.blocks, b.blocks = 1, 3
	var first []string
	for _, node := range []string{"c", "d", "e", "f"} {
		_, from := tr.join(node)
		first = append(first, from[0])
	}
	if want := []string{"b", "b", "a", "a"}; !slices.Equal(first, want) {
		t.Errorf("asked %v, want %v", first, want)
	}
}
