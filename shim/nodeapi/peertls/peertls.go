// Package peertls is how node daemons, gateways and the control plane prove to each
// other who they are: mutual TLS 1.3 under one authority. A peer's name is the common
// name of its certificate, and nothing that it says itself.
package peertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Load reads one party's PEM files and returns its configuration as a server and as a
// client. The server refuses clients without a certificate of the authority in caFile.
// The client has no ServerName: take ClientFor(client, name) to dial, crypto/tls
// refuses to dial without.
func Load(certFile, keyFile, caFile string) (server, client *tls.Config, err error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("loading certificate %s and its key: %w", certFile, err)
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, nil, fmt.Errorf("reading authority: %w", err)
	}
	authority := x509.NewCertPool()
	if !authority.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("authority %s holds no PEM certificate", caFile)
	}
	server = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authority,
	}
	client = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      authority,
	}
	return server, client, nil
}

// ClientFor returns client for dialing the peer called name: a server whose
// certificate does not carry that DNS name is refused.
func ClientFor(client *tls.Config, name string) *tls.Config {
	c := client.Clone()
	c.ServerName = name
	return c
}

// Named returns client for dialing the peer whose certificate has that common name. ClientFor says at which
// address a peer is, and another one may have that by now.
func Named(client *tls.Config, name string) *tls.Config {
	c := client.Clone()
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if got, err := PeerName(s); err != nil || got != name {
			return fmt.Errorf("%s was to be reached, and the certificate is of %q", name, got)
		}
		return nil
	}
	return c
}

// ErrNoPeer says that a connection has no verified certificate with a name.
var ErrNoPeer = errors.New("connection has no verified peer")

// PeerName returns the verified peer's name, or ErrNoPeer.
func PeerName(state tls.ConnectionState) (string, error) {
	// PeerCertificates is filled before verification; only a verified chain counts.
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return "", ErrNoPeer
	}
	name := state.VerifiedChains[0][0].Subject.CommonName
	if name == "" {
		return "", ErrNoPeer
	}
	return name, nil
}

// Peer returns the verified name of the peer that a gRPC handler's context belongs
// to, or ErrNoPeer.
func Peer(ctx context.Context) (string, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", ErrNoPeer
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return "", ErrNoPeer
	}
	return PeerName(info.State)
}
