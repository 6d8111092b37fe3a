package ingress

import (
	"context"
	"net/http"
	"sync"
)

// crowd counts the requests that are in the node's hands, whatever becomes of them.
type crowd struct {
	mu       sync.Mutex
	n        int
	draining bool
	empty    chan struct{} // made by drain, closed when nobody is left
}

// enter counts a request until leave is called.
func (c *crowd) enter(w http.ResponseWriter) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.draining {
		// The connection's next request goes to whoever has the socket's path now.
		w.Header().Set("Connection", "close")
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.n--; c.n == 0 && c.draining {
			c.done()
		}
	}
}

// done tells that nobody is left; the caller holds mu.
func (c *crowd) done() {
	select {
	case <-c.empty:
	default:
		close(c.empty)
	}
}

// Drain is for a daemon whose sockets another has taken over: new connections go there, and
// those that gateways have kept get one more answer each. It returns when no request is in
// the node's hands any more, or when ctx ends. It is called once, before Close.
func (in *Ingress) Drain(ctx context.Context) {
	c := &in.crowd
	c.mu.Lock()
	c.draining, c.empty = true, make(chan struct{})
	if c.n == 0 {
		c.done()
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
	case <-ctx.Done():
	}
}
