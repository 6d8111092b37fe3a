package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Input is one request's input on its way into the buffer. Its methods may be called at
// the same time; after the last Release only the errors and times are left.
type Input struct {
	request  Request
	began    time.Time
	received atomic.Int64

	cache  *Cache // nil when the input was refused
	cancel context.CancelFunc
	checks checks

	// Guarded by the cache's lock.
	owners  int
	sharers int         // inputs of other requests that have this one's entry
	object  object      // what it is of, once it has come to lead or to share
	leader  *Input      // whose entry and end this one has, if it has not its own; written once
	late    *time.Timer // ends the fetch, if that takes too long

	ready chan struct{} // closed when the object is known or the fetch has failed
	done  chan struct{} // closed when the fetch has ended

	// Set before ready is closed.
	about source.Object
	entry *buffer.Entry // nil when there is none

	// Set before done is closed, and before ready if entry is nil. measured says that all of
	// a stored object is there, so that its size is known.
	err   error
	ended time.Time
	rest  []byte // of a body that did not fit

	measured bool

	mu       sync.Mutex
	released bool
}

var (
	errReleased   = problem.New(http.StatusServiceUnavailable, "InputCancelled", "", "nobody waits for the input any more")
	errIncomplete = errors.New("the input is not complete")
)

func newInput(r Request) *Input {
	return &Input{request: r, began: time.Now(), ready: make(chan struct{}), done: make(chan struct{}),
		checks: checks{turn: make(chan struct{}, 1)}}
}

// refused is an input that failed before it began.
func refused(r Request, err error) *Input {
	i := newInput(r)
	i.end(err)
	close(i.done)
	return i
}

// Began is when the fetch started.
func (i *Input) Began() time.Time { return i.began }

// Ended is when the input was complete or failed; until then it is zero.
func (i *Input) Ended() time.Time {
	select {
	case <-i.done:
		return i.ended
	default:
		return time.Time{}
	}
}

// Received is how many bytes have arrived.
func (i *Input) Received() int64 {
	select {
	case <-i.ready:
		if i.leader != nil {
			return i.leader.Received()
		}
	default:
	}
	return i.received.Load()
}

// Object returns what the store says of the object, as soon as it has. A size that the store
// does not know is known when the input is complete.
func (i *Input) Object(ctx context.Context) (source.Object, error) {
	select {
	case <-i.ready:
	case <-ctx.Done():
		return source.Object{}, fmt.Errorf("waiting for the input's size: %w", context.Cause(ctx))
	}
	if i.entry == nil {
		return source.Object{}, i.err
	}
	about := i.about
	if about.Size < 0 && !i.Ended().IsZero() && i.measured {
		about.Size = i.Received()
	}
	return about, nil
}

// Wait returns when the input is complete, or with the error it failed with.
func (i *Input) Wait(ctx context.Context) error {
	select {
	case <-i.done:
		return i.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the input: %w", context.Cause(ctx))
	}
}

// NewReader waits for the object, as Object does, and returns a reader that follows its
// bytes as they arrive: see buffer.Entry. A reader is no owner: when the last one
// releases an input that is not complete, its readers fail.
func (i *Input) NewReader(ctx context.Context) (io.ReadCloser, error) {
	if _, err := i.Object(ctx); err != nil {
		return nil, err
	}
	return i.entry.NewReader(ctx), nil
}

// Link gives the complete input a file name in a sandbox: see buffer.Entry.
func (i *Input) Link(ctx context.Context, to *staging.Dir, name string) error {
	select {
	case <-i.done:
	default:
		return errIncomplete
	}
	if i.err != nil {
		return i.err
	}
	return i.entry.Link(ctx, to, name)
}

// Release is called once by each owner. The last one cancels a fetch in flight and frees
// the buffer when the last reader is closed; the request's identifier is free again.
func (i *Input) Release() {
	if i.cache == nil {
		return
	}
	last, needless := i.cache.leave(i)
	if last && needless != i && i.sharing() {
		i.cancel() // It only waits.
	}
	if needless != nil {
		needless.free()
	}
}

// sharing tells whether the input has another one's entry.
func (i *Input) sharing() bool {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	return i.leader != nil
}

// free ends the fetch and lets go of what it has brought.
func (i *Input) free() {
	i.cancel()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.released = true
	if i.entry != nil {
		i.entry.Fail(errReleased)
		i.entry.Release()
	}
}

// begin takes what the store says and makes room for it.
func (i *Input) begin(object source.Object) (io.WriterAt, error) {
	if object.Size > i.request.Limit {
		return nil, i.tooLarge(object.Size)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.released {
		return nil, errReleased
	}
	// The entry has an identifier of its own: the request's next input may begin before the file of
	// the last one has gone.
	entry, err := i.cache.buffer.Create(buffer.NewID(), i.request.Function, object.Size)
	if err != nil {
		return nil, err
	}
	i.about, i.entry = object, entry
	close(i.ready)
	return &writer{i}, nil
}

// end notes how the fetch ended; whoever calls it closes done.
func (i *Input) end(err error) {
	i.err, i.ended = i.request.explained(err), time.Now()
	select {
	case <-i.ready:
	default:
		if i.leader != nil {
			i.entry = nil // What the other one has is not for this one.
		}
		close(i.ready)
	}
}

// fail tells the readers of an input that failed. They can ask it why, so it has ended before.
func (i *Input) fail() {
	// What is shared fails with its own fetch.
	if i.err != nil && i.entry != nil && i.leader == nil {
		i.entry.Fail(i.err)
	}
}

func (i *Input) outcome() Outcome {
	o := Outcome{Function: i.request.Function, Store: i.request.Store, Shared: i.leader != nil, Bytes: i.received.Load(), Began: i.began, Ended: i.ended}
	if i.err != nil {
		o.Reason = problem.Of(i.err).Title
	}
	return o
}

func tooLarge(detail string) error {
	return problem.New(
		http.StatusRequestEntityTooLarge, problem.ReasonInputTooLarge, filterapi.AnnotationInputLimit, detail,
	)
}

func (i *Input) tooLarge(size int64) error {
	return tooLarge(fmt.Sprintf("the input has %d bytes, and the function takes at most %d", size, i.request.Limit))
}

// IsTooLarge tells whether err says that an input is larger than its function takes.
func IsTooLarge(err error) bool { return problem.ReasonOf(err) == problem.ReasonInputTooLarge }

// writer counts what goes into the buffer, and bounds it where the size did not.
type writer struct{ input *Input }

func (w *writer) WriteAt(p []byte, at int64) (int, error) {
	if limit := w.input.request.Limit; at+int64(len(p)) > limit {
		return 0, tooLarge(fmt.Sprintf("the input has more than the %d bytes that the function takes", limit))
	}
	w.input.received.Add(int64(len(p))) // before those who wait for the bytes can be done with them
	n, err := w.input.entry.WriteAt(p, at)
	w.input.received.Add(int64(n - len(p)))
	return n, err
}
