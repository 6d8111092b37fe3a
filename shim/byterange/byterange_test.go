package byterange_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/byterange"
)

func FuzzParse(f *testing.F) {
	for _, s := range []string{"bytes=0-1", "bytes=-5", "bytes=5-", "bytes=-", "bytes=1-0", "bytes=99999999999999999999-", "x=0-1", "bytes=0-1,2-3", "", "bytes=--1"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		r, ok := byterange.Parse(header)
		if !ok {
			return
		}
		first, length, err := r.Of(size)
		if err == nil && (first < 0 || length < 1 || length > size || first > size-length) {
			t.Errorf("%q of %d bytes is %d bytes from %d", header, size, length, first)
		}
	})
}
