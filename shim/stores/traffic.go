package stores

import (
	"context"
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/shim/objects/source/s3"
)

// traffic is what functions have under way with stores. The zero value is none.
type traffic struct {
	mu   sync.Mutex
	busy int
	over chan struct{} // closed when nothing is under way any more
}

// enter counts a transfer until leave is called.
func (t *traffic) enter() (leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy == 0 {
		t.over = make(chan struct{})
	}
	t.busy++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.busy--; t.busy == 0 {
			close(t.over)
		}
	}
}

// Idle returns when functions wait for no store, or at ctx's end. It is for what nobody waits for.
func (s *Stores) Idle(ctx context.Context) {
	s.traffic.mu.Lock()
	busy, over := s.traffic.busy, s.traffic.over
	s.traffic.mu.Unlock()
	if busy == 0 {
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// Client is a store's S3 API for functions, whose requests count.
type Client struct {
	*s3.Source
	traffic *traffic
}

// Forward is s3.Source's.
func (a Client) Forward(r *http.Request) (*http.Response, error) {
	defer a.traffic.enter()()
	return a.Source.Forward(r)
}
