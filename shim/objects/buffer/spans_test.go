package buffer

import (
	"errors"
	"net/http"
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// The model is a set of bytes.
func TestSpansAgreeWithASetOfBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 50
		var s spans
		var there [size + 1]bool
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			from := rapid.IntRange(0, size).Draw(t, "from")
			to := rapid.IntRange(0, size).Draw(t, "to")
			s.add(int64(from), int64(to))
			for i := from; i < to; i++ {
				there[i] = true
			}
			prefix := 0
			for there[prefix] {
				prefix++
			}
			if s.prefix != int64(prefix) {
				t.Fatalf("prefix %d, want %d, apart %v", s.prefix, prefix, s.apart)
			}
			last := s.prefix
			for _, apart := range s.apart {
				if apart.from <= last || apart.to <= apart.from {
					t.Fatalf("prefix %d, apart %v", s.prefix, s.apart)
				}
				last = apart.to
			}
		}
	})
}

// The disk may be full for other reasons than this buffer.
func TestFullDisk(t *testing.T) {
	b, err := Open(t.TempDir()+"/b", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e, err := b.Create("00000000000000000000000000000001", "default/f", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	f := e.parts[0].content.(*file)
	if err := f.file.Close(); err != nil {
		t.Fatal(err)
	}
	if f.file, err = os.OpenFile("/dev/full", os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	_, err = e.WriteAt([]byte("x"), 0)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "BufferFull" || p.Status != http.StatusInsufficientStorage {
		t.Errorf("got %v", err)
	}
}
