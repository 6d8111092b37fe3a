package objects

import "time"

// Rule is what the operator says of a bucket.
type Rule struct {
	// Shared: namespaces share what the node has of it, and what is under way.
	Shared bool
	// Unlisted: the operator does not list it (any more). Its store refuses questions, and nobody gets what is kept of it.
	Unlisted bool
	// Write is how functions may write into it: stores.WriteThrough or stores.WriteBack; empty: they only read.
	Write string
	// Pending: nodes may have acknowledged writes that the store does not have yet. Whoever asks the store looks for these
	// before.
	Pending bool
	// Fresh is how long a store's answer holds: Ask, ByStore or so long.
	Fresh time.Duration
}

const (
	// Ask has the store asked for each request, after that has come.
	Ask time.Duration = 0
	// ByStore has an answer hold as long as the store says.
	ByStore time.Duration = -1
)

// holds is how long an answer holds, if said is what the store says. Below 0, the object is not kept.
func (r Rule) holds(said time.Duration) time.Duration {
	switch r.Fresh {
	case ByStore:
		return said
	case Ask:
		return min(said, 0)
	}
	return r.Fresh
}
