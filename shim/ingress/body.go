package ingress

import (
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// bodyKept is how much of a request's own body is kept, in bytes, to be sent again: as
// much as the gateway keeps for its retries.
const bodyKept = 64 << 10

// clientBody is what a client sends, read from its start each time that the request is
// sent, as long as that has not taken more than is kept.
type clientBody struct {
	from io.ReadCloser

	mu      sync.Mutex // held while from is read
	kept    []byte
	spent   atomic.Bool // more was read than is kept
	failure atomic.Pointer[error]
}

// open begins from the start. What was opened before must have been closed; a Read that is
// under way in it takes nothing away.
func (b *clientBody) open() io.ReadCloser { return &sending{body: b} }

// whole tells whether the body can be sent from its start.
func (b *clientBody) whole() bool { return !b.spent.Load() }

// failed is why the body could not be read to its end, nil if it could or still may.
func (b *clientBody) failed() error { return load(&b.failure) }

// sending is one time that a body is sent.
type sending struct {
	body   *clientBody
	at     int // of what is kept
	closed atomic.Bool
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
	n, err := b.from.Read(p)
	if err != nil && err != io.EOF {
		b.failure.CompareAndSwap(nil, &err)
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

// Close leaves the body itself to the server that received it.
func (s *sending) Close() error {
	s.closed.Store(true)
	return nil
}
