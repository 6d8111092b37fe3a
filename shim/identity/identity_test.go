package identity_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/identity"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// patience is how long the machine may take for what takes it milliseconds.
	patience   = 30 * time.Second
	serverName = "headstart-controlplane"
)

// authority is the control plane's.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "headstart"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, encode(der)}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// sign issues a certificate that is valid from now on for life.
func (a authority) sign(public any, name string, life time.Duration, ips []net.IP) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: ips, NotBefore: time.Now().Add(-time.Second), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}, a.cert, public, a.key)
	return encode(der), err
}

// controlPlane issues certificates as issue says.
type controlPlane struct {
	nodeapi.UnimplementedIdentityServer
	mu     sync.Mutex
	issue  func(*x509.CertificateRequest) ([]byte, error)
	tokens []string
}

func (c *controlPlane) Issue(ctx context.Context, r *nodeapi.IssueRequest) (*nodeapi.IssueResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	c.tokens = append(c.tokens, strings.Join(md.Get("authorization"), ","))
	csr, err := x509.ParseCertificateRequest(r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	cert, err := c.issue(csr)
	return &nodeapi.IssueResponse{Certificate: cert}, err
}

func (c *controlPlane) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.tokens...)
}

// rig is a node and the control plane that it gets its certificate from.
type rig struct {
	*identity.Identity
	t         *testing.T
	authority authority
	cp        *controlPlane
	dir       string
	log       *log
}

func newRig(t *testing.T, issue func(authority, *x509.CertificateRequest) ([]byte, error)) *rig {
	t.Helper()
	r := &rig{t: t, authority: newAuthority(t), dir: t.TempDir(), log: &log{}}
	r.cp = &controlPlane{issue: func(csr *x509.CertificateRequest) ([]byte, error) { return issue(r.authority, csr) }}
	key := newKey(t)
	chain, err := r.authority.sign(key.Public(), serverName, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(chain)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})))
	nodeapi.RegisterIdentityServer(server, r.cp)
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { server.Stop(); served.Wait() })
	r.write("token", []byte("token-1\n"))
	r.write("ca.crt", r.authority.pem)
	r.Identity = identity.New(identity.Config{Address: l.Addr().String(), ServerName: serverName, TokenFile: r.path("token"), AuthorityFile: r.path("ca.crt"), RevokedDir: r.path("revoked"),
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(name string, content []byte) {
	r.t.Helper()
	if err := os.WriteFile(r.path(name), content, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// run runs the identity until the test's end.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
}

// issue issues what it is asked for, to node edge-1.
func issue(a authority, csr *x509.CertificateRequest) ([]byte, error) {
	return a.sign(csr.PublicKey, "edge-1", time.Hour, csr.IPAddresses)
}

// meet has a client of one identity talk to a server of another, and returns the client's
// name and serial number.
func meet(t *testing.T, server, client *identity.Identity, name string) (string, *big.Int, error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server.Server())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type caller struct {
		cert *x509.Certificate
		err  error
	}
	called := make(chan caller, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			called <- caller{err: err}
			return
		}
		defer conn.Close()
		if err := conn.(*tls.Conn).Handshake(); err != nil {
			called <- caller{err: err}
			return
		}
		called <- caller{cert: conn.(*tls.Conn).ConnectionState().VerifiedChains[0][0]}
	}()
	conf, err := client.Client(name)
	if err != nil {
		return "", nil, err
	}
	conn, err := tls.Dial("tcp", l.Addr().String(), conf)
	if err != nil {
		l.Close()
		return "", nil, errors.Join(err, (<-called).err)
	}
	defer conn.Close()
	c := <-called
	if c.err != nil {
		return "", nil, c.err
	}
	_, _ = io.Copy(io.Discard, conn)
	return c.cert.Subject.CommonName, c.cert.SerialNumber, nil
}

// A revoked node gets no connection from the other nodes, and they open none to it. Requests by a connection from
// before end with it.
func TestARevokedNodeHasNoPeers(t *testing.T) {
	r := newRig(t, issue)
	r.run()
	r.named(nil)
	server := httptest.NewUnstartedServer(r.Admit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server.TLS = r.Server()
	server.StartTLS()
	defer server.Close()
	conf, err := r.Client("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	peer := &http.Client{Transport: &http.Transport{TLSClientConfig: conf}}
	defer peer.CloseIdleConnections()
	get := func() error {
		answer, err := peer.Get(server.URL)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	if err := get(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(r.path("revoked"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.write("revoked/edge-1", nil)
	if err := get(); err == nil {
		t.Error("a request by the connection from before is taken")
	}
	if _, _, err := meet(t, r.Identity, r.Identity, "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a connection: %v", err)
	}
}

// named waits until the identity has a certificate, other than the one before.
func (r *rig) named(before *big.Int) *big.Int {
	r.t.Helper()
	var failure error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		name, serial, err := meet(r.t, r.Identity, r.Identity, "127.0.0.1")
		if err == nil && name == "edge-1" && (before == nil || serial.Cmp(before) != 0) {
			return serial
		}
		failure = err
	}
	r.t.Fatalf("no certificate came: %v\n%s", failure, r.log)
	return nil
}

// The node is who the control plane says, to servers and clients, by its address as by its
// name.
func TestANodeGetsItsCertificate(t *testing.T) {
	r := newRig(t, issue)
	if _, _, err := meet(t, r.Identity, r.Identity, "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "no certificate yet") {
		t.Errorf("before it has one: %v", err)
	}
	r.run()
	r.named(nil)
	if _, _, err := meet(t, r.Identity, r.Identity, "edge-1"); err != nil {
		t.Error(err)
	}
	for _, other := range []string{"edge-2", "127.0.0.2"} {
		if _, _, err := meet(t, r.Identity, r.Identity, other); err == nil {
			t.Errorf("it passes for %s", other)
		}
	}
	if got := r.cp.asked(); len(got) != 1 || got[0] != "Bearer token-1" {
		t.Errorf("asked with %q", got)
	}
	if strings.Contains(r.log.String(), "token-1") {
		t.Error("the log has the token")
	}
}

// A party of another authority is none.
func TestStrangersAreRefused(t *testing.T) {
	r, stranger := newRig(t, issue), newRig(t, issue)
	r.run()
	stranger.run()
	r.named(nil)
	stranger.named(nil)
	if _, _, err := meet(t, r.Identity, stranger.Identity, "127.0.0.1"); err == nil {
		t.Error("a stranger is served")
	}
	// Also one that believes in this node's authority.
	stranger.write("ca.crt", append(stranger.authority.pem, r.authority.pem...))
	if _, _, err := meet(t, r.Identity, stranger.Identity, "127.0.0.1"); err == nil {
		t.Error("a stranger who believes is served")
	}
	r.write("ca.crt", append(r.authority.pem, stranger.authority.pem...))
	if _, _, err := meet(t, r.Identity, stranger.Identity, "127.0.0.1"); err != nil {
		t.Errorf("a second authority takes effect at once: %v", err)
	}
}

// Certificates are renewed while connections are made, with the token of the time.
func TestRenewal(t *testing.T) {
	r := newRig(t, func(a authority, csr *x509.CertificateRequest) ([]byte, error) {
		return a.sign(csr.PublicKey, "edge-1", 2*time.Second, csr.IPAddresses)
	})
	r.run()
	first := r.named(nil)
	r.write("token", []byte("token-2"))
	r.write("ca.crt", nil)   // it cannot be read for a while: the last one counts
	second := r.named(first) // may have been asked for before
	r.named(second)
	if got := r.cp.asked(); got[0] != "Bearer token-1" || got[len(got)-1] != "Bearer token-2" {
		t.Errorf("asked with %q", got)
	}
}

// What goes wrong is said, and tried again until it is right.
func TestFailuresAreSaidAndTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		issue   func(authority, *x509.CertificateRequest) ([]byte, error)
		prepare func(*rig)
		mend    func(*rig)
		want    string
	}{
		"refused": {issue: func(authority, *x509.CertificateRequest) ([]byte, error) {
			return nil, status.Error(codes.PermissionDenied, "not this service account")
		}, want: "not this service account"},
		"nothing": {issue: func(authority, *x509.CertificateRequest) ([]byte, error) { return nil, nil }, want: "it is none"},
		"nonsense": {issue: func(authority, *x509.CertificateRequest) ([]byte, error) {
			return encode([]byte("x")), nil
		}, want: "malformed"},
		"another key": {issue: func(a authority, _ *x509.CertificateRequest) ([]byte, error) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				return nil, err
			}
			return a.sign(key.Public(), "edge-1", time.Hour, nil)
		}, want: "another key"},
		"no name": {issue: func(a authority, csr *x509.CertificateRequest) ([]byte, error) {
			return a.sign(csr.PublicKey, "", time.Hour, nil)
		}, want: "no name"},
		"over already": {issue: func(a authority, csr *x509.CertificateRequest) ([]byte, error) {
			return a.sign(csr.PublicKey, "edge-1", -time.Millisecond, nil)
		}, want: "expired"},
		"no token":            {prepare: func(r *rig) { _ = os.Remove(r.path("token")) }, mend: func(r *rig) { r.write("token", []byte("token-1")) }, want: "service account's token"},
		"empty token":         {prepare: func(r *rig) { r.write("token", nil) }, mend: func(r *rig) { r.write("token", []byte("token-1")) }, want: "empty"},
		"no authority":        {prepare: func(r *rig) { _ = os.Remove(r.path("ca.crt")) }, mend: func(r *rig) { r.write("ca.crt", r.authority.pem) }, want: "reading the authority"},
		"another's authority": {prepare: func(r *rig) { r.write("ca.crt", newAuthority(r.t).pem) }, mend: func(r *rig) { r.write("ca.crt", r.authority.pem) }, want: "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			wrong := c.issue
			r := newRig(t, func(a authority, csr *x509.CertificateRequest) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if wrong != nil {
					return wrong(a, csr)
				}
				return issue(a, csr)
			})
			if c.prepare != nil {
				c.prepare(r)
			}
			r.run()
			for deadline := time.Now().Add(patience); !strings.Contains(r.log.String(), c.want); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("the log does not say %q:\n%s", c.want, r.log)
				}
			}
			if c.mend != nil {
				c.mend(r)
			}
			mu.Lock()
			wrong = nil
			mu.Unlock()
			r.named(nil)
		})
	}
}

// A gRPC connection that could not be made for want of a certificate is made with it.
func TestCredentials(t *testing.T) {
	r := newRig(t, issue)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(r.Server())))
	nodeapi.RegisterIdentityServer(server, nodeapi.UnimplementedIdentityServer{})
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	defer func() { server.Stop(); served.Wait() }()
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(r.Credentials("127.0.0.1")),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: patience}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := nodeapi.NewIdentityClient(conn)
	if _, err := client.Issue(t.Context(), &nodeapi.IssueRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	r.run()
	r.named(nil)
	if _, err := client.Issue(t.Context(), &nodeapi.IssueRequest{}, grpc.WaitForReady(true)); status.Code(err) != codes.Unimplemented {
		t.Errorf("with a certificate: %v", err)
	}
}

type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
