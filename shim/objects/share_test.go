package objects_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// gate lets a store's fetches through when it is opened, and counts them.
type gate struct {
	open    chan struct{}
	fetches atomic.Int32
}

func (n *node) gated() *gate {
	g := &gate{open: make(chan struct{})}
	n.store.Before = func(ctx context.Context, _ source.Reference, at int64) error {
		if at == 0 {
			g.fetches.Add(1)
			return nil
		}
		select {
		case <-g.open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return g
}

// known waits until the input's object is known.
func known(t *testing.T, i *objects.Input) {
	t.Helper()
	if _, err := i.Object(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func succeeds(t *testing.T, i *objects.Input, want []byte) {
	t.Helper()
	if err := i.Wait(t.Context()); err != nil {
		t.Errorf("%v", err)
	} else if got := read(t, i); !bytes.Equal(got, want) {
		t.Error("the bytes are others")
	}
}

// However many requests there are for an object, it is fetched once; each request has its
// own file of it.
func TestAnObjectIsFetchedOnceForAll(t *testing.T) {
	const requests = 20
	n := start(t)
	g := n.gated()
	inputs := []*objects.Input{n.Fetch(t.Context(), request("0"))}
	known(t, inputs[0])
	for r := 1; r < requests; r++ {
		i := n.Fetch(t.Context(), request(strconv.Itoa(r)))
		known(t, i)
		inputs = append(inputs, i)
	}
	close(g.open)
	for r, i := range inputs {
		succeeds(t, i, content)
		links, dir := links(t)
		if err := i.Link(t.Context(), links, "input"+strconv.Itoa(r)); err != nil {
			t.Errorf("linking in %s: %v", dir, err)
		}
		if i.Received() != size {
			t.Errorf("%d bytes", i.Received())
		}
	}
	if used := n.buffer.Used(); used != size || g.fetches.Load() != 1 {
		t.Errorf("%d fetches, %d bytes in the buffer", g.fetches.Load(), used)
	}
	shared, bytes := 0, int64(0)
	for range requests {
		o := n.outcome(t)
		if bytes += o.Bytes; o.Way == objects.WayShared {
			shared++
		}
	}
	if shared != requests-1 || bytes != size {
		t.Errorf("%d outcomes are shared, of %d bytes", shared, bytes)
	}
	for _, i := range inputs {
		if n.buffer.Used() != size {
			t.Error("the bytes go before the last owner")
		}
		i.Release()
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left", n.buffer.Used())
	}
}

// Who stores an object and then sends a request gets what he has stored.
func TestAChangedObjectIsNotShared(t *testing.T) {
	n := start(t)
	g := n.gated()
	first := n.Fetch(t.Context(), request("1"))
	defer first.Release()
	known(t, first)
	newer := bytes.Repeat([]byte("abcdefghij"), size/10)
	n.store.Put(object, "text/plain", newer)
	second := n.Fetch(t.Context(), request("2"))
	defer second.Release()
	known(t, second)
	third := n.Fetch(t.Context(), request("3")) // has the second's
	defer third.Release()
	known(t, third)
	close(g.open)
	succeeds(t, second, newer)
	succeeds(t, third, newer)
	if err := first.Wait(t.Context()); problem.Of(err).Title != "InputChanged" {
		t.Errorf("the first gets %v", err)
	}
	if g.fetches.Load() != 2 {
		t.Errorf("%d fetches", g.fetches.Load())
	}
}

// An object of unknown size has one when it is there.
func TestTheSizeIsKnownInTheEnd(t *testing.T) {
	n := start(t)
	n.store.Unsized = true
	g := n.gated()
	first, second := n.Fetch(t.Context(), request("1")), n.Fetch(t.Context(), request("2"))
	for _, i := range []*objects.Input{first, second} {
		if o, err := i.Object(t.Context()); err != nil || o.Size != -1 {
			t.Errorf("before: %+v, %v", o, err)
		}
	}
	close(g.open)
	for _, i := range []*objects.Input{first, second} {
		succeeds(t, i, content)
		if o, err := i.Object(t.Context()); err != nil || o.Size != size {
			t.Errorf("after: %+v, %v", o, err)
		}
		i.Release()
	}
	if g.fetches.Load() != 1 {
		t.Errorf("%d fetches", g.fetches.Load())
	}
}

// The one whose fetch it is may go first, and any other too.
func TestASharedFetchLastsAsLongAsSomebodyNeedsIt(t *testing.T) {
	for name, leavers := range map[string][]int{"the first": {0}, "another": {1}, "both but the last": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			g := n.gated()
			var inputs []*objects.Input
			for r := range 3 {
				i := n.Fetch(t.Context(), request(strconv.Itoa(r)))
				known(t, i)
				inputs = append(inputs, i)
			}
			for _, l := range leavers {
				inputs[l].Release()
				inputs[l] = nil
			}
			again := n.Fetch(t.Context(), request("0")) // the identifier is free, or still the same input's
			known(t, again)
			close(g.open)
			for _, i := range append(inputs, again) {
				if i != nil {
					succeeds(t, i, content)
					i.Release()
				}
			}
			if g.fetches.Load() != 1 || n.buffer.Used() != 0 {
				t.Errorf("%d fetches, %d bytes are left", g.fetches.Load(), n.buffer.Used())
			}
		})
	}
}

// Who joins a fetch has as long as if it were his own, however long it has taken already.
func TestASharedFetchHasTheTimeOfItsLast(t *testing.T) {
	const nearly, longest = 9 * time.Minute, 10 * time.Minute
	for name, ends := range map[string]bool{"it ends": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t)
				g := n.gated()
				first := n.Fetch(t.Context(), request("1"))
				defer first.Release()
				known(t, first)
				time.Sleep(nearly)
				second := n.Fetch(t.Context(), request("2"))
				defer second.Release()
				known(t, second)
				time.Sleep(nearly)
				if ends {
					close(g.open)
					succeeds(t, first, content)
					succeeds(t, second, content)
				} else {
					failed(t, second, "StoreTimeout", http.StatusGatewayTimeout, filterapi.AnnotationStore)
					if took := second.Ended().Sub(second.Began()); took != longest {
						t.Errorf("it had %v", took)
					}
				}
				if g.fetches.Load() != 1 {
					t.Errorf("%d fetches", g.fetches.Load())
				}
			})
		})
	}
}

func TestTheLastOfAllCancels(t *testing.T) {
	n := start(t)
	n.gated()
	first, second := n.Fetch(t.Context(), request("1")), n.Fetch(t.Context(), request("2"))
	known(t, first)
	known(t, second)
	first.Release()
	if !first.Ended().IsZero() {
		t.Error("it ended with an owner left")
	}
	second.Release()
	for _, i := range []*objects.Input{first, second} {
		if err := i.Wait(t.Context()); problem.Of(err).Title != "InputCancelled" {
			t.Errorf("Wait gives %v", err)
		}
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left", n.buffer.Used())
	}
}

// A request's inputs are apart, even of one object, and what is wrong with one names its annotation.
func TestInputsOfOneRequest(t *testing.T) {
	n := start(t)
	unnamed, mask := request("1"), request("1")
	mask.Name = "mask"
	first, second := n.Fetch(t.Context(), unnamed), n.Fetch(t.Context(), mask)
	if first == second {
		t.Error("they are one")
	}
	succeeds(t, first, content)
	first.Release()
	succeeds(t, second, content)
	second.Release()
	unnamed.ID, mask.ID = "2", "2"
	unnamed.Reference, mask.Reference = "s3://inputs/none", "s3://inputs/none"
	first, second = n.Fetch(t.Context(), unnamed), n.Fetch(t.Context(), mask)
	failed(t, first, "InputNotFound", http.StatusNotFound, "headstart.dev/input")
	failed(t, second, "InputNotFound", http.StatusNotFound, "headstart.dev/input.mask")
	mask.Reference = "s3://inputs/other"
	failed(t, n.Fetch(t.Context(), mask), "DuplicateRequest", http.StatusConflict, "headstart.dev/input.mask")
	first.Release()
	second.Release()
}

// What is wrong with one request is not wrong with the others.
func TestSharingKeepsToEachOnesLimit(t *testing.T) {
	n := start(t)
	g := n.gated()
	first := n.Fetch(t.Context(), request("1"))
	defer first.Release()
	known(t, first)
	r := request("2")
	r.Limit = size - 1
	second := n.Fetch(t.Context(), r)
	failed(t, second, "InputTooLarge", http.StatusRequestEntityTooLarge, "headstart.dev/input-limit")
	second.Release()
	close(g.open)
	succeeds(t, first, content)
}

// Nor is what shows to be too large for one too large for the others.
func TestSharingOfAnUnknownSizeKeepsToEachOnesLimit(t *testing.T) {
	n := start(t)
	n.store.Unsized = true
	g := n.gated()
	r := request("1")
	r.Limit = size - 1
	first := n.Fetch(t.Context(), r)
	defer first.Release()
	known(t, first)
	second := n.Fetch(t.Context(), request("2"))
	defer second.Release()
	known(t, second)
	close(g.open)
	if err := first.Wait(t.Context()); !objects.IsTooLarge(err) {
		t.Errorf("%v", err)
	}
	succeeds(t, second, content)
}

// The bytes are in the buffer once, and count for one function: the one whose request had them
// brought, for as long as anybody has them.
func TestASharedFetchCountsForWhoBeganIt(t *testing.T) {
	files, err := buffer.OpenFiles(t.TempDir() + "/b")
	if err != nil {
		t.Fatal(err)
	}
	n := startOver(t, buffer.New(buffer.Quota{Entries: 1}, buffer.Tier{Name: "disk", Limit: bufferLimit, Medium: files}))
	other := source.Reference{Scheme: "s3", Bucket: "inputs", Key: "other"}
	n.store.Put(other, "text/plain", content)
	of := func(id, function string, ref source.Reference) *objects.Input {
		r := request(id)
		r.Function, r.Reference = function, ref.String()
		return n.Fetch(t.Context(), r)
	}
	g := n.gated()
	first := of("1", "default/first", object)
	known(t, first)
	second := of("2", "default/second", object)
	known(t, second)
	close(g.open)
	succeeds(t, second, content)
	first.Release()
	third := of("3", "default/second", other)
	succeeds(t, third, content)
	third.Release()
	fourth := of("4", "default/first", other)
	failed(t, fourth, "BufferQuota", http.StatusInsufficientStorage, "")
	fourth.Release()
	second.Release()
	fifth := of("5", "default/first", other)
	succeeds(t, fifth, content)
	fifth.Release()
}

// What is wrong with a question is wrong with nobody who came before it.
func TestAQuestionThatFails(t *testing.T) {
	n := start(t)
	g := n.gated()
	n.store.Asked = func(_ context.Context, ref source.Reference) error { return source.Changed("edge", ref) }
	first := n.Fetch(t.Context(), request("1"))
	defer first.Release()
	known(t, first)
	second := n.Fetch(t.Context(), request("2"))
	failed(t, second, "InputChanged", http.StatusBadGateway, "headstart.dev/input")
	second.Release()
	close(g.open)
	succeeds(t, first, content)
	if g.fetches.Load() != 1 {
		t.Errorf("%d fetches", g.fetches.Load())
	}
}

// While a question is under way, all who come wait for one more, asked after they came.
func TestQuestionsAreAskedForMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		g := n.gated()
		var asked atomic.Int32
		answer := make(chan struct{})
		n.store.Asked = func(context.Context, source.Reference) error { asked.Add(1); <-answer; return nil }
		var inputs []*objects.Input
		for r := range 50 {
			inputs = append(inputs, n.Fetch(t.Context(), request(strconv.Itoa(r))))
			synctest.Wait() // for all that can happen to have happened
		}
		if asked.Load() != 1 {
			t.Errorf("%d questions at the same time", asked.Load())
		}
		close(answer)
		close(g.open)
		for _, i := range inputs {
			succeeds(t, i, content)
		}
		if g.fetches.Load() != 1 || asked.Load() != 2 {
			t.Errorf("%d fetches, %d questions", g.fetches.Load(), asked.Load())
		}
		for _, i := range inputs {
			i.Release()
		}
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whatever happens at the same time: a request never gets an object that is older than the
// request, nor a mixture, and nothing is left behind.
func TestNobodyGetsWhatIsOlderThanHisRequest(t *testing.T) {
	n := start(t)
	var newest atomic.Int64
	put := func() {
		v := newest.Load() + 1
		n.store.Put(object, "text/plain", bytes.Repeat([]byte(fmt.Sprintf("%09d,", v)), size/10))
		newest.Store(v)
	}
	put()
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				put()
				for range rand.IntN(4) { // so that fetches end between two changes, some times
					i := n.Fetch(t.Context(), request(fmt.Sprintf("writer-%d", rand.Uint64())))
					_ = i.Wait(t.Context()) // it may have failed with a change that is our own
					i.Release()
				}
			}
		}
	})
	group.Go(func() { // there are more outcomes than anybody keeps
		for {
			select {
			case <-stop:
				return
			case <-n.outcomes:
			}
		}
	})
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for r := range 100 {
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
					if err != nil || v < since || !bytes.Equal(got, bytes.Repeat(got[:10], size/10)) {
						t.Errorf("got version %d at %d: %v", v, since, err)
					}
				}
				i.Release()
			}
		})
	}
	clients.Wait()
	close(stop)
	group.Wait()
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
}

// Namespaces learn nothing of each other's fetches: whether another one has an object fetched at the
// moment changes nothing of what the store is asked. In buckets that the operator calls shared they
// share fetches.
func TestAttackAnotherNamespaceSeesNoFetch(t *testing.T) {
	for bucket, want := range map[string]int32{"inputs": 2, "shared": 1} {
		n := start(t)
		ref := source.Reference{Scheme: "s3", Bucket: bucket, Key: "video"}
		n.store.Put(ref, "text/plain", content)
		g := n.gated()
		fetch := func(id, function string) *objects.Input {
			r := request(id)
			r.Function, r.Reference = function, ref.String()
			i := n.Fetch(t.Context(), r)
			t.Cleanup(i.Release)
			known(t, i)
			return i
		}
		victim := fetch("1", "victim/f")
		attacker := fetch("2", "attacker/f")
		again := fetch("3", "victim/g") // shares one with itself
		close(g.open)
		for _, i := range []*objects.Input{victim, attacker, again} {
			succeeds(t, i, content)
		}
		if got := g.fetches.Load(); got != want {
			t.Errorf("bucket %s: the store sees %d fetches, want %d", bucket, got, want)
		}
	}
}
