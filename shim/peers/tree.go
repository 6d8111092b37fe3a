package peers

import (
	"cmp"
	"math"
	"slices"
)

const (
	// takersMost is how many others take an object from one node at a time: so the nodes are a binary tree, in
	// which each sends what it gets twice, and all have it after about twice the time of one transfer.
	takersMost = 2
	// referredMost is how many nodes a referral names: if the first has gone, nobody need be asked again.
	referredMost = 3
	// whole is the number of blocks of a node that has all of them.
	whole = math.MaxInt64
)

// tree is who takes one version of an object, and from whom, as the node knows that the others ask for it. Its
// user's lock guards it.
type tree struct {
	direct int      // how many take it from the node itself
	takers []*taker // in the order in which they came
}

// taker is a node that takes the object, or has taken it.
type taker struct {
	node   string
	from   *taker // nil: the node itself
	under  int    // how many take it from this one
	blocks int64  // how many it has, as far as is known
}

// join finds out from whom a node is to take the object: from none, which is the node itself, or from one of some,
// of which the first is expected to serve it.
func (t *tree) join(node string) (joined *taker, from []string) {
	t.takers = slices.DeleteFunc(t.takers, func(other *taker) bool { // it has lost what it had
		return other.node == node && other.blocks == whole && other.under == 0
	})
	joined = &taker{node: node}
	parents := t.parents(node)
	t.takers = append(t.takers, joined)
	if t.direct < takersMost || len(parents) == 0 {
		t.direct++
		return joined, nil
	}
	joined.from = parents[0]
	joined.from.under++
	for _, p := range parents[:min(len(parents), referredMost)] {
		from = append(from, p.node)
	}
	return joined, from
}

// parents are those that a node may take the object from: first those with room, of these those that have most of
// it, and then those that came first.
func (t *tree) parents(node string) []*taker {
	var all []*taker
	for _, p := range t.takers {
		if !p.takesFrom(node) && !slices.ContainsFunc(all, func(other *taker) bool { return other.node == p.node }) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b *taker) int {
		return cmp.Or(cmp.Compare(a.under/takersMost, b.under/takersMost), cmp.Compare(b.blocks, a.blocks))
	})
	return all
}

// takesFrom tells whether the taker is a node, or has its blocks by way of that: the two would wait for each other.
func (t *taker) takesFrom(node string) bool {
	for ; t != nil; t = t.from {
		if t.node == node {
			return true
		}
	}
	return false
}

// leave says that a taker takes no more. One that has all is there for others.
func (t *tree) leave(gone *taker, complete bool) {
	if gone.from != nil {
		gone.from.under--
	} else {
		t.direct--
	}
	gone.from = nil
	if gone.blocks = whole; !complete {
		t.takers = slices.DeleteFunc(t.takers, func(other *taker) bool { return other == gone })
	}
}

// idle tells whether nobody takes anything that the node knows of.
func (t *tree) idle() bool {
	return t.direct == 0 && !slices.ContainsFunc(t.takers, func(one *taker) bool { return one.blocks != whole })
}
