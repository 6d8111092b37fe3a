package identity_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/control-plane/identity"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	nodeserve "github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

const token = "a-token-of-a-daemon"

// cluster vouches for one token.
type cluster struct {
	pod       identity.Pod
	ips       []netip.Addr
	reviewErr error
	ipsErr    error
}

func (c cluster) Review(_ context.Context, t string) (identity.Pod, error) {
	if t != token {
		return identity.Pod{}, identity.ErrToken
	}
	return c.pod, c.reviewErr
}

func (c cluster) PodIPs(context.Context, identity.Pod) ([]netip.Addr, error) { return c.ips, c.ipsErr }

var daemon = identity.Pod{Namespace: namespace, Name: "headstart-node-x1", UID: "u1", Node: "node-1"}

// request is a certificate request that claims to be the control plane.
func request(t testing.TB, key crypto.Signer, ips ...string) []byte {
	t.Helper()
	r := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "headstart-controlplane"}, DNSNames: []string{"headstart-controlplane"}}
	for _, ip := range ips {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, r, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// identityServer is a served Identity and the log of it.
type identityServer struct {
	conn *grpc.ClientConn
	log  *journal
}

func serve(t *testing.T, a *identity.Authority, c identity.Cluster) identityServer {
	t.Helper()
	l, err := nodeserve.TCP("127.0.0.1:0", nodeserve.Strangers)()
	if err != nil {
		t.Fatal(err)
	}
	log := &journal{}
	s := nodeserve.NewGRPC(a.IdentityOptions()...)
	nodeapi.RegisterIdentityServer(s, a.Server(c, slog.New(slog.NewTextHandler(log, nil))))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool(t, a), ServerName: identity.ServiceName, MinVersion: tls.VersionTLS13})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		wg.Wait()
	})
	return identityServer{conn, log}
}

func (s identityServer) issue(ctx context.Context, request []byte, authorization ...string) (*nodeapi.IssueResponse, error) {
	for _, v := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", v)
	}
	return nodeapi.NewIdentityClient(s.conn).Issue(ctx, &nodeapi.IssueRequest{CertificateRequest: request})
}

// A daemon gets a certificate of its node, whatever its request says.
func TestIssue(t *testing.T) {
	a := open(t)
	s := serve(t, a, cluster{pod: daemon, ips: []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("fd00::5")}})
	key := newKey(t)
	answer, err := s.issue(t.Context(), request(t, key, "10.244.1.5", "fd00::5"), "Bearer "+token)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(answer.GetAuthority(), a.Certificate()) {
		t.Error("the answer has another authority")
	}
	c := certificate(t, answer.GetCertificate())
	if !key.PublicKey.Equal(c.PublicKey) {
		t.Error("the certificate has another key")
	}
	if c.Subject.String() != "CN=node-1" || len(c.DNSNames) != 1 || c.DNSNames[0] != "node-1" || len(c.IPAddresses) != 2 || c.IsCA {
		t.Errorf("subject %s, DNS names %v, addresses %v, CA %v", c.Subject, c.DNSNames, c.IPAddresses, c.IsCA)
	}
	for _, host := range []string{"node-1", "10.244.1.5", "fd00::5"} {
		for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := c.Verify(x509.VerifyOptions{Roots: pool(t, a), DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
				t.Error(err)
			}
		}
	}
	if life := time.Until(c.NotAfter); life < 23*time.Hour || life > 24*time.Hour {
		t.Errorf("it lives %v", life)
	}
	if !strings.Contains(s.log.String(), "certificate issued") || !strings.Contains(s.log.String(), "node=node-1") {
		t.Errorf("log: %s", s.log)
	}
}

func TestKeysThatAreTaken(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, open(t), cluster{pod: daemon})
	for _, key := range []crypto.Signer{newKey(t), rsaKey, ed} {
		if _, err := s.issue(t.Context(), request(t, key), "bearer "+token); err != nil {
			t.Errorf("%T: %v", key, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	key := newKey(t)
	large, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := request(t, key)
	forged[len(forged)-1] ^= 1
	own := []netip.Addr{netip.MustParseAddr("10.244.1.5")}
	good := []string{"Bearer " + token}
	for what, c := range map[string]struct {
		cluster       cluster
		request       []byte
		authorization []string
		code          codes.Code
		want          string
	}{
		"no token":           {cluster{pod: daemon}, request(t, key), nil, codes.Unauthenticated, "authorization: Bearer <token>"},
		"two tokens":         {cluster{pod: daemon}, request(t, key), []string{good[0], good[0]}, codes.Unauthenticated, "authorization: Bearer <token>"},
		"another scheme":     {cluster{pod: daemon}, request(t, key), []string{"Basic " + token}, codes.Unauthenticated, "not of the form Bearer <token>"},
		"an empty token":     {cluster{pod: daemon}, request(t, key), []string{"Bearer "}, codes.Unauthenticated, "not of the form Bearer <token>"},
		"a huge token":       {cluster{pod: daemon}, request(t, key), []string{"Bearer " + strings.Repeat(token, 1000)}, codes.Unauthenticated, "not of the form"},
		"an unknown token":   {cluster{pod: daemon}, request(t, key), []string{"Bearer x" + token}, codes.Unauthenticated, "projected with audience headstart"},
		"another's token":    {cluster{reviewErr: identity.ErrNotDaemon}, request(t, key), good, codes.PermissionDenied, "service account headstart-node only"},
		"a token of no pod":  {cluster{reviewErr: identity.ErrNoNode}, request(t, key), good, codes.FailedPrecondition, "Kubernetes 1.30"},
		"API server away":    {cluster{reviewErr: errors.New("dial 10.96.0.1: secret detail")}, request(t, key), good, codes.Unavailable, "try again"},
		"no request":         {cluster{pod: daemon}, nil, good, codes.InvalidArgument, "no PKCS #10 request"},
		"not a request":      {cluster{pod: daemon}, []byte("-----BEGIN"), good, codes.InvalidArgument, "no PKCS #10 request"},
		"a large request":    {cluster{pod: daemon}, make([]byte, 9<<10), good, codes.InvalidArgument, "8192 are enough"},
		"a forged request":   {cluster{pod: daemon}, forged, good, codes.InvalidArgument, "not signed with its own key"},
		"a key of P-384":     {cluster{pod: daemon}, request(t, large), good, codes.InvalidArgument, "use ECDSA P-256, Ed25519, or RSA of 2048 to 4096 bits"},
		"too many addresses": {cluster{pod: daemon}, request(t, key, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5"), good, codes.InvalidArgument, "5 addresses"},
		"another's address":  {cluster{pod: daemon, ips: own}, request(t, key, "10.244.1.5", "10.244.2.9"), good, codes.PermissionDenied, "10.244.2.9 is not an address of pod headstart-system/headstart-node-x1, which has [10.244.1.5]"},
		"no address yet":     {cluster{pod: daemon}, request(t, key, "10.244.1.5"), good, codes.Unavailable, "has no address yet; try again"},
		"addresses unknown":  {cluster{pod: daemon, ipsErr: errors.New("secret detail")}, request(t, key, "10.244.1.5"), good, codes.Unavailable, "try again"},
		"our own name":       {cluster{pod: identity.Pod{Node: "headstart-controlplane"}}, request(t, key), good, codes.PermissionDenied, "would pass for the control plane"},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, open(t), c.cluster)
			_, err := s.issue(t.Context(), c.request, c.authorization...)
			if status.Code(err) != c.code || !strings.Contains(status.Convert(err).Message(), c.want) {
				t.Errorf("answered %v", err)
			}
			if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "secret detail") || strings.Contains(s.log.String(), token) {
				t.Errorf("it tells too much: %v; log: %s", err, s.log)
			}
			if !strings.Contains(s.log.String(), "no certificate issued") {
				t.Errorf("log: %s", s.log)
			}
		})
	}
}

// Whoever calls without end is not listened to, and does not fill the log.
func TestAFloodOfCalls(t *testing.T) {
	s := serve(t, open(t), cluster{pod: daemon})
	var last error
	for range 30 {
		_, last = s.issue(t.Context(), nil)
	}
	if status.Code(last) != codes.ResourceExhausted || !strings.Contains(last.Error(), "try again") {
		t.Error(last)
	}
	if lines := strings.Count(s.log.String(), "\n"); lines > 15 {
		t.Errorf("%d lines in the log", lines)
	}
}

func TestMessagesHaveALimit(t *testing.T) {
	s := serve(t, open(t), cluster{pod: daemon})
	if _, err := s.issue(t.Context(), make([]byte, 1<<20), "Bearer "+token); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
}

// Without our certificate there is no way in to where nodes connect.
func TestNodesNeedTheirCertificate(t *testing.T) {
	a := open(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.ServerTLS())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if err := c.(*tls.Conn).HandshakeContext(t.Context()); err == nil {
			t.Error("a stranger was let in")
		}
	})
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool(t, a), ServerName: identity.ServiceName})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
}
