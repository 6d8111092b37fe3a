// Package peertlstest has a test's own authority, whose certificates daemons and control planes
// know each other by: whoever is tested must not depend on who issues.
package peertlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// life is that of certificates: longer than any test.
const life = 1000 * time.Hour

// Authority issues certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns an authority that nobody else knows.
func New(t testing.TB) *Authority {
	t.Helper()
	key := newKey(t)
	template := template("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert: cert, key: key}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(life)}
}

// Pool has the authority's own certificate.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte { return encode(a.cert.Raw) }

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Sign issues a certificate, as PEM, for whoever has the public key's other half: a party of that
// name at these addresses. It may be called from any goroutine.
func (a *Authority) Sign(public any, name string, at ...net.IP) ([]byte, error) {
	der, err := a.sign(public, name, at)
	return encode(der), err
}

func (a *Authority) sign(public any, name string, at []net.IP) ([]byte, error) {
	template := template(name)
	template.DNSNames, template.IPAddresses = []string{name}, at
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
}

// Party returns a new party's certificate.
func (a *Authority) Party(t testing.TB, name string, at ...net.IP) tls.Certificate {
	t.Helper()
	key := newKey(t)
	der, err := a.sign(key.Public(), name, at)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Write writes a new party's files into dir: name.pem, name.key and ca.pem.
func (a *Authority) Write(t testing.TB, dir, name string, at ...net.IP) (certFile, keyFile, caFile string) {
	t.Helper()
	party := a.Party(t, name, at...)
	key, err := x509.MarshalPKCS8PrivateKey(party.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, caFile = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), filepath.Join(dir, "ca.pem")
	for file, text := range map[string][]byte{certFile: encode(party.Certificate[0]), keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), caFile: a.PEM()} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, caFile
}

// Load returns a new party's configurations as server and as client.
func (a *Authority) Load(t testing.TB, name string, at ...net.IP) (server, client *tls.Config) {
	t.Helper()
	server, client, err := peertls.Load(a.Write(t, t.TempDir(), name, at...))
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}
