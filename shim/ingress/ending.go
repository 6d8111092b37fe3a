package ingress

import (
	"context"
	"io"
	"net/http/httptrace"
)

// ending tells when the other side of a connection has ended it, and why.
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

func (e ending) over() context.Context { return e.ended }

// untilEnded stops the body of a request, with the reason, when the other side has ended the
// connection on which that is: an HTTP/1.1 transport waits for more of the body before it tells
// anybody. What that side has sent before is still read. One of HTTP/2 closes the body itself. forget
// is called when the request is over.
func untilEnded(ctx context.Context, stop func(cause error)) (tracing context.Context, forget func()) {
	unwatch := func() bool { return true }
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if c, tells := i.Conn.(interface{ over() context.Context }); tells {
			unwatch = context.AfterFunc(c.over(), func() { stop(context.Cause(c.over())) })
		}
	}})
	return ctx, func() { unwatch() }
}
