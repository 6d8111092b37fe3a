package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// identityMessageMost is the largest message that Identity takes, in bytes: a
	// request is a public key and a few addresses.
	identityMessageMost = 32 << 10
	// identityHeaderMost bounds the metadata of a call, in bytes: tokens have about 1 KiB.
	identityHeaderMost = 32 << 10
	// identityStreamsMost bounds the calls at a time on one connection; a daemon makes one.
	identityStreamsMost = 4
	// identityIdle closes connections that nobody needs: a daemon comes twice a day.
	identityIdle = 30 * time.Second
	// identityAge ends connections that are never idle, such as those of a call that never
	// sends its message: nobody keeps one for long. A call takes reviewTimeout at most.
	identityAge = time.Minute
)

// ServerTLS is for the listener of nodes and their relays (mutual TLS 1.3): whoever has
// no certificate of the authority, or one of a revoked node, is refused. The control plane's certificate
// is made and renewed as connections come.
func (a *Authority) ServerTLS() *tls.Config {
	conf := a.IdentityTLS()
	conf.ClientAuth = tls.RequireAndVerifyClientCert
	return &tls.Config{MinVersion: conf.MinVersion, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := conf.Clone()
		now.ClientCAs = a.current().pool
		now.VerifyConnection = func(state tls.ConnectionState) error {
			if node, err := peertls.PeerName(state); err == nil && a.Revoked(node) {
				return errRevoked
			}
			return nil
		}
		return now, nil
	}}
}

// IdentityTLS is for the listener of Identity, whose callers have no certificate yet.
func (a *Authority) IdentityTLS() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.servingCertificate() },
	}
}

// IdentityOptions are those of Identity's gRPC server: IdentityTLS, and limits, since everybody in the
// cluster may connect to it.
func (a *Authority) IdentityOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(a.IdentityTLS())),
		grpc.MaxRecvMsgSize(identityMessageMost),
		grpc.MaxHeaderListSize(identityHeaderMost),
		grpc.MaxConcurrentStreams(identityStreamsMost),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: identityIdle, MaxConnectionAge: identityAge, MaxConnectionAgeGrace: reviewTimeout,
		}),
		grpc.WaitForHandlers(true),
	}
}

// servingCertificate returns the control plane's own, a new one when two thirds of the
// last one's life are over. It stays in memory: a restart makes another.
func (a *Authority) servingCertificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.serving != nil && time.Now().Before(a.renew) {
		return a.serving, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the control plane's key: %w", err)
	}
	tmpl := template(ServiceName, Lifetime)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	// Not a client's: with it nobody is a node.
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	tmpl.DNSNames = a.names
	der, err := a.signer.sign(tmpl, key.Public())
	if err != nil {
		return nil, err
	}
	a.serving = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	a.renew = time.Now().Add(Lifetime * 2 / 3)
	return a.serving, nil
}
