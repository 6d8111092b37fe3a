package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Input is one request's input: a pin on its object, on its way into the buffer or there. Its methods may be
// called at the same time; after the last Release only the errors and times are left.
type Input struct {
	request Request
	began   time.Time

	cache  *Cache // nil when the input was refused
	cancel context.CancelFunc

	// What it is of, and what the operator says of that. Set before it is looked for.
	key  Key
	from source.Source
	rule Rule

	// Guarded by the cache's lock.
	owners  int
	waits   *object // for the store's answer to whose question; nil: for none
	refused error   // why there is no object for it
	lone    bool    // it asks for itself, as what others have does not suit it

	ready chan struct{} // closed when the object is known or the fetch has failed
	done  chan struct{} // closed when the fetch has ended

	// Written once, before ready is closed, with the cache's lock.
	object *object // nil when there is none
	way    string  // how it came to it

	// Set before done is closed, and before ready if object is nil.
	err   error
	ended time.Time
	rest  []byte // of a body that did not fit
}

var errIncomplete = errors.New("the input is not complete")

func newInput(r Request) *Input {
	return &Input{request: r, began: time.Now(), ready: make(chan struct{}), done: make(chan struct{})}
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
	if !isClosed(i.done) {
		return time.Time{}
	}
	return i.ended
}

// Way is how the input came to its object, empty as long as it has none.
func (i *Input) Way() string {
	if !isClosed(i.ready) {
		return ""
	}
	return i.way
}

// Received is how many bytes have arrived.
func (i *Input) Received() int64 {
	if !isClosed(i.ready) || i.object == nil {
		return 0
	}
	return i.object.received.Load()
}

// Object returns what the store says of the object, as soon as it has. A size that the store
// does not know is known when the input is complete.
func (i *Input) Object(ctx context.Context) (source.Object, error) {
	select {
	case <-i.ready:
	case <-ctx.Done():
		return source.Object{}, fmt.Errorf("waiting for the input's size: %w", context.Cause(ctx))
	}
	if i.object == nil {
		return source.Object{}, i.err
	}
	about := i.object.about
	about.Size, about.Header = i.object.size(), i.object.headerNow()
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
// releases an input that is not complete, its readers fail. It implements io.Seeker.
func (i *Input) NewReader(ctx context.Context) (io.ReadCloser, error) {
	if _, err := i.Object(ctx); err != nil {
		return nil, err
	}
	return &reader{i.object.entry.NewReader(ctx), ctx, i.object}, nil
}

// reader has nobody else find an object whose bytes it cannot read.
type reader struct {
	*buffer.Reader
	ctx    context.Context
	object *object
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.failed(err)
	return n, err
}

// failed looks at an error of a read.
func (r *reader) failed(err error) {
	if err != nil && err != io.EOF && r.ctx.Err() == nil && !errors.Is(err, fs.ErrClosed) {
		r.object.cache.unreadable(r.object)
	}
}

// CopyTo is buffer.Reader's. Of its errors those of w say nothing about the object.
func (r *reader) CopyTo(w io.Writer, n int64) (int64, error) {
	to := &watched{Writer: w}
	written, err := r.Reader.CopyTo(to, n)
	if to.err == nil {
		r.failed(err)
	}
	return written, err
}

// watched keeps what went wrong with a writer.
type watched struct {
	io.Writer
	err error
}

func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.err = err
	return n, err
}

// ReadFrom implements io.ReaderFrom, by the writer's own if it has one. Which side an error is of is not known then.
func (w *watched) ReadFrom(from io.Reader) (int64, error) {
	n, err := io.Copy(w.Writer, from)
	w.err = err
	return n, err
}

// Await waits until the object, which the caller knows to be there, has bytes at an offset: how many from there on. At
// its end it is io.EOF. What is there already it tells even if ctx has ended.
func (i *Input) Await(ctx context.Context, at int64) (int64, error) {
	return i.object.entry.Await(ctx, at)
}

// Sum is the digest of a block as it was when the object came, if that was computed. The caller knows the object to be
// there.
func (i *Input) Sum(block int64) (sum digest.Sum, known bool) {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	all := i.object.sums
	if known = int64(len(all)) >= (block+1)*int64(len(sum)); known {
		copy(sum[:], all[block*int64(len(sum)):])
	}
	return sum, known
}

// Fresh is how much longer the answer holds that the node has of the store: 0: not any more, below 0: the object is
// not to be kept. The caller knows the object to be there.
func (i *Input) Fresh() time.Duration {
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	holds := i.rule.holds(i.object.said)
	if holds <= 0 {
		return holds
	}
	return max(0, holds-time.Since(i.object.asked))
}

// Link gives the complete input a file name in a sandbox: see buffer.Entry.
func (i *Input) Link(ctx context.Context, to *staging.Dir, name string) error {
	if !isClosed(i.done) {
		return errIncomplete
	}
	if i.err != nil {
		return i.err
	}
	return i.object.entry.Link(ctx, to, name)
}

// found returns an input whose object is known without a wait, or why it has none.
func (i *Input) found() (*Input, error) {
	<-i.ready
	if i.object == nil {
		i.Release()
		return nil, i.err
	}
	return i, nil
}

// Release is called once by each owner. The last one cancels a fetch in flight that nobody else waits for, and has
// the node keep the object, or let go of it when the last reader is closed; the request's identifier is free again.
func (i *Input) Release() {
	if i.cache != nil && i.cache.leaveOne(i) {
		i.cancel()
	}
}

// end notes how the input ended; whoever calls it closes done.
func (i *Input) end(err error) {
	i.err, i.ended = i.request.explained(err), time.Now()
	if !isClosed(i.ready) {
		close(i.ready)
	}
}

func (i *Input) outcome() Outcome {
	o := Outcome{Function: i.request.Function, Store: i.request.Store, Way: i.way, Began: i.began, Ended: i.ended}
	if o.Way == WayStore {
		o.Bytes = i.object.received.Load()
	}
	if i.err != nil {
		o.Reason = problem.Of(i.err).Title
	}
	return o
}
