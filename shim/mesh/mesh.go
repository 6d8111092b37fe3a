// Package mesh makes the daemon a workload of an Istio mesh: it has a certificate of the
// mesh's authority, and delivers requests to sidecars over the mesh's mutual TLS, so that
// STRICT mode is kept and AuthorizationPolicies see who sent a request.
package mesh

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/certificate"
)

const (
	// DefaultTrustDomain is Istio's, if the mesh does not say otherwise.
	DefaultTrustDomain = "cluster.local"
	// lifetime is what is asked for. The authority may give less.
	lifetime = 24 * time.Hour
	// retryFirst and retryLast bound the time between two attempts to get a certificate.
	retryFirst = time.Second
	retryLast  = 30 * time.Second
)

// Config says where the mesh's authority is, and who we are for it.
type Config struct {
	// Authority is host:port of istiod's certificate service, such as
	// istiod.istio-system.svc:15012. Its certificate is for the host.
	Authority string
	// RootFile has the mesh's roots as PEM: root-cert.pem of the ConfigMap
	// istio-ca-root-cert. It is read anew whenever it is needed.
	RootFile string
	// TokenFile has a service account's token with the audience istio-ca.
	TokenFile string
	// TrustDomain is the mesh's. Empty: DefaultTrustDomain.
	TrustDomain string
	// Cluster is the id that istiod has for this cluster. Empty: its only one.
	Cluster string
	Log     *slog.Logger
}

// Client has a certificate of the mesh's authority, and renews it.
type Client struct {
	cfg    Config
	stop   context.CancelFunc
	ended  <-chan struct{} // closed by stop
	worker sync.WaitGroup

	mu      sync.Mutex
	current *credential // nil until the first is there
	failure error       // of the last attempt, while current is nil
	first   chan struct{}
}

// credential is a certificate with the roots that were good with it.
type credential struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	roots       *x509.CertPool
}

// New starts to get a certificate and returns at once: requests that come before it is
// there wait for it. The client works until ctx ends or Close is called.
func New(ctx context.Context, cfg Config) (*Client, error) {
	if _, _, err := net.SplitHostPort(cfg.Authority); err != nil {
		return nil, fmt.Errorf("the mesh's authority: %w", err)
	}
	if cfg.RootFile == "" || cfg.TokenFile == "" {
		return nil, errors.New("the mesh's authority: files with its roots and with a token are needed")
	}
	cfg.TrustDomain = cmp.Or(cfg.TrustDomain, DefaultTrustDomain)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, first: make(chan struct{}), failure: errors.New("it has not been asked yet")}
	ctx, c.stop = context.WithCancel(ctx)
	c.ended = ctx.Done()
	c.worker.Go(func() { c.renew(ctx) })
	return c, nil
}

// Close ends the renewal, and requests that wait for a certificate.
func (c *Client) Close() {
	c.stop()
	c.worker.Wait()
}

func (c *Client) renew(ctx context.Context) {
	certificate.Keep(ctx, retryFirst, retryLast, func(ctx context.Context) (*x509.Certificate, error) {
		next, err := c.request(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c.take(next, err)
		if err != nil {
			c.cfg.Log.Warn("no certificate of the mesh", "authority", c.cfg.Authority, "error", err)
			return nil, err
		}
		c.cfg.Log.Info("certificate of the mesh", "identity", next.leaf.URIs[0].String(), "until", next.leaf.NotAfter)
		return next.leaf, nil
	})
}

// take makes next the current credential. After a failure the old one stays, as long as
// it lasts.
func (c *Client) take(next *credential, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failure = err
		return
	}
	if c.current == nil {
		close(c.first)
	}
	c.current, c.failure = next, nil
}

var errClosed = errors.New("the client of the mesh's authority is closed")

// credential waits for the first one, as long as the client works: a transport goes on with a
// connection whose request is over.
func (c *Client) credential(ctx context.Context) (*credential, error) {
	select {
	case <-c.first:
	case <-c.ended:
		return nil, errClosed
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current == nil {
			return nil, fmt.Errorf("no certificate of the mesh's authority: %w", c.failure)
		}
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := time.Until(c.current.leaf.NotAfter); left <= 0 {
		return nil, fmt.Errorf("the certificate of the mesh's authority has ended %v ago: %w", -left.Round(time.Second), cmp.Or(c.failure, errors.New("no new one yet")))
	}
	return c.current, nil
}
