package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const namespace = "headstart-system"

// open returns an authority of the test's own.
func open(t *testing.T) *identity.Authority {
	t.Helper()
	a, err := identity.Open(t.Context(), &memory{}, namespace)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func certificate(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(text)
	if block == nil || len(rest) != 0 {
		t.Fatalf("not one PEM block: %q", text)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pool(t *testing.T, a *identity.Authority) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	p.AddCert(certificate(t, a.Certificate()))
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
