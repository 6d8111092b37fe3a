package buffer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/buffer/buffertest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// files opens a medium in a directory of its own.
func files(t *testing.T) (*buffer.Files, string) {
	t.Helper()
	dir := t.TempDir() + "/b"
	f, err := buffer.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f, dir
}

// tiered is a buffer over a small first tier and a larger second one, and their directories.
func tiered(t *testing.T, quota buffer.Quota, small, largest, large int64) (b *buffer.Buffer, first, second string) {
	t.Helper()
	f1, first := files(t)
	f2, second := files(t)
	b = buffer.New(quota, buffer.Tier{Name: "memory", Limit: small, Largest: largest, Medium: f1}, buffer.Tier{Name: "disk", Limit: large, Medium: f2})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, first, second
}

// usage is what the tiers have, as "bytes/entries" each.
func usage(b *buffer.Buffer) string {
	var all []string
	for _, tier := range b.Tiers() {
		all = append(all, fmt.Sprintf("%d/%d", tier.Used, tier.Entries))
	}
	return strings.Join(all, " ")
}

func id(n int) string { return fmt.Sprintf("%032x", n) }

// An entry is in the first tier that has room for it, and that it is not too large for.
func TestTiersInTheirOrder(t *testing.T) {
	b, first, second := tiered(t, buffer.Quota{}, 10, 6, 20)
	for _, step := range []struct {
		size int64
		want string
	}{{6, "6/1 0/0"}, {7, "6/1 7/1"}, {4, "10/2 7/1"}, {1, "10/2 8/2"}, {13, ""}, {12, "10/2 20/3"}, {1, ""}, {0, "10/2 20/3"}} {
		e, err := b.Create(id(int(step.size)), function, step.size)
		if step.want == "" {
			if problem.Of(err).Title != "BufferFull" {
				t.Errorf("one of %d gives %v", step.size, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer e.Release()
		if step.size == 1 { // its identifier comes again
			e.Release()
			e = create(t, b, id(100), 1)
			defer e.Release()
		}
		if got := usage(b); got != step.want {
			t.Errorf("with one of %d more they have %s, want %s", step.size, got, step.want)
		}
	}
	if names(t, first) == "" || names(t, second) == "" {
		t.Errorf("the files are %q and %q", names(t, first), names(t, second))
	}
}

// An entry that grows goes on where there is room; for its readers it is one.
func TestGrowthThroughTiers(t *testing.T) {
	b, _, _ := tiered(t, buffer.Quota{}, 5<<20, 3<<20, 5<<20)
	content := bytes.Repeat([]byte("0123456789abcdef"), 7<<20/16)
	e := create(t, b, id1, buffer.Unknown)
	early := e.NewReader(t.Context())
	const piece = 700_000
	for at := 0; at < len(content); at += piece {
		write(t, e, string(content[at:min(at+piece, len(content))]), int64(at))
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if got, want := usage(b), fmt.Sprintf("%d/1 %d/1", 3<<20, 4<<20); got != want {
		t.Errorf("the tiers have %s, want %s", got, want)
	}
	check(t, content, early)
	check(t, content, e.NewReader(t.Context()))
	// From everywhere near the border.
	for from := int64(3<<20 - 2); from < 3<<20+2; from++ {
		check(t, content[from:], e.NewReaderFrom(t.Context(), from))
	}
	e.Release()
	if got := usage(b); got != "0/0 0/0" {
		t.Errorf("in the end the tiers have %s", got)
	}
}

// Whatever is written in whatever order, and whatever room there is: what could be written
// is read, and all room comes back.
func TestGrowthIsExact(t *testing.T) {
	b, first, second := tiered(t, buffer.Quota{}, 2<<20, 1<<20, 1<<20)
	rapid.Check(t, func(rt *rapid.T) {
		other := create(t, b, id2, rapid.Int64Range(0, 1<<20).Draw(rt, "other"))
		e := create(t, b, id1, buffer.Unknown)
		want := make([]byte, 0, 3<<20)
		for len(want) < 3<<20 {
			n := rapid.IntRange(1, 1<<18).Draw(rt, "piece")
			piece := bytes.Repeat([]byte{byte(len(want)), byte(n)}, n)
			var err error
			if half := len(piece) / 2; rapid.Bool().Draw(rt, "second half first") {
				if _, err = e.WriteAt(piece[half:], int64(len(want)+half)); err == nil {
					_, err = e.WriteAt(piece[:half], int64(len(want)))
				}
			} else {
				_, err = e.WriteAt(piece, int64(len(want)))
			}
			if err != nil {
				if !buffer.IsFull(err) {
					rt.Fatal(err)
				}
				break
			}
			want = append(want, piece...)
		}
		if used := b.Used(); used > 3<<20 {
			rt.Fatalf("%d bytes are used", used)
		}
		if err := e.Complete(); err != nil {
			rt.Fatal(err)
		}
		if size, _ := e.Size(); size != int64(len(want)) {
			rt.Fatalf("it has %d bytes, want %d", size, len(want))
		}
		check(t, want, e.NewReader(t.Context()))
		e.Release()
		other.Release()
		if got := usage(b); got != "0/0 0/0" || names(t, first) != "" || names(t, second) != "" {
			rt.Fatalf("in the end the tiers have %s, and files %q and %q", got, names(t, first), names(t, second))
		}
	})
}

// An entry that would not have room if it were alone is told so: to wait is in vain.
func TestTooSmall(t *testing.T) {
	b, _, _ := tiered(t, buffer.Quota{}, 10, 4, 20)
	_, err := b.Create(id(1), function, 21)
	if p := problem.Of(err); p.Title != "BufferTooSmall" || p.Status != 507 || !buffer.IsFull(err) {
		t.Errorf("more than a tier has gives %v", err)
	}
	grows := create(t, b, id(1), buffer.Unknown)
	write(t, grows, strings.Repeat("x", 4), 0)
	write(t, grows, strings.Repeat("x", 20), 4)
	if _, err := grows.WriteAt([]byte("x"), 24); problem.Of(err).Title != "BufferTooSmall" {
		t.Errorf("more than all tiers have gives %v", err)
	}
	if _, err := b.Create(id(2), function, 20); problem.Of(err).Title != "BufferFull" {
		t.Errorf("as much as one has, but not now, gives %v", err)
	}
	grows.Release()
	create(t, b, id(2), 20).Release()
}

// A namespace, as many functions as it has, leaves others room in each tier.
func TestAttackInputsOfANamespaceLeaveOthersTheBuffer(t *testing.T) {
	b, _, _ := tiered(t, buffer.Quota{Fair: true}, 100, 100, 100)
	n := 0
	fill := func(namespace string, by int64) (err error) {
		for err == nil {
			n++
			_, err = b.Create(fmt.Sprintf("%032x", n), fmt.Sprintf("%s/f%d", namespace, n), by)
		}
		return err
	}
	err := fill("flood", 10)
	if p := problem.Of(err); p.Title != "BufferFull" || !strings.Contains(p.Detail, "of namespace flood") {
		t.Errorf("beyond its share it gets %v", err)
	}
	if got := usage(b); got != "80/8 80/8" {
		t.Errorf("it has %s", got)
	}
	grows := create(t, b, id(1<<20), buffer.Unknown)
	write(t, grows, strings.Repeat("x", 16), 0)
	if got := usage(b); got != "96/9 80/8" {
		t.Errorf("an input of unknown size of another makes it %s", got)
	}
	grows.Release()
	if err := fill("small", 10); problem.Of(err).Title != "BufferFull" {
		t.Errorf("beyond its share another gets %v", err)
	}
	if got := usage(b); got != "90/9 90/9" {
		t.Errorf("with another there are %s", got)
	}
	if _, err := b.Create(id(1<<21), function, 81); problem.Of(err).Title != "BufferTooSmall" {
		t.Errorf("more than a namespace ever gets gives %v", err)
	}
}

// A function that has its share gets no more, and the others get theirs.
func TestQuota(t *testing.T) {
	b, _, _ := tiered(t, buffer.Quota{Bytes: 12, Entries: 3}, 10, 10, 20)
	first := create(t, b, id(1), 8)
	_, err := b.Create(id(2), function, 5)
	if p := problem.Of(err); p.Title != "BufferQuota" || p.Status != 507 || !buffer.IsFull(err) {
		t.Errorf("beyond its bytes it gets %v", err)
	}
	if _, err := b.Create(id(2), function, 13); problem.Of(err).Title != "BufferTooSmall" {
		t.Errorf("what is more than its bytes gives %v", err)
	}
	grows := create(t, b, id(2), buffer.Unknown)
	write(t, grows, "abc", 0)
	write(t, grows, "d", 3)
	if _, err := grows.WriteAt([]byte("e"), 4); problem.Of(err).Title != "BufferQuota" {
		t.Errorf("growing beyond it gives %v", err)
	}
	other, err := b.Create(id(3), "default/other", 6)
	if err != nil {
		t.Errorf("another function gets %v", err)
	}
	third := create(t, b, id(4), 0)
	if _, err := b.Create(id(5), function, 0); problem.Of(err).Title != "BufferQuota" {
		t.Errorf("a fourth entry gives %v", err)
	}
	first.Release()
	write(t, grows, "efgh", 4)
	for _, e := range []*buffer.Entry{grows, other, third} {
		e.Release()
	}
	// Nothing is held against it.
	all := create(t, b, id(1), 10)
	all.Release()
	if got := usage(b); got != "0/0 0/0" {
		t.Errorf("in the end the tiers have %s", got)
	}
}

// An entry that is in two tiers gets a file by a copy on the disk, once, which goes with it.
func TestLinkOfAnEntryInTwoTiers(t *testing.T) {
	b, _, disk := tiered(t, buffer.Quota{}, 1<<20, 0, 8<<20)
	content := bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)
	e := create(t, b, id1, buffer.Unknown)
	write(t, e, string(content[:1000]), 0)
	write(t, e, string(content[1000:]), 1000)
	write(t, e, "x", int64(len(content)))
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	to := openRoot(t, top)
	for _, name := range []string{"one", "two"} {
		if err := e.Link(t.Context(), to, name); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(top + "/" + name); err != nil || string(got) != string(content)+"x" {
			t.Errorf("%s has %d bytes, %v", name, len(got), err)
		}
	}
	if used := b.Used(); used != 2*(2<<20+1) {
		t.Errorf("%d bytes are used", used)
	}
	if err := errors.Join(to.Remove("one"), to.Remove("two")); err != nil {
		t.Error(err)
	}
	e.Release()
	if got := usage(b); got != "0/0 0/0" || names(t, disk) != "" {
		t.Errorf("in the end the tiers have %s, and %q", got, names(t, disk))
	}
}

// With no room for the copy there is no file, and the entry is as it was.
func TestLinkWithoutRoom(t *testing.T) {
	b, _, _ := tiered(t, buffer.Quota{}, 1<<20, 0, 1<<20+10)
	e := create(t, b, id1, buffer.Unknown)
	defer e.Release()
	write(t, e, "x", 0)
	write(t, e, strings.Repeat("x", 1<<20+9), 1)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := e.Link(t.Context(), openRoot(t, t.TempDir()), "one"); !errors.Is(err, buffer.ErrNoFile) {
		t.Errorf("got %v", err)
	}
	check(t, bytes.Repeat([]byte("x"), 1<<20+10), e.NewReader(t.Context()))
}

// Who waits for another's copy of an entry waits no longer than he may, nor does the other.
func TestLinksWaitNoLongerThanTheyMay(t *testing.T) {
	disk, _ := files(t)
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "redis", Limit: 10, Medium: buffertest.Mute{}}, buffer.Tier{Name: "disk", Limit: 10, Medium: disk})
	defer b.Close()
	e := create(t, b, id1, 1)
	defer e.Release()
	write(t, e, "x", 0)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	dir := openRoot(t, t.TempDir())
	copying, give := context.WithCancel(t.Context())
	first := make(chan error)
	go func() { first <- e.Link(copying, dir, "one") }()
	for b.Tiers()[1].Entries == 0 { // until the copy is begun
		runtime.Gosched()
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Link(late, dir, "two"); !errors.Is(err, context.Canceled) {
		t.Errorf("the second ends with %v", err)
	}
	give()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first ends with %v", err)
	}
	if got := usage(b); got != "1/1 0/0" {
		t.Errorf("the tiers have %s", got)
	}
}

// Closing the buffer in the middle of everything leaves nothing behind.
func TestCloseWhileEverythingGoesOn(t *testing.T) {
	f1, first := files(t)
	f2, second := files(t)
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "memory", Limit: 2 << 20, Medium: f1}, buffer.Tier{Name: "disk", Limit: 20 << 20, Medium: f2})
	began := make(chan struct{})
	ended := make(chan struct{})
	for n := range 4 {
		go func() {
			defer func() { ended <- struct{}{} }()
			e, err := b.Create(id(n), function, buffer.Unknown)
			if err != nil {
				t.Error(err)
				return
			}
			defer e.Release()
			began <- struct{}{}
			for at := int64(0); err == nil; at += 1000 {
				_, err = e.WriteAt(make([]byte, 1000), at)
			}
		}()
	}
	for range 4 {
		<-began
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	for range 4 {
		<-ended
	}
	if got := usage(b); got != "0/0 0/0" || names(t, first)+names(t, second) != "" {
		t.Errorf("left are %s, and files %q and %q", got, names(t, first), names(t, second))
	}
}
