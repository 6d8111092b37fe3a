package objects_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func ofSize(n *node, key string, size int) source.Reference {
	ref := source.Reference{Scheme: "s3", Bucket: "inputs", Key: key}
	n.store.Put(ref, "", make([]byte, size))
	return ref
}

func (n *node) of(id, function string, ref source.Reference) *objects.Input {
	r := request(id)
	r.Function, r.Reference = function, ref.String()
	return n.Fetch(context.Background(), r)
}

// ATTACK: a descriptor with O_PATH is no open file to a lease. A function that has one of each input opens them
// again when they are kept: they are evicted, but their room is not free, and other namespaces' inputs find none.
func TestAttackKeptFilesAreOpenedAgain(t *testing.T) {
	n := start(t)
	var fds []int
	for k := range 4 {
		ref := ofSize(n, fmt.Sprint("a", k), bufferLimit/4)
		i := n.of(fmt.Sprint("a", k), "attacker/f", ref)
		if err := i.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		to, dir := links(t)
		if err := i.Link(t.Context(), to, "input"); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(dir+"/input", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
		if err := to.Remove("input"); err != nil {
			t.Fatal(err)
		}
		i.Release()
	}
	if tier := n.buffer.Tiers()[0]; tier.Kept != bufferLimit {
		t.Fatalf("%+v", tier)
	}
	for _, fd := range fds {
		f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	v := n.of("v", "victim/f", ofSize(n, "v", bufferLimit/4))
	defer v.Release()
	if err := v.Wait(t.Context()); err != nil {
		t.Errorf("another namespace's input finds no room: %v; %+v", err, n.buffer.Tiers()[0])
	}
}

// What would be fetched into the next tier is not refused because it is kept in one that has no more for the namespace.
func TestAHitIsNoWorseThanAMiss(t *testing.T) {
	memory, err := buffer.OpenFiles(t.TempDir() + "/m")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := buffer.OpenFiles(t.TempDir() + "/d")
	if err != nil {
		t.Fatal(err)
	}
	n := startOver(t, buffer.New(buffer.Quota{Fair: true}, buffer.Tier{Name: "memory", Limit: 100_000, Medium: memory},
		buffer.Tier{Name: "disk", Limit: bufferLimit, Medium: disk}))
	small, large := ofSize(n, "small", 20_000), ofSize(n, "large", 70_000)
	n.once(t, "default/f", small, make([]byte, 20_000))
	b := n.of("large", "default/f", large)
	defer b.Release()
	if err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := n.of("miss", "default/f", ofSize(n, "other", 20_000))
	defer other.Release()
	if err := other.Wait(t.Context()); err != nil {
		t.Fatalf("a miss: %v", err)
	}
	i := n.of("hit", "default/f", small)
	defer i.Release()
	if err := i.Wait(t.Context()); err != nil {
		t.Errorf("a hit: %v", err)
	}
}

// What is wrong with one input is not what another one hears.
func TestEachInputHasItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		full := n.of("full", "default/g", ofSize(n, "full", bufferLimit))
		if err := full.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		gate := make(chan struct{})
		n.store.Allowed = func(source.Reference) bool { <-gate; return true }
		first := n.of("first", "default/f", object)
		synctest.Wait()
		r := request("small")
		r.Limit = 10
		small := n.Fetch(t.Context(), r)
		synctest.Wait()
		other := n.of("other", "default/f", object)
		synctest.Wait()
		close(gate)
		if got := problem.Of(small.Wait(t.Context())); got.Title != "InputTooLarge" {
			t.Errorf("an input that is too large hears %+v", got)
		}
		if got := problem.Of(other.Wait(t.Context())); got.Title != "BufferFull" {
			t.Errorf("an input without room hears %+v", got)
		}
		for _, i := range []*objects.Input{full, first, small, other} {
			i.Release()
		}
	})
}

// Inputs that need the room of the same kept object at the same time all get it.
func TestInputsEvictAtTheSameTime(t *testing.T) {
	buf, err := buffer.Open(t.TempDir()+"/b", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	n := startOver(t, buf)
	all := ofSize(n, "all", 64<<20)
	const at = 8
	var small [at]source.Reference
	for k := range small {
		small[k] = ofSize(n, fmt.Sprint("s", k), 1<<20)
	}
	refused := 0
	for round := range 20 {
		r := request(fmt.Sprint("all", round))
		r.Reference, r.Limit = all.String(), 64<<20
		i := n.Fetch(t.Context(), r)
		if err := i.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		i.Release()
		var wg sync.WaitGroup
		var inputs [at]*objects.Input
		begin := make(chan struct{})
		for k := range small {
			wg.Go(func() { <-begin; inputs[k] = n.of(fmt.Sprint(round, "-", k), "default/f", small[k]) })
		}
		close(begin)
		wg.Wait()
		for _, i := range inputs {
			if err := i.Wait(t.Context()); err != nil {
				refused++
			}
		}
		for _, i := range inputs {
			i.Release()
		}
	}
	if refused > 0 {
		t.Errorf("%d inputs were refused although there was room", refused)
	}
}

// lean is a medium on a disk that others fill as well: it has room for less than the tier may have.
type lean struct {
	buffer.Medium
	free func() bool
}

func (l lean) Create(id string) (buffer.Content, error) {
	if !l.free() {
		return nil, buffer.Full("the disk of the node's input buffer is full")
	}
	return l.Medium.Create(id)
}

// On a disk that others have filled, what is kept goes for inputs as well.
func TestKeptObjectsGoOnAFullDisk(t *testing.T) {
	files, err := buffer.OpenFiles(t.TempDir() + "/b")
	if err != nil {
		t.Fatal(err)
	}
	var n *node
	var full atomic.Bool
	free := func() bool { return !full.Load() || n.buffer.Tiers()[0].Kept == 0 }
	n = startOver(t, buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: bufferLimit, Medium: lean{files, free}}))
	n.once(t, "default/f", object, content)
	full.Store(true)
	i := n.of("i", "default/f", ofSize(n, "i", 1000))
	defer i.Release()
	if err := i.Wait(t.Context()); err != nil {
		t.Errorf("%v, and %d bytes are kept", err, n.buffer.Tiers()[0].Kept)
	}
}

// late is a source that answers when nobody waits any more.
type late struct{ asked, answer chan struct{} }

func (l late) Fetch(_ context.Context, _ source.Reference, _ string, begin func(source.Object) (io.WriterAt, error)) error {
	close(l.asked)
	<-l.answer
	w, err := begin(source.Object{Size: 1, Version: "1"})
	if err != nil {
		return err
	}
	_, err = w.WriteAt([]byte("1"), 0)
	if err == nil {
		err = context.Canceled // the connection has gone
	}
	return err
}

// A store's answer that comes when the cache closes reaches no input that has ended.
func TestAnAnswerAfterTheEnd(t *testing.T) {
	buf, err := buffer.Open(t.TempDir()+"/b", bufferLimit)
	if err != nil {
		t.Fatal(err)
	}
	l := late{make(chan struct{}), make(chan struct{})}
	c := objects.New(objects.Config{Buffer: buf, Age: time.Hour,
		Sources: func(string, string) (source.Source, error) { return l, nil }})
	i := c.Fetch(t.Context(), request("1"))
	<-l.asked
	short, cancel := context.WithCancel(t.Context())
	cancel()
	_ = c.Close(short)
	_ = i.Wait(t.Context()) // it has ended
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				i.Received()
			}
		}
	})
	close(l.answer)
	done, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := c.Close(done); err != nil {
		t.Errorf("closing: %v", err)
	}
	close(stop)
	wg.Wait()
	i.Release()
	if err := buf.Close(); err != nil {
		t.Error(err)
	}
}

// What the store does not want to be kept is not kept because an answer that it has not changed says nothing of that.
func TestNoStoreStays(t *testing.T) {
	n := start(t)
	n.says(objects.ByStore)
	n.store.Fresh = -1
	g := n.gated()
	first := n.of("1", "default/f", object)
	known(t, first)
	n.store.Fresh = 0 // 304 has no Cache-Control
	second := n.of("2", "default/f", object)
	known(t, second)
	close(g.open)
	succeeds(t, first, content)
	succeeds(t, second, content)
	first.Release()
	second.Release()
	if tier := n.buffer.Tiers()[0]; tier.Kept != 0 {
		t.Errorf("%d bytes are kept of what is not to be stored", tier.Kept)
	}
}

// Whatever happens at the same time, a request gets what was stored before it came, or something newer, whole.
func TestStorm(t *testing.T) {
	memory, err := buffer.OpenFiles(t.TempDir() + "/m")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := buffer.OpenFiles(t.TempDir() + "/d")
	if err != nil {
		t.Fatal(err)
	}
	n := startOver(t, buffer.New(buffer.Quota{Fair: true}, buffer.Tier{Name: "memory", Limit: 200_000, Largest: 60_000, Medium: memory},
		buffer.Tier{Name: "disk", Limit: 600_000, Medium: disk}))
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	go func() {
		for {
			select {
			case <-n.outcomes:
			case <-over:
				return
			}
		}
	}()
	const keys = 6
	var stored [keys]atomic.Uint64
	var puts [keys]sync.Mutex
	put := func(k int) {
		puts[k].Lock()
		defer puts[k].Unlock()
		v := stored[k].Load() + 1
		b := bytes.Repeat(binary.BigEndian.AppendUint64(nil, v), 1000*(k+1))
		n.store.Put(source.Reference{Scheme: "s3", Bucket: []string{"inputs", "shared"}[k%2], Key: fmt.Sprint(k)}, "", b)
		stored[k].Store(v)
	}
	for k := range keys {
		put(k)
	}
	var fulls, changed, oks atomic.Int64
	var ids atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(6 * time.Second)
	for w := range 24 {
		wg.Go(func() {
			dir, path := links(t)
			for time.Now().Before(end) {
				k := rand.IntN(keys)
				if w == 0 {
					put(k)
					time.Sleep(time.Millisecond)
					continue
				}
				ref := source.Reference{Scheme: "s3", Bucket: []string{"inputs", "shared"}[k%2], Key: fmt.Sprint(k)}
				least := stored[k].Load()
				id := fmt.Sprint(ids.Add(1))
				i := n.of(id, fmt.Sprintf("n%d/f", w%3), ref)
				if rand.IntN(6) == 0 {
					i.Release()
					continue
				}
				err := i.Wait(context.Background())
				switch {
				case err == nil:
				case buffer.IsFull(err):
					fulls.Add(1)
					i.Release()
					continue
				case problem.ReasonOf(err) == problem.ReasonInputChanged:
					changed.Add(1)
					i.Release()
					continue
				default:
					t.Errorf("%v", err)
					i.Release()
					continue
				}
				r, err := i.NewReader(context.Background())
				if err != nil {
					t.Error(err)
					i.Release()
					continue
				}
				early := rand.IntN(3) == 0
				if !early {
					if err := i.Link(context.Background(), dir, "x"+id); err != nil && !strings.Contains(err.Error(), "not a file") {
						t.Error(err)
					}
				}
				if early {
					i.Release()
				}
				b, err := io.ReadAll(r)
				_ = r.Close()
				if err != nil || len(b) != 8000*(k+1) {
					t.Errorf("%d bytes, %v", len(b), err)
				} else if v := binary.BigEndian.Uint64(b); v < least || !bytes.Equal(b, bytes.Repeat(b[:8], 1000*(k+1))) {
					t.Errorf("version %d after %d", v, least)
				}
				if !early {
					_ = path
					_ = dir.Remove("x" + id)
					i.Release()
				}
				oks.Add(1)
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(10 * time.Second); n.buffer.Used() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in use by nobody: %+v", n.buffer.Tiers())
		}
	}
	t.Logf("%d ok, %d full, %d changed; %+v", oks.Load(), fulls.Load(), changed.Load(), n.buffer.Tiers())
}

// starved is a store whose connections are not for one namespace for now.
type starved struct {
	source.Source
	namespace string
}

func (s starved) Fetch(ctx context.Context, ref source.Reference, held string, begin func(source.Object) (io.WriterAt, error)) error {
	if fair.Of(ctx) == s.namespace {
		<-ctx.Done()
		return source.Ended(ctx, "edge", ref)
	}
	return s.Source.Fetch(ctx, ref, held, begin)
}

// ATTACK: a namespace that floods a store waits for its connections; another one that asks for the same object of a
// shared bucket does not wait in its place.
func TestAttackAQuestionOfAStarvedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		ref := source.Reference{Scheme: "s3", Bucket: "shared", Key: "k"}
		n.store.Put(ref, "", content)
		starving := starved{n.store, "attacker"}
		c := objects.New(objects.Config{Buffer: n.buffer, Rule: n.rule, Age: age,
			Sources: func(string, string) (source.Source, error) { return starving, nil }})
		ask := func(id, function string) *objects.Input {
			r := request(id)
			r.Function, r.Reference = function, ref.String()
			i := c.Fetch(context.Background(), r)
			synctest.Wait()
			return i
		}
		inputs := []*objects.Input{ask("1", "attacker/f"), ask("2", "attacker/f"), ask("3", "victim/f")}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := inputs[2].Wait(ctx); err != nil {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		t.Logf("the victim waited %v", time.Since(began))
		for _, i := range inputs {
			i.Release()
		}
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// The size of what the node has whole is known at once.
func TestAHitKnowsItsSize(t *testing.T) {
	n := start(t)
	n.says(time.Hour)
	n.store.Unsized = true
	for k := range 200 {
		i := n.of(fmt.Sprint(k), "default/f", object)
		about, err := i.Object(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if k > 0 && about.Size != size {
			t.Errorf("hit %d has %d bytes", k, about.Size)
			i.Release()
			return
		}
		succeeds(t, i, content)
		i.Release()
	}
}
