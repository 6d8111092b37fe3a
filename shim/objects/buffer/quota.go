package buffer

import (
	"fmt"
	"math"
)

// Quota is how much of the buffer one function may have, so that the others find room. 0 is
// for no bound.
type Quota struct {
	// Bytes are those of all its entries in all tiers.
	Bytes int64
	// Entries are those at a time.
	Entries int
	// Fair has namespaces share each tier, too (shim/fair).
	Fair bool
}

// usage is what a function has of the buffer.
type usage struct {
	bytes   int64
	entries int // with what is being removed, and is not while the function has it open
}

func (q Quota) left(u *usage) int64 {
	if q.Bytes <= 0 {
		return math.MaxInt64
	}
	return q.Bytes - u.bytes
}

func quotaDetail(u *usage, need int64) string {
	return fmt.Sprintf("the function has %d bytes in the node's buffer, and may not have %d more", u.bytes, need)
}
