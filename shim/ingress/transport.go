package ingress

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// functionDialTimeout: the function is on this node and has just been ready.
	functionDialTimeout = 2 * time.Second
	// continueTimeout is how long a request with Expect: 100-continue waits for the
	// function's word before its body is sent anyway; many programs never say it.
	continueTimeout = time.Second
	// answerHeadLimit bounds an answer's headers, in bytes: as many as Envoy takes.
	answerHeadLimit = 60 << 10
)

// What a function speaks. A gateway talks to the daemon as it talks to the function
// itself: both are endpoints of one cluster.
const (
	protocolH1 = "h1"
	protocolH2 = "h2" // without TLS, by prior knowledge
)

// transports are by protocol.
type transports map[string]http.RoundTripper

// protocol is what the function of a request speaks.
func protocol(r *http.Request) string {
	if r.ProtoMajor == 2 || r.TLS != nil && r.Header.Get(filterapi.HeaderProtocol) == protocolH2 {
		return protocolH2
	}
	return protocolH1
}

func newTransports(dial time.Duration) transports {
	return transports{protocolH1: newTransport(dial), protocolH2: lonely(dial)}
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

// newTransport keeps no connections: one over the node's own bridge takes some ten
// microseconds, while a kept one may be closed by the function just as the next request is
// written, and what is no GET cannot be sent twice.
func newTransport(dial time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: dial}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if tcp, is := c.(*net.TCPConn); is {
				return functionConn{tcp, newEnding()}, err
			}
			return c, err
		},
		// And not DisableKeepAlives, which says "Connection: close": see mayClose.
		MaxIdleConnsPerHost:    -1,
		DisableCompression:     true, // the answer is the client's, as the function wrote it
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: answerHeadLimit,
	}
}
