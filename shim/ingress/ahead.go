package ingress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// squashTimeout is how long the program of a squashed attempt may work on until its instance is replaced.
const squashTimeout = 10 * time.Second

// Ahead has an instance of this node work on a request before its turn, as a request like those of Gateway, and waits for the answer.
// It waits for an instance as long as those that are there have other requests. When the attempt is squashed, Ahead returns at once,
// and so it does when the request's context ends.
func (in *Ingress) Ahead(a *attempt.Attempt, r *http.Request, keep call.Keep) call.Answer {
	ctx, end := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan call.Answer, 1)
	if !in.beside.begin(func() {
		defer end()
		defer context.AfterFunc(in.stopping, end)()
		done <- call.Do(in.beforeTurn(a), r.WithContext(ctx), keep)
	}) {
		end()
		return call.Answer{Failed: problem.Of(errStopping)}
	}
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
	attempt *attempt.Attempt
	// sidecar: one is between, which answers for a program as soon as half of the connection is closed. It is not, and the program works
	// to the end of the request.
	sidecar bool
	end     context.CancelFunc

	mu      sync.Mutex
	conn    net.Conn
	half    interface{ CloseWrite() error } // nil: it has no halves
	got     bool                            // the program may have the request
	written bool                            // it has all of it
	late    *time.Timer                     // set: the attempt is squashed
	at      time.Time                       // since when
	over    bool                            // another request may have it
}

// watched returns a context whose request's connection is the one to be squashed. The attempt begins when there is a connection: a
// request that nobody gets is bound again in its turn.
func (c *connection) watched(ctx context.Context) context.Context {
	ctx, c.end = context.WithCancel(ctx)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			began := c.attempt.Begin(c.squash)
			c.mu.Lock()
			defer c.mu.Unlock()
			if !began {
				_ = info.Conn.Close() // so that the program gets no request
				return
			}
			c.conn = info.Conn
			c.half, _ = info.Conn.(interface{ CloseWrite() error })
			c.got = true
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.written = true; c.late != nil {
				c.halfClose()
			}
		},
	})
}

// squash has the function know that nobody waits for its answer: when it has the request, the connection's half is closed, and Go's
// context of the request ends. Its answer, or the connection's end, says that it works on it no more. One that goes on for too long is
// cut off.
func (c *connection) squash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.at, c.late = time.Now(), time.AfterFunc(squashTimeout, c.end)
	if c.written {
		c.halfClose()
	}
}

// halfClose does it; the caller holds mu.
func (c *connection) halfClose() {
	if c.sidecar {
		return
	}
	if c.half == nil || c.half.CloseWrite() != nil {
		c.end()
	}
}

// close lets go of it, and tells whether the program may have had the request, and since when that is squashed.
func (c *connection) close() (got bool, squashed time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.over = true
	if c.late != nil {
		c.late.Stop()
		if c.conn != nil {
			_ = c.conn.Close() // there is only half of it
		}
	}
	return c.got, c.at
}

// forwardAhead hands the request of an attempt to an instance. A program that has not answered whole may work on: unless its turn has
// come, its instance is replaced.
func (in *Ingress) forwardAhead(ctx context.Context, p *parked, instance string, at sandboxes.Endpoint, forward func(context.Context) error) error {
	c := &connection{attempt: p.attempt, sidecar: at.MeshSNI != ""}
	ctx = c.watched(ctx)
	err := forward(ctx)
	got, squashed := c.close()
	if !squashed.IsZero() && got {
		in.config.Metrics.squashed.Observe(time.Since(squashed).Seconds())
	}
	if err == nil {
		p.attempt.Answered()
	}
	p.attempt.Ended()
	if err == nil && !p.attempt.IsSquashed() {
		return nil
	}
	if err != nil && got && p.attempt.Squash() {
		in.config.Log.Info("a program may work on after its request was given up before its turn, and is replaced", "function",
			p.function.GetName(), "instance", instance, "error", err)
		in.config.Instances.Replace(instance)
	}
	if !p.attempt.IsSquashed() {
		return err
	}
	return errors.Join(attempt.ErrSquashed, err)
}
