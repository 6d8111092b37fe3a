package connections

import (
	"context"
	"sync"
)

const (
	// firstWithin is how long a sandbox' first request is waited for, as long as a program has for its start-up.
	firstWithin = startTimeout
	// heldMost is how many spans a sandbox has held for that: programs open a few connections before they serve.
	heldMost = 16
)

// first holds what is told of a sandbox's connections until it gets its first request, which they were made for. Its zero
// value holds nothing.
type first struct {
	mu    sync.Mutex
	begun bool
	waits bool
	held  []func(traceparent string)
}

// hold has the request's trace told later; false: it is not waited for.
func (f *first) hold(tell func(traceparent string)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.waits || len(f.held) >= heldMost {
		return false
	}
	f.held = append(f.held, tell)
	return true
}

// begin tells whether nobody has begun to wait.
func (f *first) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.begun {
		return false
	}
	f.begun, f.waits = true, true
	return true
}

// over tells the trace; empty: there was no request in time.
func (f *first) over(traceparent string) {
	f.mu.Lock()
	held := f.held
	f.waits, f.held = false, nil
	f.mu.Unlock()
	for _, tell := range held {
		tell(traceparent)
	}
}

// awaitFirst waits for the first request of a sandbox that starts.
func (s *Server) awaitFirst(sb *sandbox) {
	if !sb.first.begin() {
		return
	}
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(sb.ctx, firstWithin)
		defer cancel()
		sb.first.over(s.config.Next(ctx, sb.id))
	})
}
