package objects_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const size = 10_000

var content = bytes.Repeat([]byte("0123456789"), size/10)

func TestFetch(t *testing.T) {
	n := start(t)
	i := n.Fetch(t.Context(), request("1"))
	if err := i.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	object, err := i.Object(t.Context())
	if err != nil || object.Size != size || object.ContentType != "text/plain" {
		t.Errorf("the object is %+v, %v", object, err)
	}
	if i.Received() != size || i.Ended().Before(i.Began()) {
		t.Errorf("%d bytes from %v to %v", i.Received(), i.Began(), i.Ended())
	}
	if got := read(t, i); !bytes.Equal(got, content) {
		t.Error("the reader's bytes are others")
	}
	links, dir := links(t)
	if err := i.Link(t.Context(), links, "input"); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(dir + "/input"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file's bytes are others: %v", err)
	}
	i.Release()
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
	if o := n.outcome(t); o.Reason != "" || o.Bytes != size || o.Function != "default/f" || o.Store != "edge" || o.Ended != i.Ended() {
		t.Errorf("the outcome is %+v", o)
	}
}

// Size and first bytes are there long before the last one; a file only then.
func TestBytesAreReadWhileTheyArrive(t *testing.T) {
	n := start(t)
	step := make(chan struct{})
	n.store.Before = func(context.Context, source.Reference, int64) error { <-step; return nil }
	i := n.Fetch(t.Context(), request("1"))
	defer i.Release()
	if _, err := i.Object(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	step <- struct{}{}
	first := make([]byte, 1000)
	if _, err := io.ReadFull(r, first); err != nil || !bytes.Equal(first, content[:1000]) {
		t.Fatalf("the first bytes are others: %v", err)
	}
	links, _ := links(t)
	if err := i.Link(t.Context(), links, "input"); err == nil || !i.Ended().IsZero() {
		t.Errorf("half an input has a file (%v) and an end (%v)", err, i.Ended())
	}
	close(step)
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, content[1000:]) {
		t.Errorf("the rest is another: %v", err)
	}
}

// One request, one fetch, however many ask; another input under its name is refused and
// leaves the first alone.
func TestFetchOncePerRequest(t *testing.T) {
	n := start(t)
	first := n.Fetch(t.Context(), request("1"))
	second := n.Fetch(t.Context(), request("1"))
	if first != second {
		t.Error("the second caller gets another input")
	}
	for _, change := range []func(*objects.Request){
		func(r *objects.Request) { r.Function = "default/other" },
		func(r *objects.Request) { r.Reference = "s3://inputs/other" },
		func(r *objects.Request) { r.Store = "other" },
	} {
		r := request("1")
		change(&r)
		other := n.Fetch(t.Context(), r)
		failed(t, other, "DuplicateRequest", http.StatusConflict, "headstart.dev/input")
		other.Release()
	}
	first.Release()
	if err := second.Wait(t.Context()); err != nil {
		t.Errorf("the input ends with its first owner: %v", err)
	}
	second.Release()
	third := n.Fetch(t.Context(), request("1"))
	if third == first {
		t.Error("a released input comes back")
	}
	if err := third.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	third.Release()
}

func TestWhatIsWrongShowsOnTheInput(t *testing.T) {
	lost := errors.New("lost")
	for name, in := range map[string]struct {
		change func(*node, *objects.Request)
		title  string
		status int
		field  string
	}{
		"reference": {func(_ *node, r *objects.Request) { r.Reference = "s3://inputs/../x" }, "InputReferenceMalformed", 400, "headstart.dev/input"},
		"missing":   {func(_ *node, r *objects.Request) { r.Reference = "s3://inputs/none" }, "InputNotFound", 404, "headstart.dev/input"},
		"store":     {func(_ *node, r *objects.Request) { r.Store = "other" }, "StoreUnknown", 502, "headstart.dev/store"},
		"too large": {func(_ *node, r *objects.Request) { r.Limit = size - 1 }, "InputTooLarge", 413, "headstart.dev/input-limit"},
		"too small": {func(n *node, _ *objects.Request) { n.store.Put(object, "", make([]byte, bufferLimit+1)) }, "BufferTooSmall", 507, ""},
		"midway": {func(n *node, _ *objects.Request) {
			n.store.Before = func(_ context.Context, ref source.Reference, at int64) error {
				if at > 0 {
					return source.Changed("edge", ref)
				}
				return nil
			}
		}, "InputChanged", 502, "headstart.dev/input"},
		"unexplained": {func(n *node, _ *objects.Request) {
			n.store.Before = func(context.Context, source.Reference, int64) error { return lost }
		}, "Internal", 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			r := request("1")
			r.Limit = bufferLimit * 2
			in.change(n, &r)
			i := n.Fetch(t.Context(), r)
			failed(t, i, in.title, in.status, in.field)
			links, _ := links(t)
			if err := i.Link(t.Context(), links, "input"); err == nil {
				t.Error("a failed input gets a file")
			}
			i.Release()
			if o := n.outcome(t); o.Reason != in.title {
				t.Errorf("the outcome is %+v", o)
			}
			if n.buffer.Used() != 0 {
				t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
			}
		})
	}
}

// The caller's context carries a trace, not the fetch's life.
func TestFetchOutlivesItsCaller(t *testing.T) {
	n := start(t)
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "span"))
	n.store.Before = func(ctx context.Context, _ source.Reference, _ int64) error {
		if ctx.Value(key{}) != "span" {
			return errors.New("the span is lost")
		}
		return nil
	}
	cancel()
	i := n.Fetch(ctx, request("1"))
	defer i.Release()
	if err := i.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// The last owner cancels; readers and writers get to know.
func TestReleaseCancels(t *testing.T) {
	n := start(t)
	n.store.Before = blocked
	i := n.Fetch(t.Context(), request("1"))
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again := n.Fetch(t.Context(), request("1"))
	again.Release()
	if !i.Ended().IsZero() {
		t.Error("it ended with an owner left")
	}
	i.Release()
	if o := n.outcome(t); o.Reason != "InputCancelled" {
		t.Errorf("the outcome is %+v", o)
	}
	if err := i.Wait(t.Context()); problem.Of(err).Title != "InputCancelled" {
		t.Errorf("Wait gives %v", err)
	}
	if _, err := io.ReadAll(r); problem.Of(err).Title != "InputCancelled" {
		t.Errorf("the reader gets %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
}

func TestCloseEndsFetches(t *testing.T) {
	n := start(t)
	n.store.Before = blocked
	i := n.Fetch(t.Context(), request("1"))
	if _, err := i.Object(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := i.Wait(t.Context()); problem.Of(err).Title != "InputCancelled" {
		t.Errorf("Wait gives %v", err)
	}
	i.Release()
	late := n.Fetch(t.Context(), request("2"))
	failed(t, late, "ShuttingDown", http.StatusServiceUnavailable, "")
	late.Release()
}

func TestCloseWaitsNoLongerThanItMay(t *testing.T) {
	n := start(t)
	stuck := make(chan struct{})
	n.store.Before = func(context.Context, source.Reference, int64) error { <-stuck; return nil }
	i := n.Fetch(t.Context(), request("1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(stuck)
	i.Release()
}

// No fetch is for ever, and waiting ends with the waiter's context.
func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		n.store.Before = blocked
		i := n.Fetch(t.Context(), request("1"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := i.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait gives %v", err)
		}
		if err := i.Wait(t.Context()); problem.Of(err).Title != "StoreTimeout" {
			t.Errorf("the fetch gives %v", err)
		}
		if took := i.Ended().Sub(i.Began()); took != 10*time.Minute {
			t.Errorf("it took %v", took)
		}
		i.Release()
		if err := n.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A node has so many inputs at a time, no function more than three quarters of them, and no namespace, as
// many functions as it has, so many that others find no room.
func TestAttackInputsOfANamespaceLeaveOthersRoom(t *testing.T) {
	n := start(t)
	n.store.Put(object, "", nil)
	var open []*objects.Input
	fetch := func(function string, to int) {
		for len(open) <= to {
			r := request(fmt.Sprint(len(open)))
			r.Function = function
			open = append(open, n.Fetch(t.Context(), r))
		}
		failed(t, open[to], "TooManyInputs", http.StatusServiceUnavailable, "")
		open = open[:to] // what is refused needs no release
	}
	fetch("default/f", 768)
	fetch("default/other", 819)
	fetch("other/f", 819+164)
	for _, i := range open {
		i.Release()
	}
	i := n.Fetch(t.Context(), request("0"))
	defer i.Release()
	if err := i.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// Owners who come and go at the same time neither race nor leave anything behind.
func TestOwnersComeAndGo(t *testing.T) {
	n := start(t)
	var owners sync.WaitGroup
	for owner := range 16 {
		owners.Go(func() {
			for round := range 20 {
				i := n.Fetch(t.Context(), request(fmt.Sprint(round%3)))
				if owner%2 == 0 {
					if err := i.Wait(t.Context()); err != nil {
						t.Error(err)
					} else if got := read(t, i); !bytes.Equal(got, content) {
						t.Error("the bytes are others")
					}
				}
				i.Release()
			}
		})
	}
	owners.Wait()
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
}

// bufferLimit has room for two inputs of unknown size.
const bufferLimit = 2 << 20

var object = source.Reference{Scheme: source.SchemeS3, Bucket: "inputs", Key: "k"}

func request(id string) objects.Request {
	return objects.Request{ID: id, Function: "default/f", Store: "edge", Reference: object.String(), Limit: bufferLimit}
}

// blocked stops a fetch until its context ends.
func blocked(ctx context.Context, _ source.Reference, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

// age is how long objects are kept that nobody uses.
const age = time.Hour

// node is a cache with one store that has one object.
type node struct {
	*objects.Cache
	store    *sourcetest.Memory
	buffer   *buffer.Buffer
	outcomes chan objects.Outcome

	mu       sync.Mutex
	fresh    time.Duration
	evicted  map[string]int
	delisted bool
}

func (n *node) source(_, store string) (source.Source, error) {
	if store != "edge" {
		return nil, problem.New(http.StatusBadGateway, "StoreUnknown", filterapi.AnnotationStore, "no such store")
	}
	return n.store, nil
}

// Ended implements objects.Metrics.
func (n *node) Ended(o objects.Outcome) { n.outcomes <- o }

// Evicted implements objects.Metrics.
func (n *node) Evicted(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.evicted[why]++
}

func (n *node) rule(_, bucket string) objects.Rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	return objects.Rule{Shared: bucket == "shared", Fresh: n.fresh, Unlisted: n.delisted}
}

func start(t *testing.T) *node {
	t.Helper()
	buf, err := buffer.Open(t.TempDir()+"/b", bufferLimit)
	if err != nil {
		t.Fatal(err)
	}
	return startOver(t, buf)
}

// startOver is a node that has its inputs in the buffer, which it closes.
func startOver(t *testing.T, buf *buffer.Buffer) *node {
	t.Helper()
	n := &node{store: &sourcetest.Memory{}, buffer: buf, outcomes: make(chan objects.Outcome, 2000), evicted: map[string]int{}}
	n.store.Put(object, "text/plain", content)
	n.Cache = objects.New(objects.Config{Sources: n.source, Rule: n.rule, Buffer: buf, Age: age, Metrics: n})
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) outcome(t *testing.T) objects.Outcome {
	t.Helper()
	select {
	case o := <-n.outcomes:
		return o
	case <-t.Context().Done():
		t.Fatal("no outcome")
		return objects.Outcome{}
	}
}

func read(t *testing.T, i *objects.Input) []byte {
	t.Helper()
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Error(err)
		return nil
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
	return got
}

// failed checks that every way to wait for the input gives the problem.
func failed(t *testing.T, i *objects.Input, title string, status int, field string) {
	t.Helper()
	p := problem.Of(i.Wait(t.Context()))
	if p.Title != title || p.Status != status || p.Field != field {
		t.Errorf("Wait gives %+v", p)
	}
	r, err := i.NewReader(t.Context())
	if err == nil {
		_, err = io.ReadAll(r)
		_ = r.Close()
	}
	if problem.Of(err).Title != title {
		t.Errorf("reading gives %v", err)
	}
}

func links(t *testing.T) (*staging.Dir, string) {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return &staging.Dir{Input: root}, dir
}

// holding is a store some of whose objects this node has, and the store not yet.
type holding struct {
	*sourcetest.Memory
	is bool
}

func (h *holding) Holds(source.Reference) bool { return h.is }

// neighbours count what they are asked.
type neighbours struct{ asked int }

func (n *neighbours) Fetch(ctx context.Context, _ objects.Key, _ string, begin source.Begin, store func(context.Context, source.Begin) error) error {
	n.asked++
	return store(ctx, begin)
}

// What this node alone has, no neighbour is asked for.
func TestNoNeighbourHasWhatIsPendingHere(t *testing.T) {
	for _, is := range []bool{true, false} {
		n := start(t)
		asked := &neighbours{}
		c := objects.New(objects.Config{Buffer: n.buffer, Neighbours: asked,
			Sources: func(string, string) (source.Source, error) { return &holding{n.store, is}, nil }})
		i := c.Fetch(t.Context(), request("1"))
		if err := i.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		i.Release()
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if (asked.asked == 0) != is {
			t.Errorf("the node holds it: %v; asked %d times", is, asked.asked)
		}
	}
}
