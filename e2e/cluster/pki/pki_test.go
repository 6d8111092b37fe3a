package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/netip"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
)

func TestIssuedCertificatesAreGoodForBothSides(t *testing.T) {
	a := authority(t)
	pair := issue(t, a, pki.Party{User: "system:node:n1", Groups: []string{"system:nodes"}, Names: []string{"n1"}, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
	keys, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM) {
		t.Fatal("the authority's certificate cannot be read")
	}
	for _, name := range []string{"n1", "10.0.0.1"} {
		if _, err := keys.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots}); err != nil {
			t.Errorf("as server %s: %v", name, err)
		}
	}
	if _, err := keys.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Errorf("as client: %v", err)
	}
	if s := keys.Leaf.Subject; s.CommonName != "system:node:n1" || len(s.Organization) != 1 || s.Organization[0] != "system:nodes" {
		t.Errorf("subject %v", s)
	}
}

func TestAuthoritysKeyFitsItsCertificate(t *testing.T) {
	a := authority(t)
	if _, err := tls.X509KeyPair(a.PEM, a.KeyPEM); err != nil {
		t.Error(err)
	}
}

func TestKubeconfigNeedsNoOtherFile(t *testing.T) {
	a := authority(t)
	pair := issue(t, a, pki.Party{User: "admin"})
	content, err := a.Kubeconfig("https://10.0.0.1:6443", pair)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://10.0.0.1:6443" || string(config.CAData) != string(a.PEM) || string(config.CertData) != string(pair.Cert) || string(config.KeyData) != string(pair.Key) {
		t.Errorf("%s", content)
	}
}

func TestSigningKeyIsOfAKindThatKubernetesTakes(t *testing.T) {
	key, err := pki.SigningKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(key)
	if block == nil {
		t.Fatalf("no PEM: %s", key)
	}
	if _, err := x509.ParseECPrivateKey(block.Bytes); err != nil {
		t.Error(err)
	}
}

func authority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.New()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *pki.Authority, p pki.Party) pki.Pair {
	t.Helper()
	pair, err := a.Issue(p)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
