package identity_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

func TestTheAuthoritySignsPartiesOnly(t *testing.T) {
	c := certificate(t, open(t).Certificate())
	if !c.IsCA || c.MaxPathLen != 0 || !c.MaxPathLenZero || c.KeyUsage != x509.KeyUsageCertSign {
		t.Errorf("CA %v, path length %d (%v), usage %v", c.IsCA, c.MaxPathLen, c.MaxPathLenZero, c.KeyUsage)
	}
	if years := time.Until(c.NotAfter).Hours() / 24 / 365; years < 9.9 || years > 10.1 {
		t.Errorf("it lives %.1f years", years)
	}
}

// brokenStore keeps something, or fails.
type brokenStore struct {
	identity.Store
	kept identity.Material
	err  error
}

func (s brokenStore) String() string                                  { return "the store" }
func (s brokenStore) Load(context.Context) (identity.Material, error) { return s.kept, s.err }

func TestWhatIsKeptMustBeAnAuthority(t *testing.T) {
	good, other := material(t), material(t)
	for what, c := range map[string]struct {
		kept identity.Material
		err  error
		want string
	}{
		"nothing in it":     {identity.Material{}, nil, "remove the store and restart"},
		"another's key":     {identity.Material{Certificate: good.Certificate, Key: other.Key}, nil, "private key does not match"},
		"a certificate cut": {identity.Material{Certificate: good.Certificate[:100], Key: good.Key}, nil, "remove the store"},
		"store away":        {identity.Material{}, errors.New("no route to host"), "opening the certificate authority: no route to host"},
	} {
		_, err := identity.Open(t.Context(), brokenStore{kept: c.kept, err: c.err}, namespace)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil && strings.Contains(err.Error(), "PRIVATE KEY") {
			t.Errorf("%s: the error shows the key: %v", what, err)
		}
	}
}

func TestAnExpiredAuthorityIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := material(t)
		time.Sleep(11 * 365 * 24 * time.Hour)
		_, err := identity.Open(t.Context(), brokenStore{kept: kept}, namespace)
		if err == nil || !strings.Contains(err.Error(), "it has expired at 2009-12-29") {
			t.Error(err)
		}
	})
}

func leaf(t *testing.T, conf *tls.Config) *x509.Certificate {
	t.Helper()
	if conf.GetConfigForClient != nil {
		var err error
		if conf, err = conf.GetConfigForClient(nil); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := conf.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheControlPlanesCertificate(t *testing.T) {
	a := open(t)
	c := leaf(t, a.ServerTLS())
	for _, name := range []string{"headstart-controlplane", "headstart-controlplane.headstart-system", "headstart-controlplane.headstart-system.svc", "headstart-controlplane.headstart-system.svc.cluster.local"} {
		if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a), DNSName: name}); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err == nil {
		t.Error("it is good as a client, and so as a node")
	}
}

func TestTheControlPlanesCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t)
		conf := a.ServerTLS()
		first := leaf(t, conf)
		time.Sleep(16*time.Hour - time.Second)
		if c := leaf(t, conf); !c.Equal(first) {
			t.Error("renewed too early")
		}
		time.Sleep(time.Second)
		second := leaf(t, conf)
		if second.Equal(first) || time.Until(second.NotAfter) != 24*time.Hour {
			t.Errorf("the second ends %v", second.NotAfter)
		}
		// Both listeners have the same.
		if c := leaf(t, a.IdentityTLS()); !c.Equal(second) {
			t.Error("another one is served to new daemons")
		}
	})
}

func TestOnlyMutualTLSForNodes(t *testing.T) {
	a := open(t)
	s, err := a.ServerTLS().GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	i := a.IdentityTLS()
	if s.ClientAuth != tls.RequireAndVerifyClientCert || s.MinVersion != tls.VersionTLS13 || !s.ClientCAs.Equal(pool(t, a)) {
		t.Error("nodes are not verified")
	}
	if i.ClientAuth != tls.NoClientCert || i.MinVersion != tls.VersionTLS13 {
		t.Error("new daemons cannot connect")
	}
}
