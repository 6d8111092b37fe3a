package ingress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/headstart-mesh/headstart/shim/engine"
)

// bodyKept is how much of a request's own body is kept, in bytes, to be sent again: as
// much as the gateway keeps for its retries. A body in the buffer needs none of it.
const bodyKept = 64 << 10

// clientBody is what a client sends, read from its start each time that the request is
// sent: from the buffer, if it is the request's input, and else as long as no more was taken
// than is kept.
type clientBody struct {
	of *http.Request
	// announced are the names of the trailers that may follow it. The request's own map of
	// them changes when the body has been read to its end, and not before.
	announced []string
	input     *engine.Input // nil: it is not in the buffer

	mu      sync.Mutex // held while the request's body is read
	kept    []byte
	spent   atomic.Bool // more was read than is kept
	ended   atomic.Bool // it was read to its end
	failure atomic.Pointer[error]

	beyond sync.Once // what is not in the buffer is kept
	// interrupted tells that a failure is none of the client's.
	interrupted atomic.Bool
}

func newClientBody(r *http.Request) *clientBody {
	b := &clientBody{of: r}
	b.ended.Store(r.ContentLength == 0)
	for name := range r.Trailer {
		b.announced = append(b.announced, name)
	}
	return b
}

// open begins from the start. What was opened before must have been closed; a Read that is
// under way in it takes nothing away. trailer is filled at the end.
func (b *clientBody) open(ctx context.Context, trailer http.Header) (io.ReadCloser, error) {
	live := &sending{body: b, trailer: trailer}
	if b.input == nil {
		return live, nil
	}
	stored, err := b.input.NewReader(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the request's body: %w", err)
	}
	return &following{stored: stored, live: live}, nil
}

// trailer returns the trailers that are announced, without values; nil if there are none.
func (b *clientBody) trailer() http.Header {
	if len(b.announced) == 0 {
		return nil
	}
	h := http.Header{}
	for _, name := range b.announced {
		h[name] = nil
	}
	return h
}

// whole tells whether the body can be sent from its start.
func (b *clientBody) whole() bool { return !b.spent.Load() }

// failed is why the client's body could not be read to its end, nil if it could or still may.
func (b *clientBody) failed() error { return load(&b.failure) }

// closeUnread has the connection closed after an answer that comes before the body's end. The
// server would take what it has not read of a body for the next request, if a read was
// interrupted: a client could write itself one that the gateway has not seen.
func (b *clientBody) closeUnread(h http.Header) {
	if b.of.ProtoMajor == 1 && !b.ended.Load() {
		h.Set("Connection", "close")
	}
}

// refused is why the node does not take the body, nil if it does.
func (b *clientBody) refused() error {
	if b.input == nil || b.failed() != nil || b.input.Ended().IsZero() {
		return nil
	}
	return b.input.Wait(context.Background()) // at once: it has ended
}

// Read takes what comes from the client. Only the way into the buffer calls it.
func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.take(p)
}

// take reads from the client; the caller holds mu.
func (b *clientBody) take(p []byte) (int, error) {
	n, err := b.of.Body.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	} else if err != nil {
		if !b.interrupted.Load() {
			b.failure.CompareAndSwap(nil, &err)
		}
		err = because(errClientGone, err)
	}
	return n, err
}

// spill keeps what of the body came and found no room in the buffer. All that is in there has
// been read.
func (b *clientBody) spill() {
	b.beyond.Do(func() {
		if rest, spilled := b.input.Rest(); spilled {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept = rest
		}
	})
}

// sending is one time that a body is sent.
type sending struct {
	body    *clientBody
	trailer http.Header
	at      int // of what is kept
	closed  atomic.Bool
}

func (s *sending) Read(p []byte) (int, error) {
	b := s.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case s.closed.Load():
		return 0, http.ErrBodyReadAfterClose
	case s.at < len(b.kept):
		n := copy(p, b.kept[s.at:])
		s.at += n
		return n, nil
	}
	n, err := b.take(p)
	if err == io.EOF {
		s.end()
	}
	if b.spent.Load() {
		return n, err
	}
	// Bytes that nobody waits for any more are the next one's.
	if len(b.kept)+n > bodyKept && !s.closed.Load() {
		b.spent.Store(true)
		b.kept = nil
		return n, err
	}
	b.kept = append(b.kept, p[:n]...)
	s.at += n
	return n, err
}

// end gives the trailers their values.
func (s *sending) end() {
	if s.trailer != nil && !s.closed.Load() {
		maps.Copy(s.trailer, s.body.of.Trailer)
	}
}

// Close leaves the body itself to the server that received it.
func (s *sending) Close() error {
	s.closed.Store(true)
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
		if n > 0 || err != io.EOF {
			return n, err
		}
		f.past = true
		f.live.body.spill()
	}
	return f.live.Read(p)
}

func (f *following) Close() error {
	return errors.Join(f.stored.Close(), f.live.Close())
}
