package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

const (
	// BodyKept is how much of a request's own body is kept, in bytes, to be sent again: as
	// much as the gateway keeps for its retries. A body in the buffer needs none of it. As much
	// is read of it at once.
	BodyKept = 64 << 10
	// bodySmall is how much that is of a body that brings no more, or finds that bodiesLarge have
	// all of it: 32 MiB. A client that sends slowly, or a function that takes slowly, holds what
	// it has for as long as it likes.
	bodySmall   = 4 << 10
	bodiesLarge = 256
)

// bodiesTaken has one for each body that is large.
var bodiesTaken = make(chan struct{}, bodiesLarge)

// Stored is a body on its way into a buffer.
type Stored interface {
	// NewReader follows it from its start. A Read ends when ctx does.
	NewReader(ctx context.Context) (io.ReadCloser, error)
	// Wait waits for the end of the way there, and returns why it failed.
	Wait(ctx context.Context) error
	// Ended is when the way there ended, zero if it has not yet.
	Ended() time.Time
	// Rest waits for that end, and returns the bytes after those in the buffer, if that was full
	// (spilled). More of the body may follow where it came from.
	Rest() (rest []byte, spilled bool)
}

// Body is what a client sends, read from its start each time that the request is
// sent: from the buffer, if it is stored, and else as long as no more was taken than is kept.
type Body struct {
	of *http.Request
	to http.ResponseWriter
	// announced are the names of the trailers that may follow it. The request's own map of
	// them changes when the body has been read to its end, and not before.
	announced []string
	stored    Stored // nil: it is not in the buffer

	mu    sync.Mutex
	large bool // it has one of bodiesTaken
	left  bool // it gets none any more
	kept  []byte
	spent atomic.Bool // more was read than is kept
	// coming is the read from the client that is under way, nil if there is none. It fills
	// fresh, of room, which is whoever's next wants it; err is what follows that.
	coming      chan struct{}
	room, fresh []byte
	filled      bool // it had no room for more, and is not large
	err         error

	ended   atomic.Bool // it was read to its end
	failure atomic.Pointer[error]
	// lost is why it could not be read from the buffer, the last time that it was sent.
	lost atomic.Pointer[error]

	pace   pace
	beyond sync.Once // what is not in the buffer is kept
	// interrupted tells that a failure is none of the client's.
	interrupted atomic.Bool
}

// ownHeaders begins the project's headers, in the canonical form of http.Header's keys.
var ownHeaders = http.CanonicalHeaderKey(filterapi.HeaderPrefix)

// NewBody is the body of a request that w answers.
func NewBody(w http.ResponseWriter, r *http.Request) *Body {
	b := &Body{of: r, to: w}
	b.ended.Store(r.ContentLength == 0)
	for name := range r.Trailer {
		if !strings.HasPrefix(name, ownHeaders) { // no gateway removes them, and what reads both may take one for a header
			b.announced = append(b.announced, name)
		}
	}
	return b
}

// open begins from the start. What was opened before must have been closed. A Read ends when
// ctx does, with its cause, or when the body is closed, and takes nothing away then. trailer is
// filled at the end. paced: the client is to send no faster than this is read.
func (b *Body) open(ctx context.Context, trailer http.Header, paced bool) (io.ReadCloser, error) {
	until, end := context.WithCancelCause(ctx)
	live := &sending{body: b, trailer: trailer, until: until, end: end}
	b.lost.Store(nil)
	if b.stored == nil {
		return live, nil
	}
	stored, err := b.stored.NewReader(until)
	if err != nil {
		end(err)
		return nil, fmt.Errorf("reading the request's body: %w", err)
	}
	f := &following{stored: stored, live: live}
	if paced {
		b.pace.begin(f)
	}
	return f, nil
}

// trailer returns the trailers that are announced, without values; nil if there are none.
func (b *Body) trailer() http.Header {
	if len(b.announced) == 0 {
		return nil
	}
	h := http.Header{}
	for _, name := range b.announced {
		h[name] = nil
	}
	return h
}

// Store has the body read from the buffer from now on. Nothing was read of it yet.
func (b *Body) Store(in Stored) { b.stored = in }

// Whole tells whether the body can be sent from its start.
func (b *Body) Whole() bool { return !b.spent.Load() }

// failed is why the client's body could not be read to its end, nil if it could or still may.
func (b *Body) failed() error { return load(&b.failure) }

// Duplex lets an answer pass before the body was read to its end: the server would read all of it
// first.
func (b *Body) Duplex() {
	// The only error is that a ResponseWriter of another kind does not know of it.
	_ = http.NewResponseController(b.to).EnableFullDuplex()
}

// CloseUnread has the connection closed after an answer that comes before the body's end, and
// tells whether it does. The server would take what it has not read of a body for the next
// request, if a read was interrupted: a client could write itself one that the gateway has not
// seen.
func (b *Body) CloseUnread() bool {
	if b.of.ProtoMajor != 1 || b.ended.Load() {
		return false
	}
	b.to.Header().Set("Connection", "close")
	return true
}

// Linger gives the client time to read the answer before its connection is closed.
func (b *Body) Linger() { serve.Linger(b.to) }

// refused is why the node does not take the body, or has not kept it, nil if it does.
func (b *Body) refused() error {
	switch lost := load(&b.lost); {
	case b.stored == nil || b.failed() != nil:
		return nil
	case lost != nil:
		return unread{lost}
	case b.stored.Ended().IsZero():
		return nil
	}
	return b.stored.Wait(context.Background()) // at once: it has ended
}

// Read takes what comes from the client. Only the way into the buffer calls it.
func (b *Body) Read(p []byte) (int, error) {
	b.pace.await()
	n, err := b.take(p)
	b.pace.came(n)
	return n, err
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// Interrupt ends the way into the buffer, and the read from the client that is under way, unless
// the connection's end has to do that.
func (b *Body) Interrupt() {
	b.interrupted.Store(true)
	b.pace.stop()
	_ = http.NewResponseController(b.to).SetReadDeadline(past)
}

// take reads from the client, one at a time.
func (b *Body) take(p []byte) (int, error) {
	n, err := b.of.Body.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	} else if err != nil {
		if !b.interrupted.Load() {
			b.failure.CompareAndSwap(nil, &err)
		}
		err = fmt.Errorf("%w: %w", ErrClientGone, err)
	}
	return n, err
}

// arrive has the next bytes read from the client, which is not to hold up who no longer waits
// for them; came is closed when they are there. The caller holds mu.
func (b *Body) arrive() (came <-chan struct{}) {
	if b.coming != nil {
		return b.coming
	}
	switch {
	case b.room == nil:
		size := int64(bodySmall)
		if announced := b.of.ContentLength; announced > 0 {
			size = min(size, announced)
		}
		b.room = make([]byte, size)
	case b.filled && b.enlarge():
		b.room = make([]byte, BodyKept)
	}
	coming := make(chan struct{})
	b.coming = coming
	go func() {
		defer close(coming)
		n, err := b.take(b.room)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.fresh, b.err, b.coming = b.room[:n], err, nil
		b.filled = n == bodySmall && n == len(b.room)
	}()
	return coming
}

// enlarge tells whether the body may have more than bodySmall. The caller holds mu.
func (b *Body) enlarge() bool {
	if !b.large && !b.left {
		select {
		case bodiesTaken <- struct{}{}:
			b.large = true
		default:
		}
	}
	return b.large
}

// Leave ends the read from the client that nobody waits for any more, when the request is over.
func (b *Body) Leave() {
	b.mu.Lock()
	coming := b.coming
	if b.large {
		<-bodiesTaken
	}
	b.large, b.left = false, true
	b.mu.Unlock()
	if coming == nil {
		return
	}
	b.interrupted.Store(true)
	if http.NewResponseController(b.to).SetReadDeadline(past) == nil {
		<-coming
	} // or the connection's end has to do
}

// spill keeps what of the body came and found no room in the buffer. All that is in there has
// been read.
func (b *Body) spill() {
	b.beyond.Do(func() {
		if rest, spilled := b.stored.Rest(); spilled {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept = rest
		}
	})
}

// sending is one time that a body is sent.
type sending struct {
	body    *Body
	trailer http.Header
	at      int // of what is kept
	until   context.Context
	end     context.CancelCauseFunc
}

func (s *sending) Read(p []byte) (int, error) {
	for {
		n, more, err := s.take(p)
		if more == nil {
			return n, err
		}
		select {
		case <-more:
		case <-s.until.Done():
			return 0, context.Cause(s.until)
		}
	}
}

// take returns what is there, or else what tells when more is.
func (s *sending) take(p []byte) (n int, more <-chan struct{}, err error) {
	b := s.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.until.Err() != nil: // bytes that nobody waits for any more are the next one's
		return 0, nil, context.Cause(s.until)
	case s.at < len(b.kept):
		n = copy(p, b.kept[s.at:])
		s.at += n
		return n, nil, nil
	case len(b.fresh) > 0:
		n = copy(p, b.fresh)
		b.fresh = b.fresh[n:]
		s.keep(p[:n])
		return n, nil, nil
	case b.coming == nil && b.ended.Load():
		s.fill()
		return 0, nil, io.EOF
	case b.err != nil:
		return 0, nil, b.err
	}
	return 0, b.arrive(), nil
}

// keep notes what was taken, as long as it can be sent again; the caller holds the body's mu.
func (s *sending) keep(taken []byte) {
	b := s.body
	most := bodySmall
	if len(b.kept)+len(taken) > bodySmall && b.enlarge() {
		most = BodyKept
	}
	if !b.spent.Load() && len(b.kept)+len(taken) > most {
		b.spent.Store(true)
		b.kept = nil
	}
	if !b.spent.Load() {
		b.kept = append(b.kept, taken...)
		s.at += len(taken)
	}
}

// fill gives the trailers that were announced their values.
func (s *sending) fill() {
	for name := range s.trailer {
		s.trailer[name] = s.body.of.Trailer[name]
	}
}

// Close leaves the body itself to the server that received it.
func (s *sending) Close() error {
	s.end(http.ErrBodyReadAfterClose)
	return nil
}

// following is one time that a body is sent from the buffer, to which it may still be on its
// way, and from there on, if that was full, as it comes.
type following struct {
	stored io.ReadCloser
	live   *sending
	past   bool // all that is stored was read
}

func (f *following) Read(p []byte) (int, error) {
	if !f.past {
		n, err := f.stored.Read(p)
		if n > 0 && err == io.EOF {
			err = nil
		}
		if err != nil && err != io.EOF && f.live.until.Err() == nil {
			lost := err
			f.live.body.lost.Store(&lost)
		}
		if n > 0 || err != io.EOF {
			f.live.body.pace.passed(f, n)
			return n, err
		}
		f.past = true
		f.live.body.spill()
	}
	return f.live.Read(p)
}

func (f *following) Close() error {
	f.live.body.pace.end(f)
	return errors.Join(f.live.Close(), f.stored.Close()) // a Read that the second ends tells it from a failure by the first
}
