package buffer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// Whatever the order of the writes and the time at which readers come, every reader
// sees exactly the bytes, and no reader sees an end before the entry is complete.
func TestReadersSeeExactlyWhatWasWritten(t *testing.T) {
	b := open(t, t.TempDir()+"/b", 1<<20)
	rapid.Check(t, func(rt *rapid.T) {
		content := rapid.SliceOfN(rapid.Byte(), 0, 4000).Draw(rt, "content")
		// Cut at random places, then shuffle.
		cuts := []int{0}
		for cuts[len(cuts)-1] < len(content) {
			at := cuts[len(cuts)-1]
			cuts = append(cuts, at+rapid.IntRange(1, len(content)-at).Draw(rt, "piece"))
		}
		order := rapid.Permutation(cuts[:len(cuts)-1]).Draw(rt, "order")
		end := func(at int) int {
			for i, cut := range cuts {
				if cut == at && i+1 < len(cuts) {
					return cuts[i+1]
				}
			}
			return at
		}
		writers := rapid.IntRange(1, 4).Draw(rt, "writers")

		size := int64(len(content))
		if rapid.Bool().Draw(rt, "grows") {
			size = buffer.Unknown
		}
		e, err := b.Create(id1, function, size)
		if err != nil {
			rt.Fatal(err)
		}
		var readers, writing sync.WaitGroup
		read := func() {
			r := e.NewReader(t.Context())
			readers.Go(func() { check(t, content, r) })
		}
		read()
		for w := range writers {
			writing.Go(func() {
				for i := w; i < len(order); i += writers {
					if _, err := e.WriteAt(content[order[i]:end(order[i])], int64(order[i])); err != nil {
						t.Error(err)
					}
				}
			})
		}
		read()
		writing.Wait()
		read()
		if err := e.Complete(); err != nil {
			rt.Fatal(err)
		}
		if n, known := e.Size(); n != int64(len(content)) || !known {
			rt.Errorf("it has %d bytes (%v), want %d", n, known, len(content))
		}
		if b.Used() != int64(len(content)) {
			rt.Errorf("%d bytes are used, want %d", b.Used(), len(content))
		}
		read()
		e.Release()
		readers.Wait()
		if b.Used() != 0 {
			rt.Errorf("%d bytes are used after the last reader", b.Used())
		}
	})
}

// check reads r to its end, and closes it.
func check(t *testing.T, want []byte, r io.ReadCloser) {
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, which are not the %d written", len(got), len(want))
	}
}

// A reader gets the prefix while later bytes are missing, and waits for the gap.
func TestReaderFollowsThePrefix(t *testing.T) {
	e := create(t, open(t, t.TempDir()+"/b", 10), id1, 6)
	defer e.Release()
	r := e.NewReader(t.Context())
	defer r.Close()
	write(t, e, "ef", 4)
	write(t, e, "ab", 0)
	if got := next(t, r); got != "ab" {
		t.Errorf("got %q, want ab", got)
	}
	read := make(chan string)
	go func() { read <- next(t, r) }()
	write(t, e, "cd", 2)
	if got := <-read; got != "cdef" {
		t.Errorf("got %q, want cdef", got)
	}
	go func() { read <- next(t, r) }()
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "EOF" {
		t.Errorf("got %q, want the end", got)
	}
}

func TestCompleteNeedsAllBytes(t *testing.T) {
	e := create(t, open(t, t.TempDir()+"/b", 10), id1, 3)
	defer e.Release()
	write(t, e, "bc", 1)
	if err := e.Complete(); err == nil {
		t.Error("it is complete without its first byte")
	}
	write(t, e, "a", 0)
	for range 2 {
		if err := e.Complete(); err != nil {
			t.Error(err)
		}
	}
	if _, err := e.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a complete entry takes bytes")
	}
	e.Fail(errors.New("too late"))
	check(t, []byte("abc"), e.NewReader(t.Context()))
}

func TestWritesStayInside(t *testing.T) {
	e := create(t, open(t, t.TempDir()+"/b", 10), id1, 3)
	defer e.Release()
	for _, at := range []int64{-1, 2, 3, 1 << 62} {
		if _, err := e.WriteAt([]byte("ab"), at); err == nil {
			t.Errorf("two bytes at %d are taken", at)
		}
	}
}

// However reading ends early, a blocked reader returns with the reason.
func TestBlockedReadersReturn(t *testing.T) {
	lost := errors.New("lost")
	for name, in := range map[string]struct {
		end  func(e *buffer.Entry, r io.Closer, cancel func())
		want error
	}{
		"failed":    {func(e *buffer.Entry, _ io.Closer, _ func()) { e.Fail(lost) }, lost},
		"released":  {func(e *buffer.Entry, _ io.Closer, _ func()) { e.Release() }, fs.ErrClosed},
		"cancelled": {func(_ *buffer.Entry, _ io.Closer, cancel func()) { cancel() }, context.Canceled},
		"closed":    {func(_ *buffer.Entry, r io.Closer, _ func()) { _ = r.Close() }, fs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, t.TempDir()+"/b", 10)
			e := create(t, b, id1, 3)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := e.NewReader(ctx)
			ended := make(chan error)
			go func() { _, err := r.Read(make([]byte, 1)); ended <- err }()
			in.end(e, r, cancel)
			if err := <-ended; !errors.Is(err, in.want) {
				t.Errorf("got %v, want %v", err, in.want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if name != "released" {
				e.Release()
			}
			if b.Used() != 0 {
				t.Errorf("%d bytes are used", b.Used())
			}
		})
	}
}

func TestReaderAfterTheLastRelease(t *testing.T) {
	e := create(t, open(t, t.TempDir()+"/b", 10), id1, 0)
	e.Release()
	r := e.NewReader(t.Context())
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Link(t.Context(), openRoot(t, t.TempDir()), "x"); err == nil {
		t.Error("it is linked")
	}
}

// A link is the complete file under another name, and outlives the entry.
func TestLink(t *testing.T) {
	top := t.TempDir()
	e := create(t, open(t, top+"/b", 10), id1, 3)
	links := openRoot(t, top+"/links")
	write(t, e, "abc", 0)
	if err := e.Link(t.Context(), links, "input"); err == nil || names(t, top+"/links") != "" {
		t.Errorf("an incomplete entry is linked: %v", err)
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", ".hidden", "a/b", "../x", "/x", "a\x00b", "a\n"} {
		if err := e.Link(t.Context(), links, name); err == nil {
			t.Errorf("it is linked as %q", name)
		}
	}
	if err := e.Link(t.Context(), links, "input"); err != nil {
		t.Fatal(err)
	}
	if err := e.Link(t.Context(), links, "input"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second link of that name gives %v", err)
	}
	e.Release()
	content, err := os.ReadFile(top + "/links/input")
	if err != nil || string(content) != "abc" {
		t.Errorf("the link has %q, %v", content, err)
	}
	if info, err := os.Stat(top + "/links/input"); err != nil || info.Mode() != 0o444 {
		t.Errorf("the link has %v, %v", info.Mode(), err)
	}
}

func write(t *testing.T, e *buffer.Entry, s string, at int64) {
	t.Helper()
	if n, err := e.WriteAt([]byte(s), at); err != nil || n != len(s) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(s), err)
	}
}

// next returns what one Read gives: bytes, or the error's text.
func next(t *testing.T, r io.Reader) string {
	p := make([]byte, 100)
	n, err := r.Read(p)
	if err != nil {
		return err.Error()
	}
	return string(p[:n])
}
