package mesh

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/proxy"
)

const (
	// connectTimeout covers three SYNs on a link of 200 ms; handshakeTimeout the sidecar's
	// answer on a busy node.
	connectTimeout   = time.Second
	handshakeTimeout = 5 * time.Second
)

// What Istio's own proxies offer for HTTP/1.1 and for HTTP/2. The sidecars tell the mesh's
// mutual TLS from the applications' own by the first.
var (
	protocolsH1 = []string{"istio-http/1.1", "istio", "http/1.1"}
	protocolsH2 = []string{"istio-h2", "istio", "h2"}
)

// Transport returns what takes requests to workloads behind sidecars, which know the
// service by sni, such as outbound_.80_._.fire.default.svc.cluster.local. It speaks HTTP/1.1,
// or HTTP/2 if h2 is set, over the mesh's mutual TLS, for URLs with the scheme http and the
// address. It is for one request, over a connection of its own, which so never meets one that
// is just being closed; by HTTP/2, two requests of one transport might share a connection, and
// the first that ends close it. Requests wait for the first certificate as long as their
// contexts last.
func (c *Client) Transport(sni string, h2 bool) http.RoundTripper {
	t := proxy.Plain()
	t.DisableKeepAlives = true
	offer := protocolsH1
	if h2 {
		offer = protocolsH2
		// For the transport the connection is plain: the TLS is dial's.
		t.Protocols = new(http.Protocols)
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.dial(ctx, network, address, sni, offer)
	}
	return t
}

func (c *Client) dial(ctx context.Context, network, address, sni string, offer []string) (net.Conn, error) {
	cred, err := c.credential(ctx)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: connectTimeout}
	raw, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS12,
		ServerName: sni,
		NextProtos: offer,
		// The certificate has a workload's identity and no host name: verify does it all.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state, cred.roots, c.cfg.TrustDomain, namespaceOf(sni))
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cred.certificate, nil },
	})
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		// As if no connection had come about: nobody gets a request by it. Another pod may have the
		// address by now.
		return nil, &net.OpError{Op: "dial", Net: "tls", Err: err}
	}
	return conn, nil
}
