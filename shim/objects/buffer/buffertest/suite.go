// Package buffertest is what every medium of the buffer keeps to.
package buffertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
)

// size is beyond the chunks of a medium that has its bytes in some.
const size = 1<<20 + 1<<19 + 12345

// Run runs the suite over media that open makes, each empty and closed by the suite. left
// tells how many places are in the last one, once the medium is at rest.
func Run(t *testing.T, open func(t *testing.T) buffer.Medium, left func(t *testing.T) int) {
	for name, test := range map[string]func(*testing.T, *buffer.Buffer){
		"any order of writes":     anyOrder,
		"a reader follows":        follows,
		"readers begin anywhere":  anywhere,
		"readers end early":       endEarly,
		"growth":                  growth,
		"sparse":                  sparse,
		"a failed one":            failed,
		"one that nobody writes":  untouched,
		"the same identifier":     again,
		"readers of a closed one": closed,
	} {
		t.Run(name, func(t *testing.T) {
			b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "tier", Limit: 4 * size, Medium: open(t)})
			test(t, b)
			if used := b.Used(); used != 0 {
				t.Errorf("%d bytes are used in the end", used)
			}
			if tier := b.Tiers()[0]; tier.Entries != 0 {
				t.Errorf("%d entries are left", tier.Entries)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if n := left(t); n != 0 {
				t.Errorf("%d places are left", n)
			}
		})
	}
}

const (
	id       = "00000000000000000000000000000001"
	function = "default/f"
)

// content is size bytes of which no two stretches are the same.
func content() []byte {
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return all
}

func create(t *testing.T, b *buffer.Buffer, size int64) *buffer.Entry {
	t.Helper()
	e, err := b.Create(id, function, size)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func write(t *testing.T, e *buffer.Entry, p []byte, at int64) {
	t.Helper()
	if n, err := e.WriteAt(p, at); err != nil || n != len(p) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
	}
}

// want reads the entry from a byte on to its end, which is all.
func want(t *testing.T, e *buffer.Entry, from int64, all []byte) {
	t.Helper()
	r := e.NewReaderFrom(t.Context(), from)
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(got, all) {
		t.Errorf("from %d on are %d bytes, which are not the %d written", from, len(got), len(all))
	}
}

// anyOrder: whatever the order and the size of the writes, readers see the bytes.
func anyOrder(t *testing.T, b *buffer.Buffer) {
	all := content()
	rapid.Check(t, func(rt *rapid.T) {
		total := rapid.IntRange(0, len(all)).Draw(rt, "size")
		cuts := []int{0}
		for cuts[len(cuts)-1] < total {
			at := cuts[len(cuts)-1]
			cuts = append(cuts, at+rapid.IntRange(1+(total-at)/8, total-at).Draw(rt, "piece"))
		}
		order := rapid.Permutation(cuts[:len(cuts)-1]).Draw(rt, "order")
		entrySize := int64(total)
		if rapid.Bool().Draw(rt, "grows") {
			entrySize = buffer.Unknown
		}
		e := create(t, b, entrySize)
		var readers, writers sync.WaitGroup
		readers.Go(func() { want(t, e, 0, all[:total]) })
		for i, at := range order {
			end := total
			for _, cut := range cuts {
				if cut > at {
					end = cut
					break
				}
			}
			if i%2 == 0 {
				writers.Go(func() { write(t, e, all[at:end], int64(at)) })
			} else {
				write(t, e, all[at:end], int64(at))
			}
		}
		writers.Wait()
		if err := e.Complete(); err != nil {
			rt.Fatal(err)
		}
		want(t, e, 0, all[:total])
		readers.Wait()
		e.Release()
	})
}

// follows: what is written can be read at once, and not before.
func follows(t *testing.T, b *buffer.Buffer) {
	e := create(t, b, 6)
	r := e.NewReader(t.Context())
	write(t, e, []byte("ef"), 4)
	write(t, e, []byte("ab"), 0)
	p := make([]byte, 10)
	if n, err := r.Read(p); string(p[:n]) != "ab" || err != nil {
		t.Errorf("read %q, %v", p[:n], err)
	}
	write(t, e, []byte("cd"), 2)
	if got, err := io.ReadAll(io.LimitReader(r, 4)); string(got) != "cdef" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := e.Complete(); err != nil {
		t.Error(err)
	}
	if n, err := r.Read(p); n != 0 || err != io.EOF {
		t.Errorf("the end is %d, %v", n, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	e.Release()
}

// anywhere: a reader may leave out any number of bytes.
func anywhere(t *testing.T, b *buffer.Buffer) {
	all := content()
	e := create(t, b, size)
	write(t, e, all, 0)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 1, 512<<10 - 1, 512 << 10, 512<<10 + 1, size - 1, size, size + 10} {
		want(t, e, from, all[min(from, size):])
	}
	e.Release()
}

// endEarly: a reader that waits, or is in the middle, ends with its context or its Close.
func endEarly(t *testing.T, b *buffer.Buffer) {
	e := create(t, b, size)
	write(t, e, content()[:100], 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancelled, shut := e.NewReader(ctx), e.NewReader(t.Context())
	for _, r := range []io.Reader{cancelled, shut} {
		if _, err := io.ReadFull(r, make([]byte, 50)); err != nil {
			t.Error(err)
		}
	}
	ended := make(chan error)
	go func() { _, err := io.ReadAll(cancelled); ended <- err }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled one ends with %v", err)
	}
	go func() { _, err := io.ReadAll(shut); ended <- err }()
	if err := shut.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the closed one ends with %v", err)
	}
	if err := cancelled.Close(); err != nil {
		t.Error(err)
	}
	e.Release()
}

// growth: an entry of unknown size takes room step by step, and gives back the rest.
func growth(t *testing.T, b *buffer.Buffer) {
	all := content()
	e := create(t, b, buffer.Unknown)
	var reader sync.WaitGroup
	reader.Go(func() { want(t, e, 0, all) })
	for at := 0; at < len(all); at += 32 << 10 {
		write(t, e, all[at:min(at+32<<10, len(all))], int64(at))
		if _, known := e.Size(); known {
			t.Fatal("its size is known before its end")
		}
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if n, known := e.Size(); n != size || !known || b.Used() != size {
		t.Errorf("it has %d bytes (%v), and %d are used", n, known, b.Used())
	}
	reader.Wait()
	e.Release()
}

// sparse: the last byte may come first.
func sparse(t *testing.T, b *buffer.Buffer) {
	all := content()
	e := create(t, b, size)
	write(t, e, all[size-1:], size-1)
	if err := e.Complete(); err == nil {
		t.Error("it is complete with one byte")
	}
	write(t, e, all[:size-1], 0)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	want(t, e, 0, all)
	e.Release()
}

// failed: readers get the reason, and the room comes back.
func failed(t *testing.T, b *buffer.Buffer) {
	e := create(t, b, size)
	write(t, e, content()[:size/2], 0)
	lost := errors.New("lost")
	r := e.NewReader(t.Context())
	e.Fail(lost)
	if _, err := io.ReadAll(r); !errors.Is(err, lost) {
		t.Errorf("a reader gets %v", err)
	}
	e.Release()
	if b.Used() == 0 {
		t.Error("it is gone before its last reader")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// untouched: one without bytes is complete at once, or released.
func untouched(t *testing.T, b *buffer.Buffer) {
	for _, size := range []int64{0, buffer.Unknown} {
		e := create(t, b, size)
		if err := e.Complete(); err != nil {
			t.Error(err)
		}
		want(t, e, 0, nil)
		e.Release()
	}
	for _, n := range []int64{0, buffer.Unknown, size} {
		create(t, b, n).Release()
	}
}

// again: an identifier is free when its entry has gone, and the next one is another.
func again(t *testing.T, b *buffer.Buffer) {
	all := content()
	for _, begin := range []int{0, 1000} {
		e := create(t, b, size-1000)
		if _, err := b.Create(id, function, 1); err == nil {
			t.Error("an identifier names two")
		}
		write(t, e, all[begin:begin+size-1000], 0)
		if err := e.Complete(); err != nil {
			t.Error(err)
		}
		want(t, e, 0, all[begin:begin+size-1000])
		e.Release()
	}
}

// closed: closing the buffer ends what goes on in it.
func closed(t *testing.T, b *buffer.Buffer) {
	e := create(t, b, size)
	write(t, e, content()[:100], 0)
	r := e.NewReader(t.Context())
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(r); err == nil {
		t.Error("a reader goes on")
	}
	if _, err := e.WriteAt([]byte("x"), 100); err == nil {
		t.Error("a writer goes on")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	e.Release()
}
