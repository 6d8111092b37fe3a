package peers

import "slices"

const (
	// takersMost is how many others take an object from one node at a time: so the nodes are a binary tree, in
	// which each sends what it gets twice, and all have it after about twice the time of one transfer.
	takersMost = 2
	// spareTakers is how many more a node serves that others refer to it: they may be wrong about who is there.
	spareTakers = 2
	// referredMost is how many nodes a referral names: if the first has gone, the one above it is asked.
	referredMost = 2
)

// takers are the nodes that take one version of an object, from this node or from each other, as long as this one
// answers any of them. Its user's lock guards it.
type takers struct {
	// came has the nodes in the order in which they came, each once. It is a binary heap: a node takes the object
	// from one that came before it, so none waits for itself.
	came    []string
	answers int            // under way
	serving map[string]int // those of them with blocks, by node
}

// join has a node take the object: from none, which is this node itself, or else from the first of some. Where a
// referral led to this node it serves it, if it has room.
func (t *takers) join(node string, only bool) (from []string, joined bool) {
	if only && t.serving[node] == 0 && len(t.serving) >= takersMost+spareTakers {
		return nil, false
	}
	if !only {
		at := slices.Index(t.came, node)
		if at < 0 {
			at = len(t.came)
			t.came = append(t.came, node)
		}
		for at >= takersMost && len(from) < referredMost {
			at = at/takersMost - 1
			from = append(from, t.came[at])
		}
	}
	t.answers++
	if len(from) == 0 {
		t.serving[node]++
	}
	return from, true
}

// leave says that an answer is over.
func (t *takers) leave(node string, referred bool) {
	t.answers--
	if referred {
		return
	}
	if t.serving[node]--; t.serving[node] == 0 {
		delete(t.serving, node)
	}
}
