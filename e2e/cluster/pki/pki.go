// Package pki issues the certificates of a test cluster, all from one authority that lives
// as long as the cluster.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	// validity outlives any run of a test cluster; nothing renews a certificate.
	validity = 30 * 24 * time.Hour
	// clockSlack is how far the clock may be set back without certificates looking unborn.
	clockSlack = time.Hour
	// serialBits: RFC 5280 section 4.1.2.2 allows 20 octets, positive.
	serialBits = 159
)

// Authority signs a cluster's certificates.
type Authority struct {
	// PEM is its certificate.
	PEM []byte
	// KeyPEM is its key, for the controller that signs certificate requests.
	KeyPEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key, both PEM.
type Pair struct{ Cert, Key []byte }

// Party is whom a certificate is for, in Kubernetes' terms.
type Party struct {
	User   string
	Groups []string
	// Names and Addresses are what it serves under; none for a client.
	Names     []string
	Addresses []netip.Addr
}

// New makes an authority.
func New() (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	t, err := template(pkix.Name{CommonName: "headstart test cluster"})
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the authority back: %w", err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Authority{PEM: encode("CERTIFICATE", der), KeyPEM: keyPEM, cert: cert, key: key}, nil
}

// Issue makes a key and a certificate, good as client and as server.
func (a *Authority) Issue(p Party) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the key of %s: %w", p.User, err)
	}
	t, err := template(pkix.Name{CommonName: p.User, Organization: p.Groups})
	if err != nil {
		return Pair{}, err
	}
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.DNSNames = p.Names
	for _, ip := range p.Addresses {
		t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("signing %s: %w", p.User, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: encode("CERTIFICATE", der), Key: keyPEM}, nil
}

// Kubeconfig is a self-contained client configuration for the API server at a URL.
func (a *Authority) Kubeconfig(server string, client Pair) ([]byte, error) {
	const name = "headstart-test"
	type object = map[string]any
	config := object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"clusters":        []object{{"name": name, "cluster": object{"server": server, "certificate-authority-data": a.PEM}}},
		"users":           []object{{"name": name, "user": object{"client-certificate-data": client.Cert, "client-key-data": client.Key}}},
		"contexts":        []object{{"name": name, "context": object{"cluster": name, "user": name}}},
		"current-context": name,
	}
	encoded, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing a client configuration: %w", err)
	}
	return encoded, nil
}

// SigningKey makes a key for service account tokens, PEM.
func SigningKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the service accounts' key: %w", err)
	}
	return encodeKey(key)
}

// encodeKey uses the form that every Kubernetes program reads (RFC 5915).
func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func template(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	now := time.Now()
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: now.Add(-clockSlack), NotAfter: now.Add(validity)}, nil
}
