// Package fair shares what a node has of something between namespaces, so that none of them keeps the
// others out, however many functions it has and whatever these flood the node with.
package fair

import (
	"fmt"
	"strings"
)

// spare is which part of the room that others leave to a namespace it has to leave free itself: with 5, a
// namespace alone gets four fifths, of two that want all each gets four ninths, and one that comes late
// finds room at once, whatever the others keep. These are the dynamic thresholds of shared buffers in
// switches (Choudhury and Hahne, 1998).
const spare = 5

// Namespace is that of a function, which is named namespace/name.
func Namespace(function string) string {
	namespace, _, _ := strings.Cut(function, "/")
	return namespace
}

// Most is how much of limit one namespace gets when no other has any.
func Most(limit int64) int64 { return NewShare(limit).Left("") }

// Share is a number of places, or of bytes, and who has how many of them. Its user's lock guards it.
// Functions stand for their namespaces.
type Share struct {
	limit, used int64
	by          map[string]int64 // namespaces that have some
}

// NewShare returns limit places, which are all free.
func NewShare(limit int64) *Share { return &Share{limit: limit, by: map[string]int64{}} }

// Left is how many more a function's namespace may take now.
func (s *Share) Left(function string) int64 {
	free := s.limit - s.used
	room := free + s.by[Namespace(function)]
	return max(0, free-(room+spare-1)/spare)
}

// Has is how many a function's namespace has.
func (s *Share) Has(function string) int64 { return s.by[Namespace(function)] }

// Full says why a function's namespace may take no more; what names what it has.
func (s *Share) Full(function, what string) string {
	return fmt.Sprintf("%d %s of namespace %s already, and may hold no more of them: of %d all have %d, and the rest is for others",
		s.Has(function), what, Namespace(function), s.limit, s.used)
}

// Used is how many all have.
func (s *Share) Used() int64 { return s.used }

// Take takes n for a function's namespace, or nothing if it may not have as many.
func (s *Share) Take(function string, n int64) bool {
	if n > s.Left(function) {
		return false
	}
	s.Add(function, n)
	return true
}

// Add takes n for a function's namespace, whatever that may have, or gives them back if n is below 0.
func (s *Share) Add(function string, n int64) {
	namespace := Namespace(function)
	s.used += n
	if s.by[namespace] += n; s.by[namespace] == 0 {
		delete(s.by, namespace)
	}
}

// Return gives back n of what was taken for a function's namespace.
func (s *Share) Return(function string, n int64) { s.Add(function, -n) }
