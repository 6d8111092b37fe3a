package buffer_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// An entry of unknown size takes room as it is written, and knows its size in the end.
func TestGrowth(t *testing.T) {
	dir := t.TempDir() + "/b"
	b := open(t, dir, 10<<20)
	e := create(t, b, id1, buffer.Unknown)
	defer e.Release()
	if _, known := e.Size(); known || b.Used() != 0 {
		t.Errorf("before the first byte its size is known (%v) or room is taken: %d", known, b.Used())
	}
	r := e.NewReader(t.Context())
	defer r.Close()
	write(t, e, "abc", 0)
	if got := next(t, r); got != "abc" {
		t.Errorf("a reader gets %q", got)
	}
	write(t, e, "f", 3<<20) // beyond what is reserved, and with a gap
	if _, known := e.Size(); known || b.Used() <= 3<<20 {
		t.Errorf("its size is known (%v) while it grows, or there is no room for what is written: %d", known, b.Used())
	}
	if err := e.Complete(); err == nil {
		t.Error("it is complete with a gap")
	}
	write(t, e, strings.Repeat("e", 3<<20-3), 3)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	const size = 3<<20 + 1
	if n, known := e.Size(); n != size || !known || b.Used() != size {
		t.Errorf("it has %d bytes (%v), and %d are used, want %d", n, known, b.Used(), size)
	}
	if info, err := os.Stat(dir + "/" + id1); err != nil || info.Size() != size {
		t.Errorf("the file has %v, %v", info, err)
	}
	if _, err := e.WriteAt([]byte("x"), size); err == nil {
		t.Error("it grows after its end")
	}
}

// One that gets no more room keeps what it has: its readers go on, and once others have
// gone it grows on.
func TestGrowthKeepsToTheLimit(t *testing.T) {
	b := open(t, t.TempDir()+"/b", 10)
	first, second := create(t, b, id1, 4), create(t, b, id2, buffer.Unknown)
	write(t, second, "abcdef", 0)
	for _, at := range []int64{6, 1 << 40, math.MaxInt64 - 1} {
		if _, err := second.WriteAt([]byte("g"), at); !buffer.IsFull(err) {
			t.Errorf("a byte at %d gives %v", at, err)
		}
	}
	if _, err := second.WriteAt([]byte("gh"), math.MaxInt64-1); err == nil || buffer.IsFull(err) {
		t.Errorf("bytes beyond all sizes give %v", err)
	}
	first.Release()
	write(t, second, "ghij", 6)
	if err := second.Complete(); err != nil {
		t.Fatal(err)
	}
	check(t, []byte("abcdefghij"), second.NewReader(t.Context()))
	second.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes are used", b.Used())
	}
}

// However it ends, all its room comes back.
func TestGrowthThatEndsEarly(t *testing.T) {
	b := open(t, t.TempDir()+"/b", 10<<20)
	e := create(t, b, id1, buffer.Unknown)
	write(t, e, "abc", 0)
	lost := errors.New("lost")
	e.Fail(lost)
	if _, err := e.WriteAt([]byte("d"), 3); !errors.Is(err, lost) {
		t.Errorf("it grows after it failed: %v", err)
	}
	if _, known := e.Size(); known {
		t.Error("its size is known")
	}
	e.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes are used", b.Used())
	}
	empty := create(t, b, id1, buffer.Unknown)
	if err := empty.Complete(); err != nil {
		t.Fatal(err)
	}
	check(t, nil, empty.NewReader(t.Context()))
	empty.Release()
}
