//go:build integration

package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// patience is how long a test waits for what must happen: many times what an Envoy takes to
// compile its filters, before which it does nothing else.
const patience = 2 * time.Minute

// bed is a control plane and one real Envoy that has taken its configuration.
type bed struct {
	t       *testing.T
	gw      Gateway
	cfg     Config
	url     string
	admin   *http.Client
	loads   chan []signals.Load
	server  *Server
	weights routing.Weights // of the next update
	boot    BootstrapConfig
	program string // of HEADSTART_BIN
	// The control plane's certificate and address, and its end.
	files            pki.Files
	address          string
	stopControlPlane func()
}

// start brings up the bed with a first state; edit may change the configuration.
func start(t *testing.T, st platform.State, edit func(*Config)) *bed {
	t.Helper()
	b := prepare(t, st, edit)
	b.settle()
	return b
}

// prepare is start without waiting for the gateway to take everything.
func prepare(t *testing.T, st platform.State, edit func(*Config)) *bed {
	t.Helper()
	b := lay(t, st, edit)
	b.launch()
	b.ready()
	return b
}

// lay is prepare without the gateway.
func lay(t *testing.T, st platform.State, edit func(*Config)) *bed {
	t.Helper()
	dir := t.TempDir()
	port := int(porttest.Free(t))
	b := &bed{
		t: t, program: "envoy", url: fmt.Sprintf("http://127.0.0.1:%d", port), loads: make(chan []signals.Load, 1), address: "127.0.0.1:0",
		gw: Gateway{ID: "edge", IngressSocket: filepath.Join(dir, "ingress"), HintSocket: filepath.Join(dir, "hint")},
	}
	b.cfg = Config{ListenPort: uint32(port), Verify: commonName, OnLoad: b.load}
	if edit != nil {
		edit(&b.cfg)
	}
	authority, err := pki.New(filepath.Join(dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	b.files = issue(t, authority, "controlplane")
	b.startControlPlane()
	b.update(st)
	files := issue(t, authority, b.gw.ID)
	b.boot = BootstrapConfig{
		NodeID: b.gw.ID, Cluster: "gateways", ControlPlaneAddress: b.address, ServerName: "controlplane",
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA, AdminSocket: filepath.Join(dir, "admin"),
	}
	return b
}

func issue(t *testing.T, a *pki.Authority, name string) pki.Files {
	t.Helper()
	files, err := a.Issue(name, netip.MustParseAddr("127.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// startControlPlane serves a new Server with mutual TLS, at the same address each time.
func (b *bed) startControlPlane() {
	b.t.Helper()
	cert, err := tls.LoadX509KeyPair(b.files.Cert, b.files.Key)
	if err != nil {
		b.t.Fatal(err)
	}
	pem, err := os.ReadFile(b.files.CA)
	if err != nil {
		b.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	b.server = New(b.cfg, slog.New(slog.NewTextHandler(b.t.Output(), nil)))
	g := grpc.NewServer(append(ServerOptions(), grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	})))...)
	b.server.Register(g)
	b.address, b.stopControlPlane = serveGRPC(b.t, g, "tcp", b.address)
}

// serveGRPC returns the address and what ends the serving, at the latest with the test.
func serveGRPC(t *testing.T, g *grpc.Server, network, address string) (string, func()) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving gRPC: %v", err)
		}
	})
	stop := func() { g.Stop(); wg.Wait() }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// commonName is what a control plane verifies.
func commonName(ctx context.Context, nodeID string) error {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || info.State.PeerCertificates[0].Subject.CommonName != nodeID {
		return errors.New("the certificate is another node's")
	}
	return nil
}

func (b *bed) load(_ string, loads []signals.Load) {
	select {
	case <-b.loads:
	default:
	}
	b.loads <- loads
}

// launch starts Envoy.
func (b *bed) launch() {
	b.t.Helper()
	data, err := Bootstrap(b.boot)
	if err != nil {
		b.t.Fatal(err)
	}
	dir := filepath.Dir(b.boot.AdminSocket)
	path := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.t.Fatal(err)
	}
	logPath := filepath.Join(dir, "envoy.log")
	logFile, err := os.Create(logPath)
	if err != nil {
		b.t.Fatal(err)
	}
	envoy := exec.Command(programtest.Path(b.t, b.program), "-c", path, "--concurrency", "2", "--disable-hot-restart", "--log-level", "warning")
	envoy.Stdout, envoy.Stderr = logFile, logFile
	if err := envoy.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		_ = envoy.Process.Kill()
		_ = envoy.Wait() // killed
		logFile.Close()
		if said, err := os.ReadFile(logPath); err == nil && b.t.Failed() {
			b.t.Logf("envoy said:\n%s", said)
		}
	})
	b.admin = unixClient(b.t, b.boot.AdminSocket)
}

// ready waits until Envoy serves, and does not compile any more.
func (b *bed) ready() {
	b.t.Helper()
	b.eventually("Envoy is ready", func() bool {
		r, err := b.admin.Get("http://envoy/ready")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

func unixClient(t *testing.T, path string) *http.Client {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: patience}
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %v in vain: %s", patience, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// stat reads one of Envoy's statistics; 0 if it is not there.
func (b *bed) stat(name string) int {
	b.t.Helper()
	r, err := b.admin.Get("http://envoy/stats?filter=" + url.QueryEscape("^"+name+"$"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer r.Body.Close()
	var n int
	_, _ = fmt.Fscanf(r.Body, name+": %d", &n)
	return n
}

func (b *bed) update(st platform.State) {
	b.t.Helper()
	if err := b.server.Update(st, b.weights, []Gateway{b.gw}); err != nil {
		b.t.Fatal(err)
	}
}

// connected waits for the gateway's stream, and returns its number.
func (b *bed) connected() (id int64) {
	b.t.Helper()
	b.eventually("the gateway connects", func() bool {
		b.server.ledger.mu.Lock()
		defer b.server.ledger.mu.Unlock()
		for id = range b.server.ledger.streams {
			return true
		}
		return false
	})
	return id
}

// settle waits until the gateway has taken over what was published. Nobody waits for one that is
// not connected, such as one that loads a filter for longer than it may be silent.
func (b *bed) settle() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	for {
		id := b.connected()
		if err := b.server.Settled(ctx); err != nil {
			b.t.Fatal(err)
		}
		if b.connected() == id {
			return
		}
	}
}

// answer is a response, read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks for host; headers are pairs.
func (b *bed) get(host string, headers ...string) answer {
	b.t.Helper()
	a, err := b.try(host, "", headers...)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bed) try(host, body string, headers ...string) (answer, error) {
	return b.ask(host, "/?token=secret", body, headers...)
}

// ask asks for a path and query.
func (b *bed) ask(host, target, body string, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+target, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]} // as written
	}
	response, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
}

// client opens a connection per request: a pooled one would hide what a new client sees.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}

// backend serves on an address until stop; it counts its requests.
type backend struct {
	address string
	stop    func()
	mu      sync.Mutex
	last    *http.Request
	count   int
}

func (s *backend) requests() (int, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.last
}

// listen starts a backend that answers with its name.
func (b *bed) listen(network, address, name string) *backend {
	b.t.Helper()
	return b.handle(network, address, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) })
}

func (b *bed) handle(network, address string, answer http.HandlerFunc) *backend {
	b.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		b.t.Fatal(err)
	}
	s := &backend{address: l.Addr().String()}
	h := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.last = r
		s.count++
		s.mu.Unlock()
		answer(w, r)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.Serve(l) })
	s.stop = sync.OnceFunc(func() {
		if err := h.Shutdown(context.WithoutCancel(b.t.Context())); err != nil {
			b.t.Errorf("stopping %s: %v", address, err)
		}
		wg.Wait()
	})
	b.t.Cleanup(s.stop)
	return s
}
