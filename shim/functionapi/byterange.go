package functionapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// byteRange is a single range of a Range header (RFC 9110, section 14.1.2), in bytes: from
// first to last, or to the end if last is below 0. Of a suffix, first is its length.
type byteRange struct {
	first, last int64
	suffix      bool
}

var errUnsatisfiable = errors.New("the range has no byte of the input")

// parseRange reads a Range header. ok is false for one that is to be ignored (section
// 14.2): in another unit, malformed, or of several ranges.
func parseRange(header string) (r byteRange, ok bool) {
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
		return byteRange{first: n, suffix: true}, ok
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

// closed tells whether the range has a last byte that does not depend on the size.
func (r byteRange) closed() bool { return !r.suffix && r.last >= 0 }

// of returns the range's bytes of an input of that size.
func (r byteRange) of(size int64) (first, length int64, err error) {
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
		return 0, 0, errUnsatisfiable
	}
	return first, length, nil
}

// contentRange is the header Content-Range (section 14.4); a size below 0 is not known.
func contentRange(first, length, size int64) string {
	complete := "*"
	if size >= 0 {
		complete = strconv.FormatInt(size, 10)
	}
	return fmt.Sprintf("bytes %d-%d/%s", first, first+length-1, complete)
}
