package platform

import (
	"context"
	"sync"
)

// Watchers are those who watch a platform's State. The zero value has none.
type Watchers struct {
	mu     sync.Mutex
	tokens map[chan struct{}]bool
}

// Watch is Platform.Watch.
func (w *Watchers) Watch(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tokens == nil {
		w.tokens = map[chan struct{}]bool{}
	}
	w.tokens[c] = true
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.tokens, c)
		close(c)
	})
	return c
}

// Changed tells them that State is another.
func (w *Watchers) Changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.tokens {
		select {
		case c <- struct{}{}:
		default: // a token is there already
		}
	}
}
