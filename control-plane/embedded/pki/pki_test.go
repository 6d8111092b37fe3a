package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
)

func certificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func issue(t *testing.T, dir, name string, ips ...netip.Addr) pki.Files {
	t.Helper()
	a, err := pki.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.Issue(name, ips...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestIssuedCertificateIsForItsNameAndAddresses(t *testing.T) {
	f := issue(t, t.TempDir(), "edge-1", netip.MustParseAddr("10.201.0.11"), netip.MustParseAddr("::1"))
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, f.CA))
	c := certificate(t, f.Cert)
	if c.Subject.CommonName != "edge-1" {
		t.Errorf("common name %q", c.Subject.CommonName)
	}
	for _, host := range []string{"edge-1", "10.201.0.11", "::1"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := c.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}})
			if err != nil {
				t.Errorf("%s, use %v: %v", host, use, err)
			}
		}
	}
	// A platform may run for months, and the clock may be set back a little.
	for _, at := range []time.Time{time.Now().Add(-30 * time.Minute), time.Now().Add(300 * 24 * time.Hour)} {
		if _, err := c.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: at}); err != nil {
			t.Errorf("at %v: %v", at, err)
		}
	}
	if c.IsCA || c.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Error("a party can sign others")
	}
	if len(c.IPAddresses) != 2 || !c.IPAddresses[0].Equal(net.IPv4(10, 201, 0, 11)) {
		t.Errorf("addresses %v", c.IPAddresses)
	}
}

func TestFilesAreTheOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// What an earlier run, or somebody else, left under these names must not leak keys.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.Symlink(outside, filepath.Join(dir, "edge-1.key.pem")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "edge-1.pem"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	f := issue(t, dir, "edge-1")
	got := map[string]string{}
	for _, path := range []string{dir, f.Cert, f.Key, f.CA} {
		st, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		got[path] = st.Mode().String()
	}
	want := map[string]string{dir: "drwx------", f.Cert: "-rw-------", f.Key: "-rw-------", f.CA: "-rw-------"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a key was written through a link")
	}
}

func TestEveryStartHasItsOwnAuthority(t *testing.T) {
	dir := t.TempDir()
	first := certificate(t, issue(t, dir, "edge-1").Cert)
	second := issue(t, dir, "edge-1")
	roots := x509.NewCertPool()
	roots.AddCert(certificate(t, second.CA))
	if _, err := first.Verify(x509.VerifyOptions{Roots: roots}); err == nil {
		t.Error("the second authority vouches for the first one's certificate")
	}
	if _, err := certificate(t, second.Cert).Verify(x509.VerifyOptions{Roots: roots}); err != nil {
		t.Error(err)
	}
}

func TestNamesThatAreNoDNSLabelAreRefused(t *testing.T) {
	a, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "..", "../x", "a/b", "Edge", "-a", "a-", "a.b", "authority.ca", "a\x00", strings.Repeat("a", 64)} {
		if _, err := a.Issue(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}
