package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

var errNone = errors.New("the node has no certificate yet; the daemon's log says why")

// Server returns the configuration of a server that refuses clients without a certificate
// of the authority. Each handshake has the certificate and the authority of its time.
func (i *Identity) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, err := i.present()
			if err != nil {
				return nil, err
			}
			authority, err := i.trusted()
			if err != nil {
				return nil, err
			}
			return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert},
				ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority, VerifyConnection: i.verify}, nil
		},
	}
}

// Client returns the configuration for one connection to the peer called name, which is a
// DNS name or an IP address.
func (i *Identity) Client(name string) (*tls.Config, error) {
	authority, err := i.trusted()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authority, ServerName: name, VerifyConnection: i.verify,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.present() }}, nil
}

// present returns the certificate of now.
func (i *Identity) present() (*tls.Certificate, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.certificate == nil {
		return nil, errNone
	}
	return i.certificate, nil
}

// Credentials are for gRPC connections to the peer called name.
func (i *Identity) Credentials(name string) credentials.TransportCredentials {
	return dialing{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: name}), identity: i, name: name}
}

// dialing makes the configuration for each connection: gRPC keeps the one that it is given.
type dialing struct {
	credentials.TransportCredentials
	identity *Identity
	name     string
}

// ClientHandshake implements credentials.TransportCredentials.
func (d dialing) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conf, err := d.identity.Client(d.name)
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(conf).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (d dialing) Clone() credentials.TransportCredentials {
	d.TransportCredentials = d.TransportCredentials.Clone()
	return d
}
