package quantity_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
)

func TestBytes(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
		err  string
	}{
		{in: "0", want: 0},
		{in: "1", want: 1},
		{in: "512Mi", want: 512 << 20},
		{in: "1.5Gi", want: 3 << 29},
		{in: ".5k", want: 500},
		{in: "1.k", want: 1000},
		{in: "1e3", want: 1000},
		{in: "1E+3", want: 1000},
		{in: "2000e-3", want: 2},
		{in: "1E", want: 1e18},
		{in: "2000m", want: 2},
		{in: "9223372036854775807", want: math.MaxInt64},
		{in: "9223372036854775808", want: math.MaxInt64},
		{in: "8Ei", want: math.MaxInt64},
		{in: "1e19", want: math.MaxInt64},
		{in: "1e99", want: math.MaxInt64},
		{in: "1e100", err: "is not a quantity"},
		{in: "1e999999999999999999999", err: "is not a quantity"},
		{in: "512m", err: "is not a whole number of bytes"},
		{in: "0.3", err: "is not a whole number of bytes"},
		{in: "", err: "is not a quantity"},
		{in: "-1", err: "is not a quantity"},
		{in: "+1", err: "is not a quantity"},
		{in: "1 Mi", err: "is not a quantity"},
		{in: "1MB", err: "is not a quantity"},
		{in: "1mi", err: "is not a quantity"},
		{in: "1K", err: "is not a quantity"},
		{in: ".", err: "is not a quantity"},
		{in: "1e", err: "is not a quantity"},
		{in: "0x10", err: "is not a quantity"},
		{in: "1_000", err: "is not a quantity"},
		{in: "100000000000000000000000000000000", err: "is not a quantity"},
	} {
		check(t, tt.in, tt.want, tt.err, quantity.Bytes)
	}
}

func TestMillis(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want int64
		err  string
	}{
		{in: "1", want: 1000},
		{in: "250m", want: 250},
		{in: "0.5", want: 500},
		{in: "1e-3", want: 1},
		{in: "0.0005", err: "is finer than a thousandth"},
		{in: "9223372036854775807", want: math.MaxInt64},
	} {
		check(t, tt.in, tt.want, tt.err, quantity.Millis)
	}
}

func check(t *testing.T, in string, want int64, wantErr string, parse func(string) (int64, error)) {
	t.Helper()
	got, err := parse(in)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if got != want || text != wantErr {
		t.Errorf("%q: got %d, %q; want %d, %q", in, got, text, want, wantErr)
	}
}

func TestFormatIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "n") &^ (1<<rapid.IntRange(0, 62).Draw(t, "zeros") - 1)
		if got, err := quantity.Bytes(quantity.Format(n)); got != n || err != nil {
			t.Fatalf("%d is written %q and read as %d, %v", n, quantity.Format(n), got, err)
		}
	})
}

func FuzzBytes(f *testing.F) {
	for _, s := range []string{"512Mi", "1.5G", "1e18", "0.000000001n", "1e-18"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := quantity.Bytes(s); n < 0 || err != nil && n != 0 {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	})
}
