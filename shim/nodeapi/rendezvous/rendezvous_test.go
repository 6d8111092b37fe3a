package rendezvous_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"
)

var nodes = rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,6}`), 1, 20, rapid.ID[string])

// Nodes that know the same members agree, in whatever order they know them.
func TestAllAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, name := nodes.Draw(t, "nodes"), rapid.String().Draw(t, "name")
		other := rapid.Permutation(all).Draw(t, "in another order")
		if a, b := rendezvous.Choose(name, all, 2), rendezvous.Choose(name, other, 2); !slices.Equal(a, b) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

// A node that comes takes names from the others, and moves none between them.
func TestOnlyTheNewNodesNamesMove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, name := nodes.Draw(t, "nodes"), rapid.String().Draw(t, "name")
		before := rendezvous.Choose(name, all, 1)
		if after := rendezvous.Choose(name, append(slices.Clone(all), "NEW"), 1); after[0] != "NEW" && after[0] != before[0] {
			t.Fatalf("from %s to %s", before[0], after[0])
		}
	})
}

func TestNamesAreSpreadEvenly(t *testing.T) {
	got := map[string]int{}
	for i := range 10_000 {
		got[rendezvous.Choose(fmt.Sprint("object ", i), []string{"a", "b", "c", "d"}, 1)[0]]++
	}
	for node, n := range got {
		if n < 2300 || n > 2700 {
			t.Errorf("%s has %d of 10000", node, n)
		}
	}
}
