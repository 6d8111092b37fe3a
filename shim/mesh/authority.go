package mesh

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	ca "istio.io/api/security/v1alpha1"

	"github.com/headstart-mesh/headstart/shim/certificate"
)

const (
	// requestTimeout bounds one attempt, with the connection's making.
	requestTimeout = 10 * time.Second
	// maxAnswer is in bytes: a chain and its roots.
	maxAnswer = 1 << 20
)

// request asks the authority for a certificate for a new key.
func (c *Client) request(ctx context.Context) (*credential, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	rootsPEM, err := certificate.ReadFile(c.cfg.RootFile)
	if err != nil {
		return nil, fmt.Errorf("reading the mesh's roots: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(rootsPEM) {
		return nil, fmt.Errorf("reading the mesh's roots: %s has no certificate", c.cfg.RootFile)
	}
	token, err := certificate.ReadFile(c.cfg.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("reading the service account's token: %w", err)
	}
	key, csr, err := certificate.Request()
	if err != nil {
		return nil, err
	}
	asked := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})
	answer, err := c.call(ctx, roots, strings.TrimSpace(string(token)), string(asked))
	if err != nil {
		return nil, err
	}
	cred, err := newCredential(key, answer.GetCertChain(), roots)
	if err != nil {
		return nil, fmt.Errorf("the authority's answer: %w", err)
	}
	if id, err := identityOf(cred.leaf); err != nil || id.trustDomain != c.cfg.TrustDomain {
		return nil, fmt.Errorf("the authority's answer: certificate for %v, which is not in the trust domain %s", cred.leaf.URIs, c.cfg.TrustDomain)
	}
	return cred, nil
}

func (c *Client) call(ctx context.Context, roots *x509.CertPool, token, csr string) (*ca.IstioCertificateResponse, error) {
	host, _, err := net.SplitHostPort(c.cfg.Authority)
	if err != nil {
		return nil, err
	}
	// A connection per certificate: it is needed once in hours, with the roots of then.
	conn, err := grpc.NewClient(c.cfg.Authority, grpc.WithNoProxy(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: roots})),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("connecting to the authority: %w", err)
	}
	defer conn.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	if c.cfg.Cluster != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "clusterid", c.cfg.Cluster)
	}
	answer, err := ca.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &ca.IstioCertificateRequest{
		Csr: csr, ValidityDuration: int64(lifetime / time.Second),
	})
	if err != nil {
		return nil, fmt.Errorf("asking the authority: %w", err)
	}
	return answer, nil
}

// newCredential takes the chain as Istio's API says it: our certificate first, the roots
// last. The roots are trusted beside those of the file, as either may be the newer.
func newCredential(key *ecdsa.PrivateKey, chain []string, roots *x509.CertPool) (*credential, error) {
	if len(chain) < 2 {
		return nil, fmt.Errorf("a chain of %d, at least a certificate and a root are needed", len(chain))
	}
	own, last := chain[:len(chain)-1], chain[len(chain)-1]
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(strings.Join(own, "\n")), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		return nil, err
	}
	roots = roots.Clone()
	if !roots.AppendCertsFromPEM([]byte(last)) {
		return nil, errors.New("its last part has no root")
	}
	return &credential{certificate: pair, leaf: pair.Leaf, roots: roots}, nil
}
