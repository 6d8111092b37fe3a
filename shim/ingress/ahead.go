package ingress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// squashTimeout is how long the program of a squashed attempt may work on until its instance is replaced.
const squashTimeout = 10 * time.Second

// Ahead has an instance of this node work on a request before its turn, as a request like those of Gateway, and waits for the answer.
// It waits for an instance as long as those that are there have other requests. When the attempt is squashed, Ahead returns at once,
// and so it does when the request's context ends.
func (in *Ingress) Ahead(a *attempt.Attempt, r *http.Request, keep call.Keep) call.Answer {
	ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
	if in.stopping.Err() != nil {
		end()
		return call.Answer{Failed: problem.Of(errStopping)}
	}
	done := make(chan call.Answer, 1)
	in.ahead.Go(func() {
		defer end()
		defer context.AfterFunc(in.stopping, end)()
		done <- call.Do(in.beforeTurn(a), r.WithContext(ctx), keep)
	})
	select {
	case answer := <-done:
		return answer
	case <-r.Context().Done():
		if !a.Squash() {
			end()
			return <-done
		}
	case <-a.Squashed():
	}
	return call.Answer{Failed: attempt.ErrSquashed}
}

// beforeTurn serves the request of an attempt.
func (in *Ingress) beforeTurn(a *attempt.Attempt) http.Handler {
	own := func(r *http.Request, p *parked) error {
		p.attempt = a
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.serve(w, r, entrance{admit: own}, func(ctx context.Context, r *http.Request, p *parked) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			if !a.Wait(func() { cancel(attempt.ErrSquashed) }) {
				return attempt.ErrSquashed
			}
			return in.deliver(ctx, w, r, p, "")
		})
	})
}

// connection is the one by which a function gets a request before its turn.
type connection struct {
	end context.CancelFunc

	mu       sync.Mutex
	writing  interface{ CloseWrite() error }
	squashed *time.Timer
}

// watched returns a context whose request's connection is the one to be squashed.
func (c *connection) watched(ctx context.Context) context.Context {
	ctx, c.end = context.WithCancel(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.writing, _ = info.Conn.(interface{ CloseWrite() error })
		if c.squashed != nil {
			c.halfClose()
		}
	}})
}

// squash has the function know that nobody waits for its answer: the connection's half is closed, and Go's context of the request
// ends. Its answer, or the connection's end, says that it works on it no more. One that goes on for too long is cut off.
func (c *connection) squash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.squashed = time.AfterFunc(squashTimeout, c.end)
	c.halfClose()
}

// halfClose does it, if there is a connection; the caller holds mu.
func (c *connection) halfClose() {
	if c.writing == nil || c.writing.CloseWrite() != nil {
		c.end()
	}
}

// close lets go of it.
func (c *connection) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	if c.squashed != nil {
		c.squashed.Stop()
	}
}

// forwardAhead hands the request of an attempt to an instance. One that was squashed, and has not answered, may work on: it is
// replaced.
func (in *Ingress) forwardAhead(ctx context.Context, p *parked, instance string, forward func(context.Context) error) error {
	c := &connection{}
	ctx = c.watched(ctx)
	defer c.close()
	if !p.attempt.Begin(c.squash) {
		return attempt.ErrSquashed
	}
	err := forward(ctx)
	if !p.attempt.IsSquashed() {
		return err
	}
	if err != nil && !isUndelivered(err) {
		in.config.Log.Info("a program works on after its request was squashed, and is replaced", "function", p.function.GetName(),
			"instance", instance, "error", err)
		in.config.Instances.Replace(instance)
	}
	return errors.Join(attempt.ErrSquashed, err)
}
