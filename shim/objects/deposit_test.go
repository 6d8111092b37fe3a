package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/record"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

var newer = bytes.Repeat([]byte("abcdefghij"), size/10)

// deposit has the node take a copy of what a function stores, with all of its bytes.
func (n *node) deposit(t *testing.T, function string, b []byte) *objects.Deposit {
	t.Helper()
	r := request("deposit-" + buffer.NewID())
	r.Function = function
	d, err := n.Deposit(t.Context(), r, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	half := len(b) / 2
	for _, part := range []struct{ from, to int }{{half, len(b)}, {0, half}} {
		if _, err := d.WriteAt(b[part.from:part.to], int64(part.from)); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// way is that of an input which is to have these bytes.
func (n *node) way(t *testing.T, function string, want []byte) string {
	t.Helper()
	r := request(buffer.NewID())
	r.Function = function
	i := n.Fetch(t.Context(), r)
	defer i.Release()
	succeeds(t, i, want)
	return i.Way()
}

func (n *node) has(function string) bool {
	return n.Has(function, "edge", object.Bucket, object.String())
}

func (n *node) changed(function string) { n.Changed(function, "edge", object.Bucket, object.String()) }

func (n *node) knows(function string) (source.Object, bool) {
	return n.Known(function, "edge", object.Bucket, object.String())
}

// What a function stores is there for the next request, and not before the store has it.
func TestADepositIsFoundWithoutATransfer(t *testing.T) {
	for name, in := range map[string]struct {
		fresh time.Duration
		way   string
		asked int32
	}{
		"ask":     {objects.Ask, objects.WayRevalidated, 1},
		"an hour": {time.Hour, objects.WayHit, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.says(in.fresh)
			fetches, questions := n.counts()
			n.way(t, "default/f", content)
			before := questions.Load()
			n.store.Put(object, "text/plain", newer)
			d := n.deposit(t, "default/f", newer)
			if about, known := n.knows("default/f"); known && about.Version != "1" {
				t.Errorf("before it is committed: %+v", about)
			}
			if err := d.Commit(source.Object{Version: "2", ContentType: "text/x"}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if way := n.way(t, "default/g", newer); way != in.way {
					t.Errorf("found by way %q", way)
				}
			}
			if fetches.Load() != 1 || questions.Load()-before != 2*in.asked {
				t.Errorf("%d fetches, %d questions", fetches.Load(), questions.Load()-before)
			}
			if way := n.way(t, "other/f", newer); way != objects.WayStore {
				t.Errorf("another namespace finds it by way %q", way)
			}
		})
	}
}

// What does not become an object is not there, and the object before stays.
func TestAnAbortedDepositLeavesNothing(t *testing.T) {
	n := start(t)
	n.says(time.Hour)
	n.way(t, "default/f", content)
	used := n.buffer.Used()
	d := n.deposit(t, "default/f", newer)
	r := d.NewReader(t.Context())
	if got, err := io.ReadAll(io.LimitReader(r, size)); err != nil || !bytes.Equal(got, newer) {
		t.Errorf("before its end %d bytes are read, %v", len(got), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	d.Abort()
	short, err := n.Deposit(t.Context(), request("short"), size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := short.WriteAt(newer[:size-1], 0); err != nil {
		t.Fatal(err)
	}
	if err := short.Commit(source.Object{Version: "2"}); err == nil {
		t.Error("a deposit that lacks a byte is committed")
	}
	if way := n.way(t, "default/f", content); way != objects.WayHit {
		t.Errorf("the object before is found by way %q", way)
	}
	if n.buffer.Used() != used {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used()-used)
	}
}

// A deposit that the buffer cannot take is refused, at once or when it shows, and nothing is left of it.
func TestADepositThatIsTooLarge(t *testing.T) {
	n := start(t)
	if _, err := n.Deposit(t.Context(), request("1"), bufferLimit/4+1); err == nil {
		t.Error("one takes the room of inputs")
	}
	d, err := n.Deposit(t.Context(), request("2"), buffer.Unknown)
	if err != nil {
		t.Fatal(err)
	}
	part := make([]byte, 64<<10)
	for at := int64(0); err == nil && at <= bufferLimit; at += int64(len(part)) {
		_, err = d.WriteAt(part, at)
	}
	if !objects.IsTooLarge(err) && !buffer.IsFull(err) {
		t.Errorf("of an unknown one: %v", err)
	}
	d.Abort()
	if n.buffer.Used() != 0 || n.has("default/f") {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
}

// What is being stored leaves most of the buffer to inputs, and what has ended counts no more.
func TestDepositsLeaveRoom(t *testing.T) {
	n := start(t)
	const each = bufferLimit / 16
	for range 3 {
		var all []*objects.Deposit
		for len(all) < 5 {
			d, err := n.Deposit(t.Context(), request("deposit-"+buffer.NewID()), each)
			if err != nil {
				break
			}
			all = append(all, d)
		}
		if len(all) != 4 {
			t.Errorf("%d deposits of a sixteenth of the buffer", len(all))
		}
		for _, d := range all {
			d.Abort()
		}
	}
}

func TestADepositIsRefused(t *testing.T) {
	n := start(t)
	for name, in := range map[string]struct {
		change func(*objects.Request)
		title  string
	}{
		"reference": {func(r *objects.Request) { r.Reference = "s3://inputs/../k" }, "InputReferenceMalformed"},
		"store":     {func(r *objects.Request) { r.Store = "other" }, "StoreUnknown"},
	} {
		r := request("1")
		in.change(&r)
		if _, err := n.Deposit(t.Context(), r, size); problem.Of(err).Title != in.title {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Deposit(t.Context(), request("2"), size); problem.Of(err).Title != "ShuttingDown" {
		t.Errorf("of a closed cache: %v", err)
	}
	h := newHost(t)
	h.age = 0
	forgetful, _ := h.daemon(t, h.dir, "")
	if _, err := forgetful.Deposit(t.Context(), request("3"), size); err == nil {
		t.Error("a node that keeps nothing takes a copy")
	}
	for _, b := range []*buffer.Buffer{n.buffer, forgetful.buffer} {
		if b.Used() != 0 {
			t.Errorf("%d bytes are left in the buffer", b.Used())
		}
	}
}

// A cache that is closed does not wait for deposits, which may end later in either way.
func TestCloseWithADepositOpen(t *testing.T) {
	for name, end := range map[string]func(*objects.Deposit) error{
		"aborted":   func(d *objects.Deposit) error { d.Abort(); return nil },
		"committed": func(d *objects.Deposit) error { return d.Commit(source.Object{Version: "2"}) },
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			d := n.deposit(t, "default/f", newer)
			if err := n.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := end(d); err != nil {
				t.Error(err)
			}
			if err := n.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A delayed source has looked at an object before the node hears of it.
type delayed struct {
	*sourcetest.Memory
	looked, tell chan struct{}
	answering    sync.Once
}

// answer tells all answers from now on, until the test ends.
func (d *delayed) answer(t *testing.T) {
	d.answering.Do(func() {
		ended := make(chan struct{})
		stop := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-d.looked:
					d.tell <- struct{}{}
				case <-stop:
					return
				}
			}
		}()
		t.Cleanup(func() { close(stop); <-ended })
	})
}

func (d *delayed) Fetch(ctx context.Context, ref source.Reference, held string, begin source.Begin) error {
	told := func() error {
		select {
		case d.looked <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case <-d.tell:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := d.Memory.Fetch(ctx, ref, held, func(o source.Object) (io.WriterAt, error) {
		if err := told(); err != nil {
			return nil, err
		}
		return begin(o)
	})
	if _, unchanged := errors.AsType[*source.Unchanged](err); unchanged {
		if failed := told(); failed != nil {
			return failed
		}
	}
	return err
}

// startDelayed is a node whose store is delayed, and whose answers hold for an hour.
func startDelayed(t *testing.T) (*node, *delayed) {
	t.Helper()
	from := &delayed{Memory: &sourcetest.Memory{}, looked: make(chan struct{}), tell: make(chan struct{})}
	from.Put(object, "text/plain", content)
	buf, err := buffer.Open(t.TempDir()+"/b", bufferLimit)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{buffer: buf, outcomes: make(chan objects.Outcome, 2000), evicted: map[string]int{}, fresh: time.Hour}
	sources := func(string, string) (source.Source, error) { return from, nil }
	n.Cache = objects.New(objects.Config{Sources: sources, Rule: n.rule, Buffer: buf, Age: age, Metrics: n})
	t.Cleanup(func() {
		if err := errors.Join(n.Close(context.Background()), buf.Close()); err != nil {
			t.Error(err)
		}
	})
	return n, from
}

// What was asked for before the node has changed an object is for those alone who have waited for it, also in a bucket
// whose answers hold for long, and whatever else is asked meanwhile.
func TestAnAnswerFromBeforeAChange(t *testing.T) {
	for name, in := range map[string]struct {
		commits bool // or else the node only knows that there is a change
		second  bool // another request comes before the change, and waits for another answer
	}{
		"committed":                             {true, false},
		"committed, with a question that waits": {true, true},
		"changed":                               {false, false},
		"changed, with a question that waits":   {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, from := startDelayed(t)
				first := n.Fetch(t.Context(), request("1"))
				<-from.looked
				time.Sleep(time.Millisecond)
				var second *objects.Input
				if in.second {
					second = n.Fetch(t.Context(), request("2"))
					synctest.Wait()
				}
				want, way := content, objects.WayStore // the store itself has no other content
				if in.commits {
					want, way = newer, objects.WayHit
					if err := n.deposit(t, "default/f", newer).Commit(source.Object{Version: "2"}); err != nil {
						t.Error(err)
					}
				} else {
					n.changed("default/f")
				}
				time.Sleep(time.Millisecond)
				from.tell <- struct{}{}
				succeeds(t, first, content)
				first.Release()
				synctest.Wait()
				if _, known := n.knows("default/f"); known != in.commits {
					t.Errorf("the object is known: %v", known)
				}
				third := n.Fetch(t.Context(), request("3"))
				if !in.commits {
					from.answer(t)
				}
				succeeds(t, third, want)
				if third.Way() != way && !in.second { // else it may have the second's answer
					t.Errorf("found by way %q", third.Way())
				}
				third.Release()
				if in.second {
					from.answer(t)
					succeeds(t, second, content)
					second.Release()
				}
			})
		})
	}
}

// By which way an input comes to its object can be asked at any time.
func TestTheWayIsKnownWithTheObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, from := startDelayed(t)
		i := n.Fetch(t.Context(), request("1"))
		defer i.Release()
		<-from.looked
		if way := i.Way(); way != "" {
			t.Errorf("before the answer it is %q", way)
		}
		go func() { from.tell <- struct{}{} }()
		for i.Way() == "" {
			runtime.Gosched()
		}
		if way := i.Way(); way != objects.WayStore {
			t.Errorf("it is %q", way)
		}
	})
}

// A change has the next request ask the store, and leaves alone who has the object already.
func TestAChangedObjectIsAskedForAgain(t *testing.T) {
	n := start(t)
	n.says(time.Hour)
	fetches, _ := n.counts()
	n.changed("default/f") // of what the node does not have
	user := n.Fetch(t.Context(), request("user"))
	succeeds(t, user, content)
	if way := n.way(t, "default/f", content); way != objects.WayHit {
		t.Errorf("it is found by way %q", way)
	}
	n.store.Put(object, "text/plain", newer)
	n.changed("other/f") // which has another one
	if way := n.way(t, "default/f", content); way != objects.WayHit {
		t.Errorf("after a change in another namespace it is found by way %q", way)
	}
	n.changed("default/f")
	if n.has("default/f") {
		t.Error("the node says that it has it")
	}
	if way := n.way(t, "default/f", newer); way != objects.WayStore || fetches.Load() != 2 {
		t.Errorf("after a change it is found by way %q, with %d fetches", way, fetches.Load())
	}
	succeeds(t, user, content)
	user.Release()
}

// Of what the node has, it knows the size and the header, as long as the store's answer holds.
func TestKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		defer func() {
			if err := n.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		n.says(time.Minute)
		hold := make(chan struct{})
		n.store.Before = func(context.Context, source.Reference, int64) error { <-hold; return nil }
		if _, known := n.knows("default/f"); known || n.has("default/f") {
			t.Error("before all")
		}
		i := n.Fetch(t.Context(), request("1"))
		known(t, i)
		if _, known := n.knows("default/f"); known || !n.has("default/f") {
			t.Error("while it arrives")
		}
		close(hold)
		succeeds(t, i, content)
		for _, released := range []bool{false, true} {
			if released {
				i.Release()
			}
			about, known := n.knows("default/g")
			want := source.Object{Size: size, Version: "1", ContentType: "text/plain"}
			if d := cmp.Diff(want, about); d != "" || !known || !n.has("default/g") {
				t.Errorf("released: %v, known: %v (-want +got):\n%s", released, known, d)
			}
		}
		if _, known := n.knows("other/f"); known || n.has("other/f") {
			t.Error("another namespace's")
		}
		if _, known := n.Known("default/f", "other", object.Bucket, object.String()); known {
			t.Error("of a store that there is not")
		}
		time.Sleep(time.Minute)
		if _, known := n.knows("default/f"); known || !n.has("default/f") {
			t.Error("when the answer does not hold any more")
		}
		n.says(objects.Ask)
		n.way(t, "default/f", content)
		if _, known := n.knows("default/f"); known || !n.has("default/f") {
			t.Error("in a bucket whose store is asked each time")
		}
	})
}

// A header belongs to one version.
func TestDescribe(t *testing.T) {
	n := start(t)
	n.says(time.Hour)
	describe := func(function, version string, header http.Header) {
		n.Describe(function, "edge", object.Bucket, object.String(), version, header)
	}
	describe("default/f", "1", http.Header{"Etag": {"early"}}) // of what the node does not have
	i := n.Fetch(t.Context(), request("1"))
	defer i.Release()
	succeeds(t, i, content)
	describe("default/f", "2", http.Header{"Etag": {"of another version"}})
	describe("other/f", "1", http.Header{"Etag": {"of another namespace"}})
	if about, known := n.knows("default/f"); !known || about.Header != nil {
		t.Errorf("it is described as %+v", about)
	}
	want := http.Header{"Etag": {`"1"`}, "X-Amz-Meta-Camera": {"7"}}
	describe("default/f", "1", want)
	about, _ := n.knows("default/f")
	if d := cmp.Diff(want, about.Header); d != "" {
		t.Errorf("known (-want +got):\n%s", d)
	}
	if about, err := i.Object(t.Context()); err != nil || cmp.Diff(want, about.Header) != "" {
		t.Errorf("an input that came before has %+v, %v", about, err)
	}
}

// The next daemon finds what a function has stored, with its header.
func TestADepositOutlivesTheDaemon(t *testing.T) {
	for name, in := range map[string]struct {
		fresh time.Duration
		way   string
		kill  bool
	}{
		"ask":             {objects.Ask, objects.WayRevalidated, false},
		"an hour":         {time.Hour, objects.WayHit, false},
		"ask, killed":     {objects.Ask, objects.WayRevalidated, true},
		"an hour, killed": {time.Hour, objects.WayHit, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.fresh = in.fresh
			want := http.Header{"Etag": {"2"}, "X-Amz-Meta-Camera": {"7"}}
			n, end := h.daemon(t, h.dir, "")
			h.store.Put(object, "text/plain", newer)
			about := source.Object{Version: "2", ContentType: "text/plain"}
			if in.kill { // the header has to be there before the object is kept
				about.Header = want
			}
			if err := n.deposit(t, "default/f", newer).Commit(about); err != nil {
				t.Fatal(err)
			}
			if in.kill {
				h.noted(t, 1)
				h.says(t, func(r *record.Record) {
					if d := cmp.Diff(want, r.Header); d != "" {
						t.Errorf("noted (-want +got):\n%s", d)
					}
				})
				h.killed(t)
			} else {
				n.Describe("default/f", "edge", object.Bucket, object.String(), "2", want)
			}
			end()
			next, _ := h.daemon(t, h.dir, "")
			i, err := next.gets(t, object, newer)
			if err != nil {
				t.Fatal(err)
			}
			defer i.Release()
			got, err := i.Object(t.Context())
			if d := cmp.Diff(want, got.Header); d != "" || err != nil || got.Version != "2" || i.Way() != in.way {
				t.Errorf("found by way %q, of version %q, %v (-want +got):\n%s", i.Way(), got.Version, err, d)
			}
		})
	}
}

// Whatever is asked, stored and changed at the same time, a request gets what the node stored before it, or newer,
// although answers hold for an hour.
func TestNobodyGetsWhatIsOlderThanADeposit(t *testing.T) {
	n := start(t)
	n.says(time.Hour)
	var newest atomic.Int64
	of := func(v int64) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%09d,", v)), size/10) }
	store := func() {
		v := newest.Load() + 1
		d := n.deposit(t, "default/writer", of(v))
		n.store.Put(object, "text/plain", of(v))
		switch v % 3 {
		case 0: // the node has no copy after all
			d.Abort()
			n.changed("default/writer")
		default:
			if err := d.Commit(source.Object{Version: strconv.FormatInt(v+1, 10)}); err != nil {
				t.Error(err)
			}
		}
		newest.Store(v)
	}
	store()
	var writer, readers sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-n.outcomes: // there are more of them than anybody keeps
			default:
				store()
			}
		}
	})
	for c := range 8 {
		readers.Go(func() {
			for r := range 60 {
				since := newest.Load()
				i := n.Fetch(t.Context(), request(fmt.Sprintf("%d-%d", c, r)))
				if r%7 == 0 {
					i.Release()
					continue
				}
				if err := i.Wait(t.Context()); err != nil {
					if problem.Of(err).Title != "InputChanged" {
						t.Error(err)
					}
				} else {
					got := read(t, i)
					v, err := strconv.ParseInt(string(got[:9]), 10, 64)
					if err != nil || v < since || !bytes.Equal(got, of(v)) {
						t.Errorf("got version %d at %d: %v", v, since, err)
					}
				}
				i.Release()
			}
		})
	}
	readers.Wait()
	close(stop)
	writer.Wait()
}
