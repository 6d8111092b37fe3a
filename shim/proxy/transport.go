package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// continueTimeout is how long a request with Expect: 100-continue waits for the
	// function's word before its body is sent anyway; many programs never say it.
	continueTimeout = time.Second
	// answerHeadLimit bounds an answer's headers, in bytes: as many as Envoy takes.
	answerHeadLimit = 60 << 10
)

// Transports are by what the other side speaks: HTTP/1.1, or HTTP/2 without TLS, by prior knowledge.
type Transports struct{ H1, H2 http.RoundTripper }

// NewTransports are for functions and what starts them: each request has a connection of its own,
// that comes about within dial.
func NewTransports(dial time.Duration) Transports {
	return Transports{H1: newTransport(dial), H2: lonely(dial)}
}

// For is the transport for one protocol.
func (t Transports) For(h2 bool) http.RoundTripper {
	if h2 {
		return t.H2
	}
	return t.H1
}

// lonely sends requests by HTTP/2, each over a connection of its own. A transport would have
// those that come at the same time share one, and close it under the others when the first
// of them is over.
type lonely time.Duration

// RoundTrip implements http.RoundTripper.
func (dial lonely) RoundTrip(r *http.Request) (*http.Response, error) {
	t := newTransport(time.Duration(dial))
	// Not by a functionConn: this transport reads no further while a Write of its own lasts, and it
	// is told of an answer's end by a frame.
	t.DialContext = (&net.Dialer{Timeout: time.Duration(dial)}).DialContext
	t.Protocols = new(http.Protocols)
	t.Protocols.SetUnencryptedHTTP2(true)
	t.DisableKeepAlives = true // the limit there is of HTTP/1.1
	return t.RoundTrip(r)
}

// newTransport keeps no connections: a kept one may be closed by the function just as the next request is written, and what is no GET
// cannot be sent twice. See Kept for functions that are called again and again.
func newTransport(dial time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: dial}
	t := Plain()
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if tcp, is := c.(*net.TCPConn); is {
			return functionConn{tcp, newEnding()}, err
		}
		return c, err
	}
	// And not DisableKeepAlives, which says "Connection: close": whether it does is up to Hop.Prepare.
	t.MaxIdleConnsPerHost = -1
	return t
}

// Plain is a transport for answers that pass as the other side wrote them.
func Plain() *http.Transport {
	return &http.Transport{
		DisableCompression:     true,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: answerHeadLimit,
	}
}

// opDial is the operation in the errors of connections that do not come about.
const opDial = "dial"

// IsDial tells whether err means that no connection came about to the other side.
func IsDial(err error) bool {
	if _, ofBody := errors.AsType[unread](err); ofBody {
		return false
	}
	dial, is := errors.AsType[*net.OpError](err)
	return is && dial.Op == opDial
}

// marked is a body whose failures are unread, and none of the connection that it is sent by.
type marked struct{ io.ReadCloser }

func (b marked) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = unread{err}
	}
	return n, err
}

// unread is why a body could not be read where it comes from: by a connection of its own, perhaps.
type unread struct{ error }

func (e unread) Unwrap() error { return e.error }
