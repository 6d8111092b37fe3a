package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
)

// Entry is one input. Writers fill it in any order, each byte once; readers follow its
// prefix, the bytes from the start without a gap. Its methods may be called at the same
// time.
type Entry struct {
	buffer *Buffer
	id     string

	// Guarded by the buffer's lock: whose entry it is, and whether it counts for nobody. See Keep.
	function  string
	kept      bool
	outside   bool // see CreateOutside; it never changes
	forgotten bool // see Forget
	whole     part // the one file that a complete entry is, if it is one

	linking chan struct{} // holds who links: there is one copy at a time

	mu       sync.Mutex // taken before the buffer's
	size     int64      // Unknown until it is complete, if nobody knew it before
	parts    parts
	copied   part // the whole entry once more, as a file; see Link
	writing  int  // writes under way
	spans    spans
	complete bool
	noted    bool // see Note
	forgone  bool // see Forgo
	released bool
	err      error            // why it failed
	changed  chan struct{}    // closed at the next change; nil when nobody waits for it
	owners   int              // whoever created it, and its readers
	idle     []func(can bool) // see Idle
}

var errComplete = errors.New("writing to a complete buffer entry")

// Size is how many bytes the entry has when it is complete. known is false as long as
// nobody can tell.
func (e *Entry) Size() (size int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size, e.size != Unknown
}

// WriteAt implements io.WriterAt. No room for an entry that grows, or on the disk itself, is
// an error as from Create; what is written stays, and an entry that grows may do so later.
func (e *Entry) WriteAt(p []byte, at int64) (int, error) {
	stretches, err := e.begin(at, int64(len(p)))
	if err != nil {
		return 0, err
	}
	written := 0
	for _, s := range stretches {
		var n int
		n, err = s.content.WriteAt(p[written:written+int(s.n)], s.at)
		if written += n; err != nil {
			break
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writing--
	if e.err != nil {
		return written, e.err // Its files may be gone under the write: that is no fault of theirs.
	}
	if err != nil {
		return written, fmt.Errorf("writing a buffer entry: %w", err)
	}
	before := e.spans.prefix
	if e.spans.add(at, at+int64(written)); e.spans.prefix > before {
		e.notify()
	}
	return written, nil
}

// begin notes a write of n bytes, makes room for it, and returns where they go.
func (e *Entry) begin(at, n int64) ([]stretch, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := int64(math.MaxInt64)
	if e.size != Unknown {
		end = e.size
	}
	switch {
	case at < 0 || n > end-at:
		return nil, fmt.Errorf("writing %d bytes at %d of a buffer entry of %d", n, at, e.size)
	case e.complete:
		return nil, errComplete
	case e.err != nil:
		return nil, e.err
	}
	if err := e.grow(at + n); err != nil {
		return nil, err
	}
	e.writing++
	return e.parts.stretches(at, n), nil
}

// Complete says that all is written, and so how much it is. It is an error when bytes
// are missing.
func (e *Entry) Complete() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err
	case e.complete:
		return nil
	case e.size != Unknown && e.spans.prefix != e.size:
		return fmt.Errorf("completing a buffer entry: %d of %d bytes are there", e.spans.prefix, e.size)
	case e.size == Unknown && (e.writing > 0 || len(e.spans.apart) > 0):
		return fmt.Errorf("completing a buffer entry: bytes are missing after the first %d", e.spans.prefix)
	}
	if err := e.shrink(e.spans.prefix); err != nil {
		return fmt.Errorf("completing a buffer entry: %w", err)
	}
	e.size, e.complete = e.spans.prefix, true
	e.beWhole()
	e.notify()
	return nil
}

// Fail ends the entry: its readers and writers get err. Only the first end counts.
func (e *Entry) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.complete || e.err != nil {
		return
	}
	e.err = err
	e.notify()
}

// Release is called once by whoever created the entry. What is neither complete nor
// failed fails. The bytes go when the last reader is closed.
func (e *Entry) Release() {
	e.Fail(errReleased)
	e.mu.Lock()
	e.released = true
	e.unnote()
	e.mu.Unlock()
	e.drop()
}

func (e *Entry) drop() {
	e.mu.Lock()
	e.owners--
	last := e.owners == 0
	var idle []func(bool)
	if e.owners == 1 {
		idle, e.idle = e.idle, nil
	}
	e.mu.Unlock()
	for _, then := range idle {
		e.Idle(then)
	}
	if last {
		e.buffer.remove(e)
	}
}

// NewReader returns a reader of the whole entry. It delivers what is there, waits for
// more, and ends with io.EOF when the entry is complete, or at once with the error it
// failed with, or with ctx's. Its Close may be called at any time, and must be.
func (e *Entry) NewReader(ctx context.Context) *Reader { return e.NewReaderFrom(ctx, 0) }

// NewReaderFrom is a NewReader that leaves out the bytes before from.
func (e *Entry) NewReaderFrom(ctx context.Context, from int64) *Reader {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &Reader{entry: e, ctx: ctx, cancel: cancel, at: max(from, 0)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owners == 0 {
		cancel(errReleased)
		return r
	}
	r.owner = true
	e.owners++
	return r
}

// Await returns how many bytes the prefix has beyond at, as soon as it has any. It is
// io.EOF at the end of a complete entry.
func (e *Entry) Await(ctx context.Context, at int64) (int64, error) {
	for {
		n, changed, err := e.state(at)
		if err != nil || n > 0 {
			return n, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (e *Entry) state(at int64) (int64, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, nil, e.err
	}
	if n := e.spans.prefix - at; n > 0 {
		return n, nil, nil
	}
	if e.complete {
		return 0, nil, io.EOF
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return 0, e.changed, nil
}

// notify wakes those who wait for a change. The caller holds the lock.
func (e *Entry) notify() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}
