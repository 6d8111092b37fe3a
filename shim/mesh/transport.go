package mesh

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// connectTimeout covers three SYNs on a link of 200 ms; handshakeTimeout the sidecar's
	// answer on a busy node.
	connectTimeout   = time.Second
	handshakeTimeout = 5 * time.Second
	// maxTransports is the number of server names with a transport. There is one per
	// function; the rest are made again when they are needed.
	maxTransports = 1024
)

// protocols are what Istio's own proxies offer for HTTP/1.1. The sidecars tell the mesh's
// mutual TLS from the applications' own by the first.
var protocols = []string{"istio-http/1.1", "istio", "http/1.1"}

// Transport returns what takes requests to workloads behind sidecars, which know the
// service by sni, such as outbound_.80_._.fire.default.svc.cluster.local. It speaks HTTP/1.1
// over the mesh's mutual TLS, whatever the URL's scheme, with the address in the URL, and
// opens a connection for each request, which so never meets one that is just being closed.
// Requests wait for the first certificate as long as their contexts last.
func (c *Client) Transport(sni string) http.RoundTripper {
	return c.transports.get(sni, func() *http.Transport {
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.dial(ctx, network, address, sni)
		}
		return &http.Transport{
			DialContext:        dial,
			DialTLSContext:     dial,
			DisableKeepAlives:  true,
			DisableCompression: true, // bodies pass as they are
		}
	})
}

func (c *Client) dial(ctx context.Context, network, address, sni string) (net.Conn, error) {
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
		NextProtos: protocols,
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
		return nil, err
	}
	return conn, nil
}

// transports keeps at most maxTransports.
type transports struct {
	mu   sync.Mutex
	byID map[string]*http.Transport
}

func (t *transports) get(sni string, create func() *http.Transport) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.byID[sni]; found != nil {
		return found
	}
	if t.byID == nil {
		t.byID = map[string]*http.Transport{}
	}
	for old := range t.byID {
		if len(t.byID) < maxTransports {
			break
		}
		// Any: they hold no connections that are worth keeping.
		delete(t.byID, old)
	}
	t.byID[sni] = create()
	return t.byID[sni]
}

func (t *transports) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, old := range t.byID {
		old.CloseIdleConnections()
	}
	t.byID = nil
}
