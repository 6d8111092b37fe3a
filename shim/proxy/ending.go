package proxy

import (
	"context"
	"io"
	"net/http/httptrace"
)

// Ending is a connection that tells when its other side has ended it: then the context is over, and
// its cause says why.
type Ending interface{ Over() context.Context }

// ending is the part of a connection that implements Ending: it hears each read.
type ending struct {
	ended context.Context
	end   context.CancelCauseFunc
}

func newEnding() ending {
	ended, end := context.WithCancelCause(context.Background())
	return ending{ended, end}
}

// heard takes the error of each read from the connection.
func (e ending) heard(err error) {
	switch err {
	case nil:
	case io.EOF: // which in a body is its own end
		e.end(io.ErrUnexpectedEOF)
	default:
		e.end(err)
	}
}

// Over implements Ending.
func (e ending) Over() context.Context { return e.ended }

// onConnection prepares the connection that a request gets for a body of that many bytes, -1 for
// any number, and stops the body, with the reason, when the other side has ended that connection:
// an HTTP/1.1 transport waits for more of the body before it tells anybody. What that side has sent
// before is still read. One of HTTP/2 closes the body itself. forget is called when the request is
// over.
func onConnection(ctx context.Context, size int64, stop func(cause error)) (traced context.Context, forget func()) {
	unwatch := func() bool { return true }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if c, is := i.Conn.(*peerConn); is {
			c.carry(size)
		}
		if c, tells := i.Conn.(Ending); tells {
			unwatch = context.AfterFunc(c.Over(), func() { stop(context.Cause(c.Over())) })
		}
	}})
	return ctx, func() { unwatch() }
}
