// Package byterange reads ranges of bytes as HTTP asks for them.
package byterange

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Range is a single range of a Range header (RFC 9110, section 14.1.2), in bytes: from
// first to last, or to the end if last is below 0. Of a suffix, first is its length.
type Range struct {
	first, last int64
	suffix      bool
}

// ErrUnsatisfiable is that of a range beyond an object.
var ErrUnsatisfiable = errors.New("the range has no byte of the input")

// Parse reads a Range header. ok is false for one that is to be ignored (section
// 14.2): in another unit, malformed, or of several ranges.
func Parse(header string) (r Range, ok bool) {
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(unit, "bytes") {
		return r, false
	}
	first, last, ok := strings.Cut(strings.Trim(set, " \t"), "-")
	if !ok {
		return r, false
	}
	if first == "" {
		n, ok := position(last)
		return Range{first: n, suffix: true}, ok
	}
	if r.first, ok = position(first); !ok {
		return r, false
	}
	if last == "" {
		r.last = -1
		return r, true
	}
	if r.last, ok = position(last); !ok || r.last < r.first {
		return r, false
	}
	return r, true
}

// position reads 1*DIGIT; numbers too large for any input are as good as the largest.
func position(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, _ := strconv.ParseInt(s, 10, 64) // of a number that is too large it is the largest
	return n, true
}

// Start is the first byte, if that does not depend on the size.
func (r Range) Start() (at int64, known bool) { return r.first, !r.suffix }

// Closed returns the first and the last byte, if neither depends on the size.
func (r Range) Closed() (first, last int64, closed bool) {
	return r.first, r.last, !r.suffix && r.last >= 0
}

// Of returns the range's bytes of an input of that size.
func (r Range) Of(size int64) (first, length int64, err error) {
	switch {
	case r.suffix:
		length = min(r.first, size)
		first = size - length
	case r.last < 0:
		first, length = r.first, size-r.first
	default:
		first = r.first
		length = min(r.last, size-1) - first + 1
	}
	if length <= 0 {
		return 0, 0, ErrUnsatisfiable
	}
	return first, length, nil
}

// ContentRange is the header Content-Range (section 14.4); a size below 0 is not known.
func ContentRange(first, length, size int64) string {
	complete := "*"
	if size >= 0 {
		complete = strconv.FormatInt(size, 10)
	}
	return fmt.Sprintf("bytes %d-%d/%s", first, first+length-1, complete)
}
