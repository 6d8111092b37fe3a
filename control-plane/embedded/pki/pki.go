// Package pki issues the certificates of one embedded platform. The authority lives as
// long as the platform: its key stays in memory, and the next start makes another one.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

const (
	// validity outlives any single run of a developer's platform. Nothing renews a
	// certificate while it runs, and each start issues new ones.
	validity = 365 * 24 * time.Hour
	// clockSlack is how far the clock may be set back after the start (a laptop that
	// wakes up and asks for the time) without the certificates looking unborn.
	clockSlack = time.Hour
)

// caFile is the authority's certificate in its directory. No Issue can overwrite it:
// names have no dot.
const caFile = "authority.ca.pem"

// Files are the paths of one party's PEM files.
type Files struct{ Cert, Key, CA string }

// Authority signs the certificates of one platform.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority whose files are in dir, which gets mode 0700.
func New(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making certificate directory: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // it may have been there before
		return nil, fmt.Errorf("closing certificate directory: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making authority's key: %w", err)
	}
	tmpl := template("headstart embedded authority")
	tmpl.IsCA = true
	tmpl.BasicConstraintsValid = true
	tmpl.MaxPathLenZero = true // it signs parties, no further authorities
	tmpl.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading authority back: %w", err)
	}
	a := &Authority{dir: dir, cert: cert, key: key}
	return a, a.write(caFile, "CERTIFICATE", der)
}

// Issue makes a key and a certificate for the party called name (a DNS label) at the
// given addresses, good as server and as client, and writes them with mode 0600. A
// second Issue of the same name replaces the first one's files.
func (a *Authority) Issue(name string, ips ...netip.Addr) (Files, error) {
	if !field.IsLabel(name) {
		return Files{}, fmt.Errorf("issuing certificate: %q is not a DNS label", name)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Files{}, fmt.Errorf("making %s's key: %w", name, err)
	}
	tmpl := template(name)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	tmpl.DNSNames = []string{name}
	for _, ip := range ips {
		tmpl.IPAddresses = append(tmpl.IPAddresses, net.IP(ip.AsSlice()))
	}
	cert, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		return Files{}, fmt.Errorf("signing %s: %w", name, err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Files{}, fmt.Errorf("encoding %s's key: %w", name, err)
	}
	certFile, keyFile := name+".pem", name+".key.pem"
	if err := errors.Join(a.write(keyFile, "PRIVATE KEY", private), a.write(certFile, "CERTIFICATE", cert)); err != nil {
		return Files{}, err
	}
	return Files{
		Cert: filepath.Join(a.dir, certFile),
		Key:  filepath.Join(a.dir, keyFile),
		CA:   filepath.Join(a.dir, caFile),
	}, nil
}

// write replaces a file of the authority's directory. It removes and creates, so that
// neither a link nor a wider mode of an earlier file survives.
func (a *Authority) write(name, kind string, der []byte) error {
	path := filepath.Join(a.dir, name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing certificate file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("creating certificate file: %w", err)
	}
	err = errors.Join(pem.Encode(f, &pem.Block{Type: kind, Bytes: der}), f.Close())
	if err != nil {
		return fmt.Errorf("writing certificate file: %w", err)
	}
	return nil
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSlack),
		NotAfter:  now.Add(validity),
	}
}
