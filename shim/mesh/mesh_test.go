package mesh_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	ca "istio.io/api/security/v1alpha1"

	"github.com/headstart-mesh/headstart/shim/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	daemonIdentity = "spiffe://cluster.local/ns/headstart-system/sa/headstart-node"
	fireIdentity   = "spiffe://cluster.local/ns/default/sa/fire"
	fireSNI        = "outbound_.80_._.fire.default.svc.cluster.local"
	token          = "the token of the daemon's service account"
)

// authority is a mesh's authority.
type authority struct {
	ca.UnimplementedIstioCertificateServiceServer

	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate

	mu       sync.Mutex
	serial   int64
	refusal  error         // of the next requests
	identity string        // that the authority gives
	age      time.Duration // of the certificates that it gives
	life     time.Duration
	asked    chan struct{}
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key, identity: daemonIdentity, life: time.Hour, asked: make(chan struct{}, 100)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) root() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

// sign returns a certificate for the identity, or for a host if that has no scheme. The caller holds
// mu: nodes ask while tests do.
func (a *authority) sign(public any, identity string) ([]byte, error) {
	a.serial++
	begin := time.Now().Add(-a.age)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial + 1), NotBefore: begin, NotAfter: begin.Add(a.life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if u, err := url.Parse(identity); err == nil && u.Scheme != "" {
		template.URIs = []*url.URL{u}
	} else {
		template.IPAddresses = []net.IP{net.ParseIP(identity)}
	}
	return x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
}

// pair is a certificate of the authority's with its key.
func (a *authority) pair(identity string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	der, err := a.sign(&key.PublicKey, identity)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// CreateCertificate signs what the bearer of the token asks for.
func (a *authority) CreateCertificate(ctx context.Context, r *ca.IstioCertificateRequest) (*ca.IstioCertificateResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.asked <- struct{}{} }()
	if a.refusal != nil {
		return nil, a.refusal
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(md.Get("authorization"), []string{"Bearer " + token}) {
		return nil, status.Error(codes.Unauthenticated, "request authenticate failure")
	}
	block, _ := pem.Decode([]byte(r.Csr))
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "no PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	der, err := a.sign(csr.PublicKey, a.identity)
	if err != nil {
		return nil, err
	}
	return &ca.IstioCertificateResponse{CertChain: []string{string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), a.root()}}, nil
}

func (a *authority) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// serve starts the authority and returns how a client finds it.
func (a *authority) serve() mesh.Config {
	a.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		a.t.Fatal(err)
	}
	pair := a.pair("127.0.0.1")
	g := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})))
	ca.RegisterIstioCertificateServiceServer(g, a)
	var serving sync.WaitGroup
	serving.Go(func() { g.Serve(l) })
	a.t.Cleanup(func() { g.Stop(); serving.Wait() })
	dir := a.t.TempDir()
	cfg := mesh.Config{Authority: l.Addr().String(), RootFile: filepath.Join(dir, "root-cert.pem"), TokenFile: filepath.Join(dir, "token")}
	for path, text := range map[string]string{cfg.RootFile: a.root(), cfg.TokenFile: token + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	return cfg
}

// sidecar is a workload that takes mutual TLS only. It answers with whom it sees.
func (a *authority) sidecar(identity string) (address string) {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return a.sidecarWith(a.pair(identity), roots)
}

func (a *authority) sidecarWith(pair tls.Certificate, roots *x509.CertPool) string {
	var offered []string // before each request, as connections are not kept
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s %s", r.TLS.PeerCertificates[0].URIs[0], r.TLS.ServerName, offered[0], r.Proto, r.Host)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	s.TLS.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		offered = hello.SupportedProtos
		// As Istio's sidecars; but Envoy does not refuse a client for its protocols.
		c := s.TLS.Clone()
		c.NextProtos = nil
		if slices.Contains(offered, "h2") {
			c.NextProtos = []string{"h2"}
		}
		return c, nil
	}
	s.EnableHTTP2 = true
	s.StartTLS()
	a.t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func open(t *testing.T, cfg mesh.Config) *mesh.Client {
	t.Helper()
	c, err := mesh.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// ask sends a request for fire.default to a workload.
func ask(t *testing.T, c *mesh.Client, sni, address string) (string, error) {
	t.Helper()
	return askBy(t, c, sni, address, false)
}

func askBy(t *testing.T, c *mesh.Client, sni, address string, h2 bool) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "fire.default"
	answer, err := c.Transport(sni, h2).RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestASidecarSeesTheDaemon(t *testing.T) {
	a := newAuthority(t)
	c := open(t, a.serve())
	for _, tt := range []struct {
		h2      bool
		offered string
	}{{false, "istio-http/1.1 HTTP/1.1"}, {true, "istio-h2 HTTP/2.0"}} {
		got, err := askBy(t, c, fireSNI, a.sidecar(fireIdentity), tt.h2)
		if want := daemonIdentity + " " + fireSNI + " " + tt.offered + " fire.default"; err != nil || got != want {
			t.Errorf("HTTP/2 %v: %q, %v", tt.h2, got, err)
		}
	}
	if left := time.Until(c.NotAfter()); left <= 0 || left > time.Hour {
		t.Errorf("the certificate is good for %v", left)
	}
}

func TestOnlyTheRightWorkloadGetsARequest(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	c := open(t, a.serve())
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	expired := newAuthority(t)
	expired.key, expired.cert, expired.age = a.key, a.cert, 2*time.Hour
	for name, tt := range map[string]struct {
		address, says string
	}{
		"another namespace":     {a.sidecar("spiffe://cluster.local/ns/evil/sa/fire"), "of the namespace evil, not of default"},
		"another trust domain":  {a.sidecar("spiffe://evil.example/ns/default/sa/fire"), "trust domain evil.example"},
		"no workload":           {a.sidecar("spiffe://cluster.local/fire"), "not a workload's identity"},
		"no identity":           {a.sidecar("127.0.0.1"), "0 URIs"},
		"another mesh":          {a.sidecarWith(stranger.pair(fireIdentity), roots), "unknown authority"},
		"a certificate of then": {a.sidecarWith(expired.pair(fireIdentity), roots), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, c, fireSNI, tt.address)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%q, %v", got, err)
			}
			if dial, is := errors.AsType[*net.OpError](err); !is || dial.Op != "dial" {
				t.Errorf("that nobody got it is not told: %v", err)
			}
		})
	}
	if _, err := ask(t, c, "outbound_.80_._.api.example.com", a.sidecar("spiffe://cluster.local/ns/anywhere/sa/api")); err != nil {
		t.Errorf("a service without a namespace: %v", err)
	}
}

func TestRequestsWaitForTheFirstCertificate(t *testing.T) {
	a := newAuthority(t)
	a.refusal = status.Error(codes.Unavailable, "istiod starts")
	c := open(t, a.serve())
	sidecar := a.sidecar(fireIdentity)
	<-a.asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+sidecar, nil)
	if _, err := c.Transport(fireSNI, false).RoundTrip(r); err == nil {
		t.Error("a request went without a certificate")
	}
	if !c.NotAfter().IsZero() {
		t.Error("there is a certificate")
	}
	a.set(func() { a.refusal = nil })
	if _, err := ask(t, c, fireSNI, sidecar); err != nil {
		t.Error(err)
	}
}

func TestACertificateIsRenewedBeforeItEnds(t *testing.T) {
	a := newAuthority(t)
	a.age = 50 * time.Minute // of an hour
	c := open(t, a.serve())
	sidecar := a.sidecar(fireIdentity)
	<-a.asked
	if _, err := ask(t, c, fireSNI, sidecar); err != nil {
		t.Fatal(err)
	}
	a.set(func() { a.age, a.identity = 0, "spiffe://cluster.local/ns/headstart-system/sa/renewed" })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, err := ask(t, c, fireSNI, sidecar)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, "sa/renewed") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("never renewed")
		}
	}
}

func TestAnAnswerThatIsWrongIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(*authority, *mesh.Config){
		"another trust domain":     func(_ *authority, c *mesh.Config) { c.TrustDomain = "other.example" },
		"not an identity":          func(a *authority, _ *mesh.Config) { a.identity = "127.0.0.1" },
		"another authority's root": func(a *authority, c *mesh.Config) { os.WriteFile(c.RootFile, []byte(newAuthority(a.t).root()), 0o600) },
		"no root":                  func(_ *authority, c *mesh.Config) { os.WriteFile(c.RootFile, nil, 0o600) },
		"no token":                 func(_ *authority, c *mesh.Config) { os.Remove(c.TokenFile) },
		"another's token":          func(_ *authority, c *mesh.Config) { os.WriteFile(c.TokenFile, []byte("stolen"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAuthority(t)
			cfg := a.serve()
			change(a, &cfg)
			c := open(t, cfg)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
			defer cancel()
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.sidecar(fireIdentity), nil)
			if _, err := c.Transport(fireSNI, false).RoundTrip(r); err == nil {
				t.Error("a request went")
			} else if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "stolen") {
				t.Errorf("the token is in %v", err)
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]mesh.Config{
		"no port":  {Authority: "istiod.istio-system.svc", RootFile: "r", TokenFile: "t"},
		"no root":  {Authority: "istiod.istio-system.svc:15012", TokenFile: "t"},
		"no token": {Authority: "istiod.istio-system.svc:15012", RootFile: "r"},
	} {
		if c, err := mesh.New(t.Context(), cfg); err == nil {
			c.Close()
			t.Errorf("%s: taken", name)
		}
	}
}

// There is room for a thousand; see TestTransportsAreBounded for what is kept.
func TestATransportThatIsNotKeptStillWorks(t *testing.T) {
	a := newAuthority(t)
	c := open(t, a.serve())
	first := c.Transport(fireSNI, false)
	for i := range 2000 {
		c.Transport(fmt.Sprintf("outbound_.80_._.f%d.default.svc.cluster.local", i), false)
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.sidecar(fireIdentity), nil)
	answer, err := first.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}
