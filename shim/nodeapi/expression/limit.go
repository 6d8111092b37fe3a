package expression

import (
	"context"
	"runtime"
	"time"
)

// stepsBetween is how many of gojq's steps are between two looks at the clock: none takes more than some milliseconds.
const stepsBetween = 16

// limited ends an evaluation with its context, and when it has taken TimeLimit of a processor's time. On a busy machine it may have to wait
// for one, and that is not the expression's fault. gojq asks for Done at each of its steps, and from one goroutine.
type limited struct {
	context.Context
	steps  int
	began  time.Time
	worked time.Duration // the thread's time when it began
	over   bool
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// limit begins an evaluation, of which the goroutine has its thread for itself until stop.
func limit(ctx context.Context) (_ context.Context, stop func()) {
	runtime.LockOSThread()
	return &limited{Context: ctx, began: time.Now(), worked: threadTime()}, runtime.UnlockOSThread
}

// Done implements context.Context.
func (l *limited) Done() <-chan struct{} {
	if l.steps++; l.steps%stepsBetween == 0 && time.Since(l.began) > TimeLimit { // the thread's time is no longer than that
		l.over = threadTime()-l.worked > TimeLimit
	}
	if l.over {
		return closed
	}
	return l.Context.Done()
}

// Err implements context.Context.
func (l *limited) Err() error {
	if l.over {
		return context.DeadlineExceeded
	}
	return l.Context.Err()
}
