package ranged

import (
	"fmt"
	"testing"
)

// What is taken is the range that was asked for, as a server writes it.
func FuzzSizeIn(f *testing.F) {
	for _, said := range []string{"bytes 0-9/10", "bytes 0-9/100", "bytes 0-9/*", "bytes 5-9/10", "bytes 0-9/10x", "bytes +0-9/10",
		"bytes 0-9/9223372036854775808", "bytes  0-9/10", "Bytes 0-9/10", ""} {
		f.Add(said, int64(0), int64(10))
	}
	f.Fuzz(func(t *testing.T, said string, at, end int64) {
		if at < 0 || end <= at {
			return
		}
		size, err := SizeIn(said, at, end)
		if err != nil {
			return
		}
		if want := fmt.Sprintf("bytes %d-%d/%d", at, min(end, size)-1, size); said != want || size < 0 {
			t.Errorf("%q is taken for %q", said, want)
		}
	})
}
