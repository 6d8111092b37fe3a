//go:build integration

// Package gateway tests the way from the platform's state to a node's own gateway: control plane, the
// daemon's relay, and a real Envoy.
package gateway

import (
	"context"
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
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/e2e/ads"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/relay"
)

const (
	// retryBuffer is the part of a body that a gateway keeps for a retry, maxRequestHeadersKB how much
	// of headers it takes: those of shim/gateway.
	retryBuffer         = 64 << 10
	maxRequestHeadersKB = 32
)

// video is a function with an input, thumbs one without.
func video() platform.Function {
	return platform.Function{
		Name: "default/video", Hosts: []string{"video.default.example.com", "video.default"},
		RequestTimeout: 60 * time.Second,
		Policy:         policy.Policy{Input: "s3://videos/{header.x-key}", ReadyTimeout: 30 * time.Second},
	}
}

func thumbs() platform.Function {
	return platform.Function{
		Name: "default/thumbs", Hosts: []string{"thumbs.default.example.com"}, RequestTimeout: 10 * time.Second,
		Policy: policy.Policy{ReadyTimeout: 20 * time.Second},
	}
}

func ready(f platform.Function, id, address string) platform.Instance {
	return platform.Instance{
		ID: id, Function: f.Name, Node: "edge", Phase: platform.Ready, Address: netip.MustParseAddrPort(address),
	}
}

// patience is how long a test waits for what must happen: many times what an Envoy takes to
// compile its filters, before which it does nothing else.
const patience = 2 * time.Minute

// bed is one real Envoy, and what serves it its configuration.
type bed struct {
	t         *testing.T
	gw        gateway.Config
	url       string
	admin     *http.Client
	server    *ads.Server
	weights   routing.Weights // of the next update
	bootstrap []byte
	program   string // of HEADSTART_BIN
	refused   *atomic.Pointer[nodeapi.GatewayRefusals]
	hints     *atomic.Pointer[backend] // nil inside: nobody takes them
}

// start brings up the bed with a first state; edit may change the configuration.
func start(t *testing.T, st platform.State, edit func(*gateway.Config)) *bed {
	t.Helper()
	b := prepare(t, st, edit)
	b.settle()
	return b
}

// prepare is start without waiting for the gateway to take everything.
func prepare(t *testing.T, st platform.State, edit func(*gateway.Config)) *bed {
	t.Helper()
	b := lay(t, st, edit)
	b.launch()
	b.ready()
	return b
}

// lay is prepare without the gateway.
func lay(t *testing.T, st platform.State, edit func(*gateway.Config)) *bed {
	t.Helper()
	return layFor(t, st, edit, nil)
}

// layFor has activity hear of the gateway's requests, unless it is nil.
func layFor(t *testing.T, st platform.State, edit func(*gateway.Config), activity relay.Activity) *bed {
	t.Helper()
	dir := t.TempDir()
	port := porttest.Free(t)
	b := &bed{t: t, program: "envoy", url: fmt.Sprintf("http://127.0.0.1:%d", port), refused: &atomic.Pointer[nodeapi.GatewayRefusals]{}, hints: &atomic.Pointer[backend]{}, gw: gateway.Config{Node: "edge", Port: uint32(port),
		IngressSocket: filepath.Join(dir, "ingress"), HintSocket: filepath.Join(dir, "hint"), AdminSocket: filepath.Join(dir, "admin")}}
	if edit != nil {
		edit(&b.gw)
	}
	var err error
	if b.server, err = ads.Open(filepath.Join(dir, "xds")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.server.Close(); err != nil {
			t.Error(err)
		}
	})
	b.server.Log, b.server.Refused = slog.New(slog.NewTextHandler(t.Output(), nil)), b.refused.Store
	b.server.Hints = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := b.hints.Load(); s != nil {
			s.took(r)
			return
		}
		http.NotFound(w, r)
	})
	if activity != nil {
		b.server.Activity = activity
	}
	if b.bootstrap, err = b.server.Gateway(b.gw); err != nil {
		t.Fatal(err)
	}
	b.update(st)
	return b
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

// launch starts Envoy.
func (b *bed) launch() {
	b.t.Helper()
	dir := filepath.Dir(b.gw.AdminSocket)
	path := filepath.Join(dir, "envoy.json")
	if err := os.WriteFile(path, b.bootstrap, 0o600); err != nil {
		b.t.Fatal(err)
	}
	logPath := filepath.Join(dir, "envoy.log")
	logFile, err := os.Create(logPath)
	if err != nil {
		b.t.Fatal(err)
	}
	envoy := exec.Command(
		programtest.Path(b.t, b.program), "-c", path, "--concurrency", "2", "--disable-hot-restart", "--log-level",
		"warning",
	)
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
	b.admin = unixClient(b.t, b.gw.AdminSocket)
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
	if err := b.server.Update(st, b.weights); err != nil {
		b.t.Fatal(err)
	}
}

// settle waits until the gateway has taken over what was published, once it is connected.
func (b *bed) settle() {
	b.t.Helper()
	b.eventually("the gateway connects", func() bool { return b.stat("listener_manager.lds.update_success") > 0 })
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	if err := b.server.Settled(ctx); err != nil {
		b.t.Fatal(err)
	}
}

// problems are what the gateway cannot do, or refuses.
func (b *bed) problems() []*nodeapi.GatewayRefusal { return b.refused.Load().GetRefusals() }

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

func (s *backend) took(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = r
	s.count++
}

func (s *backend) requests() (int, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.last
}

// listenForHints takes what the gateway's filter tells of requests.
func (b *bed) listenForHints() *backend {
	s := &backend{}
	b.hints.Store(s)
	return s
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
		s.took(r)
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
