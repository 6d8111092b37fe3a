package connections

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

const (
	// keptMost is how many unused connections with a destination the node keeps for workflows, and keptFor how long: servers
	// commonly keep theirs for a minute.
	keptMost = 4
	keptFor  = 30 * time.Second
	// dialMost is how long it may take to find and reach a server, and handshakeMost how long that may take for TLS: nobody ends them
	// sooner. What it takes to answer, the workflow's timeout bounds.
	dialMost, handshakeMost = 5 * time.Second, 10 * time.Second
	// pingAfter is how long a connection of HTTP/2 may be silent until it is asked whether it is still there, which takes pingMost.
	pingAfter, pingMost = 15 * time.Second, 10 * time.Second
	// headersMost bounds the headers of an answer in bytes, as Envoy's default does.
	headersMost = 60 << 10
)

// outside sends workflows' requests to a destination.
type outside struct {
	*http.Transport
	of *destination
}

// RoundTrip implements http.RoundTripper. What is wrong with the destination, the operator hears.
func (o outside) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.Transport.RoundTrip(r)
	if err == nil || r.Context().Err() == nil { // else nobody waits for it any more
		o.of.note(err)
	}
	return resp, err
}

// Outside returns what sends a workflow's requests to a URL's server, and the name of its destination: one of the kind tls for
// https, and of the kind tcp for http, that is granted to the workflow's namespace, and whose connections may be the node's. nil:
// there is none.
func (s *Server) Outside(namespace string, u *url.URL) (http.RoundTripper, string) {
	kind, port := destinations.KindTCP, "80"
	if u.Scheme == "https" {
		kind, port = destinations.KindTLS, "443"
	}
	if p := u.Port(); p != "" {
		port = p
	}
	address := net.JoinHostPort(strings.ToLower(u.Hostname()), port)
	for _, name := range s.list.names() {
		d, err := s.list.get(name, namespace)
		if err == nil && d.http != nil && d.config.GetKind() == kind && d.config.GetAddress() == address {
			return outside{d.http, d}, name
		}
	}
	return nil, ""
}

// openHTTP has a destination take the requests of workflows, which have no sandbox to connect from.
func (d *destination) openHTTP() {
	if !d.raw() || !d.onNode() {
		return
	}
	var secured *tls.Config
	if d.tls != nil {
		secured = d.tls.Clone() // to which the transport adds the protocols that it speaks
	}
	d.http = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialMost)
			defer cancel()
			return d.dial(ctx, fromNode)
		},
		TLSClientConfig: secured, TLSHandshakeTimeout: handshakeMost, ForceAttemptHTTP2: secured != nil,
		HTTP2:        &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingMost},
		MaxIdleConns: keptMost, MaxIdleConnsPerHost: keptMost, IdleConnTimeout: keptFor, MaxResponseHeaderBytes: headersMost,
	}
}

// shut ends the connections that are workflows': those with servers by HTTP as far as they are unused. gone: there are to be no more of them.
func (d *destination) shut(gone bool) {
	if d.http != nil {
		d.http.CloseIdleConnections()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = d.gone || gone
	if d.store != nil {
		_ = d.store.Close() // it has nothing left to say
		d.store = nil
	}
}
