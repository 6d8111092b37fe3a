package sandboxes

import (
	"context"
	"time"
)

// News wakes those who wait for something. Its zero value is ready to use; the lock of what it
// is about guards it.
type News struct{ next chan struct{} }

// Next is closed by the next Tell.
func (n *News) Next() <-chan struct{} {
	if n.next == nil {
		n.next = make(chan struct{})
	}
	return n.next
}

// Tell wakes all who wait.
func (n *News) Tell() {
	if n.next != nil {
		close(n.next)
		n.next = nil
	}
}

// Announced waits a little for something to be announced: a request or a shim can overtake the
// control plane's message. It looks at once and after each news, until look returns an error or
// no news to wait for; after patience its error is late.
func Announced[T any](
	ctx context.Context, patience time.Duration, late error, look func() (T, <-chan struct{}, error),
) (T, error) {
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		found, news, err := look()
		if news == nil || err != nil {
			return found, err
		}
		select {
		case <-news:
		case <-over.C:
			return found, late
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
}
