// Package identity is the node's certificate where nobody puts one on its disk: it has the
// control plane sign it, by the token of the daemon's service account, and renews it in
// time. The key is made anew for each and never leaves the memory.
package identity

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/headstart-mesh/headstart/shim/certificate"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// issueTimeout bounds one attempt. The control plane asks the API server whose the token
	// is, which may be slow.
	issueTimeout = 10 * time.Second
	// Nothing leaves the node without a certificate: try again soon, and settle at a pace
	// that a control plane with many nodes bears when it comes back.
	retryFirst, retryLongest = 200 * time.Millisecond, 10 * time.Second
)

// Config says who signs, and what proves who the node is.
type Config struct {
	// Address is the Identity service's, host:port, and ServerName its name there.
	Address, ServerName string
	// TokenFile has the service account's token, AuthorityFile the certificates (PEM) of
	// the authority. Both are read anew each time: the kubelet replaces them.
	TokenFile, AuthorityFile string
	// RevokedDir has a file named like each node whose certificate does not count. Empty: there is no such list.
	RevokedDir string
	// Addresses are the node's own, for those who dial it.
	Addresses []netip.Addr
	Log       *slog.Logger
}

// Identity is the node's certificate, once there is one. Its methods may be called at the
// same time.
type Identity struct {
	config Config

	mu          sync.Mutex
	certificate *tls.Certificate // nil: none yet
	authority   *x509.CertPool   // the last that could be read
}

// New returns an identity without a certificate; Run obtains it.
func New(c Config) *Identity { return &Identity{config: c} }

// Run obtains the certificate and renews it after two thirds of its lifetime, until ctx
// ends. While it cannot, the certificate that is there stays in use.
func (i *Identity) Run(ctx context.Context) {
	certificate.Keep(ctx, retryFirst, retryLongest, func(ctx context.Context) (*x509.Certificate, error) {
		cert, err := i.issue(ctx)
		switch {
		case err == nil:
			i.mu.Lock()
			i.certificate = cert
			i.mu.Unlock()
			i.config.Log.Info(
				"the node has a certificate", "name", cert.Leaf.Subject.CommonName, "until", cert.Leaf.NotAfter,
			)
			return cert.Leaf, nil
		case ctx.Err() == nil:
			i.config.Log.Warn("the node gets no certificate; it tries again", "error", err, "valid_until", i.until())
		}
		return nil, err
	})
}

// until is how long the certificate is good, zero without one.
func (i *Identity) until() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.certificate == nil {
		return time.Time{}
	}
	return i.certificate.Leaf.NotAfter
}

// issue has one certificate signed.
func (i *Identity) issue(ctx context.Context) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, issueTimeout)
	defer cancel()
	token, err := certificate.ReadFile(i.config.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the service account's token: %w", err)
	}
	authority, err := i.trusted()
	if err != nil {
		return nil, err
	}
	key, csr, err := certificate.Request(i.config.Addresses...)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+i.config.Address, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority, ServerName: i.config.ServerName})))
	if err != nil {
		return nil, fmt.Errorf("connecting to the control plane: %w", err)
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := nodeapi.NewIdentityClient(conn).Issue(ctx, &nodeapi.IssueRequest{CertificateRequest: csr})
	if err != nil {
		return nil, fmt.Errorf("asking the control plane at %s for a certificate: %w", i.config.Address, err)
	}
	cert, err := check(res.GetCertificate(), key, authority)
	if err != nil {
		return nil, fmt.Errorf("the control plane's certificate for this node: %w", err)
	}
	return cert, nil
}

// check makes sure that a certificate is for key, named, and of the authority: a wrong one
// would only show at the peers.
func check(chain []byte, key *ecdsa.PrivateKey, authority *x509.CertPool) (*tls.Certificate, error) {
	cert := &tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert.Certificate = append(cert.Certificate, block.Bytes)
		}
	}
	if len(cert.Certificate) == 0 {
		return nil, errors.New("it is none")
	}
	var err error
	if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		return nil, err
	}
	if !key.PublicKey.Equal(cert.Leaf.PublicKey) {
		return nil, errors.New("it is of another key")
	}
	if cert.Leaf.Subject.CommonName == "" {
		return nil, errors.New("it has no name")
	}
	between := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err = cert.Leaf.Verify(x509.VerifyOptions{Roots: authority, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return cert, err
}

// trusted reads the authority. When that fails, the last one is still good.
func (i *Identity) trusted() (*x509.CertPool, error) {
	text, err := certificate.ReadFile(i.config.AuthorityFile)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s holds no PEM certificate", i.config.AuthorityFile)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err == nil:
		i.authority = pool
	case i.authority == nil:
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	return i.authority, nil
}
