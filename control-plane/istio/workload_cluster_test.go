//go:build cluster

package istio_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/url"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// workload is the part of Istio's agent that gives Envoy its certificate: one that signs
// itself, for gateway and sidecar.
type workload struct {
	secretservice.UnimplementedSecretDiscoveryServiceServer

	pair tls.Certificate
	cert []byte // PEM
	key  []byte
}

func newWorkload(t *testing.T) workload {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, URIs: []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/default/sa/default"}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return workload{
		pair: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}
}

// config is that of a sidecar in STRICT mode.
func (w workload) config() *tls.Config {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cert)
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{w.pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		// As Envoy, which does not refuse a client for its protocols.
		own := c.Clone()
		own.NextProtos = nil
		return own, nil
	}
	return c
}

// StreamSecrets answers each first question for a secret.
func (w workload) StreamSecrets(s secretservice.SecretDiscoveryService_StreamSecretsServer) error {
	inline := func(b []byte) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_InlineBytes{InlineBytes: b}}
	}
	for {
		r, err := s.Recv()
		if err != nil {
			return nil
		}
		if r.VersionInfo != "" {
			continue // an acknowledgement
		}
		answer := &discovery.DiscoveryResponse{TypeUrl: r.TypeUrl, VersionInfo: "1", Nonce: "1"}
		for _, name := range r.ResourceNames {
			secret := &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
				CertificateChain: inline(w.cert), PrivateKey: inline(w.key)}}}
			if name == "ROOTCA" {
				secret.Type = &tlsv3.Secret_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{TrustedCa: inline(w.cert)}}
			}
			packed, err := anypb.New(secret)
			if err != nil {
				return err
			}
			answer.Resources = append(answer.Resources, packed)
		}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}
