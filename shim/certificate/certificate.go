// Package certificate has an authority sign certificates for those that show a token: each is for a
// new key, which never leaves the memory, and is replaced in time.
package certificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// shortest is the least time between two certificates, whatever their lifetime.
	shortest = time.Second
	// fileLimit bounds a token or an authority's certificates, in bytes. They have a few thousand.
	fileLimit = 1 << 20
)

// Keep has obtain get certificates until ctx ends: the next one after two thirds of the lifetime of
// the last. After a failure it is tried again, first after about the pause first, finally after longest.
func Keep(ctx context.Context, first, longest time.Duration, obtain func(context.Context) (*x509.Certificate, error)) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = first, longest
	for {
		cert, err := obtain(ctx)
		wait := pause.NextBackOff()
		if err == nil {
			wait = max(time.Until(renewal(cert)), shortest)
			pause.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// renewal is when two thirds of the certificate's lifetime are over.
func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// Request makes a key, and the request (PKCS #10, DER) for its certificate. It names nobody: the
// authority takes the identity from the token.
func Request(addresses ...netip.Addr) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	request := &x509.CertificateRequest{}
	for _, a := range addresses {
		request.IPAddresses = append(request.IPAddresses, net.IP(a.AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, request, key)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate request: %w", err)
	}
	return key, der, nil
}

// ReadFile reads a token or an authority's certificates, which the kubelet replaces now and then.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, fileLimit))
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s is empty", path)
	}
	return text, err
}
