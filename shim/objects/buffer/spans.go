package buffer

import (
	"cmp"
	"slices"
)

// spans knows which bytes of a file are there. Its zero value has none.
type spans struct {
	prefix int64 // bytes from the start without a gap
	// apart are the spans beyond the prefix, in order, none touching another. There are
	// about as many as writers.
	apart []span
}

type span struct{ from, to int64 }

// add notes that the bytes from up to to are there.
func (s *spans) add(from, to int64) {
	if from >= to {
		return
	}
	// All spans that touch the new one become one with it.
	first, _ := slices.BinarySearchFunc(s.apart, from, func(e span, at int64) int { return cmp.Compare(e.to, at) })
	last := first
	for last < len(s.apart) && s.apart[last].from <= to {
		from, to = min(from, s.apart[last].from), max(to, s.apart[last].to)
		last++
	}
	s.apart = slices.Replace(s.apart, first, last, span{from, to})
	if s.apart[0].from <= s.prefix {
		s.prefix = max(s.prefix, s.apart[0].to)
		s.apart = slices.Delete(s.apart, 0, 1)
	}
}
