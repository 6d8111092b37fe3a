//go:build integration

// Package relay tests the way from the platform's state to a mesh's gateway: control plane,
// the daemon's relay, and a real Envoy whose configuration is that of a mesh.
package relay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/gatekey"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/relay"
)

// patience is how long a test waits for what must happen: many times what an Envoy takes to
// compile its filters, before which it does nothing else.
const patience = 2 * time.Minute

// workers are the Envoy's.
const workers = 2

// bed is one node of a mesh, with its control plane.
type bed struct {
	t        *testing.T
	dir      string
	activity *activity
	address  string // of the control plane

	controlPlane *xds.Server
	relay        *relay.Relay
	// refused is what gateways refuse.
	refused atomic.Pointer[nodeapi.GatewayRefusals]
	// weights are what update publishes, and outliers is how the function's cluster ejects endpoints.
	weights  routing.Weights
	outliers string
	// routes and clusters are those of others.
	routes, clusters string
	keys             *gatekey.Keys
	hints            atomic.Pointer[backend] // nil: nobody takes them
	// inputs are the templates that the function's cluster has.
	inputs reference.Inputs
	// collector is the socket to which the gateway tells its spans; empty: it has none.
	collector string
	metrics   *prometheus.Registry // of the daemon
	// host and namespace are where the gateway listens.
	host, namespace string
	// program is the gateway's Envoy; empty: the newest.
	program string
	// older: the daemon is of a version before, and does not say what to expect. known are the questions of those
	// that have been told.
	older bool
	known atomic.Int32
	// daemon is what of the daemon's server is different.
	daemon []grpc.ServerOption
	// The ends of what runs.
	stopControlPlane, stopDaemon, stopEnvoy func()
	url                                     string
}

func newBed(t *testing.T, options ...func(*bed)) *bed {
	t.Helper()
	b := &bed{t: t, dir: t.TempDir(), activity: &activity{}, address: "127.0.0.1:0", host: "127.0.0.1"}
	b.keys = b.newKeys()
	for _, o := range options {
		o(b)
	}
	b.startControlPlane()
	b.startDaemon()
	return b
}

func (b *bed) newKeys() *gatekey.Keys {
	b.t.Helper()
	keys, err := gatekey.Open(b.socket("keys.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := keys.WriteFile(b.socket("key"), -1); err != nil {
		b.t.Fatal(err)
	}
	return keys
}

func (b *bed) socket(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) log(who string) *slog.Logger {
	return slog.New(slog.NewTextHandler(b.t.Output(), nil)).With("of", who)
}

// serve serves g until stop, which the test's end calls at the latest.
func (b *bed) serve(g *grpc.Server, network, address string) (string, func()) {
	b.t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		b.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	stop := sync.OnceFunc(func() { g.Stop(); wg.Wait() })
	b.t.Cleanup(stop)
	return l.Addr().String(), stop
}

func (b *bed) startControlPlane() {
	b.t.Helper()
	b.controlPlane = xds.New(xds.Config{Endpoints: platform.Function.AssignmentName,
		IngressSocket: b.socket("ingress.sock"), Cluster: istio.ClusterOf,
		Verify: func(_ context.Context, node string) error {
			if node != "edge" {
				return errors.New("another's certificate")
			}
			return nil
		}}, b.log("control plane"))
	g := grpc.NewServer(xds.ServerOptions()...)
	b.controlPlane.Register(g)
	b.address, b.stopControlPlane = b.serve(g, "tcp", b.address)
}

// startDaemon runs what of the daemon the gateway sees.
func (b *bed) startDaemon() {
	b.t.Helper()
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience, Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second}}))
	if err != nil {
		b.t.Fatal(err)
	}
	b.metrics = prometheus.NewRegistry()
	r := relay.New(relay.Config{Keys: b.keys, Node: "edge", ControlPlane: conn, StateFile: b.socket("endpoints.pb"), Activity: b.activity, Refused: b.refused.Store,
		Metrics: relay.NewMetrics(b.metrics), Log: b.log("daemon")})
	b.relay = r
	r.SetFunctions([]*nodeapi.Function{{Name: "default/fire", Hosts: []string{fireHost}}})
	g := grpc.NewServer(append(relay.ServerOptions(), b.daemon...)...)
	r.Register(g)
	_, stop := b.serve(g, "unix", b.socket("gateway.sock"))
	stopFilters := b.serveFilters(r)
	ctx, cancel := context.WithCancel(b.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	b.stopDaemon = sync.OnceFunc(func() { stop(); cancel(); wg.Wait(); stopFilters(); conn.Close() })
	b.t.Cleanup(b.stopDaemon)
}

// serveFilters serves what the gateway's filters ask the daemon.
func (b *bed) serveFilters(r *relay.Relay) (stop func()) {
	b.t.Helper()
	l, err := net.Listen("unix", b.socket("hints.sock"))
	if err != nil {
		b.t.Fatal(err)
	}
	mux := http.NewServeMux()
	if !b.older {
		expectations := r.Expectations()
		mux.HandleFunc(filterapi.ExpectationsPath, func(w http.ResponseWriter, r *http.Request) {
			if !b.keys.Admits(r.Header.Get(filterapi.HeaderKey)) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			if r.Header.Get(filterapi.HeaderKnown) != "" {
				b.known.Add(1)
			}
			expectations.ServeHTTP(w, r)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if s := b.hints.Load(); s != nil {
			s.took(r)
			return
		}
		http.NotFound(w, r)
	})
	h := &http.Server{Handler: mux}
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.Serve(l) })
	return func() { _ = h.Close(); wg.Wait() }
}

// listenForHints takes what the gateway's filter tells of requests.
func (b *bed) listenForHints() *backend {
	s := &backend{}
	b.hints.Store(s)
	return s
}

func (b *bed) update(st platform.State) {
	b.t.Helper()
	if err := b.controlPlane.Update(st, b.weights); err != nil {
		b.t.Fatal(err)
	}
}

// activity is the last word on each function.
type activity struct {
	mu     sync.Mutex
	active map[string]bool
}

func (a *activity) Seen(function string, active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.active == nil {
		a.active = map[string]bool{}
	}
	a.active[function] = active
}

func (a *activity) of(function string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active[function]
}

func (b *bed) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// startEnvoy starts a fresh gateway, with the filters if it is given a
// configuration.
func (b *bed) startEnvoy(plugin []byte) {
	b.t.Helper()
	port := int(porttest.Free(b.t))
	b.url = fmt.Sprintf("http://%s:%d/", b.host, port)
	b.runEnvoy(b.bootstrap(port, plugin))
}

// runEnvoy runs an Envoy, and returns when it listens at b.url.
func (b *bed) runEnvoy(bootstrap []byte) {
	b.t.Helper()
	path, logPath := b.socket("envoy.json"), b.socket("envoy.log")
	if err := os.WriteFile(path, bootstrap, 0o600); err != nil {
		b.t.Fatal(err)
	}
	logFile, err := os.Create(logPath)
	if err != nil {
		b.t.Fatal(err)
	}
	envoy := exec.Command(programtest.Path(b.t, cmp.Or(b.program, "envoy")), "-c", path, "--concurrency", strconv.Itoa(workers), "--disable-hot-restart", "--log-level", "warning")
	envoy.Stdout, envoy.Stderr = logFile, logFile
	if err := nsthread.Run(b.namespace, envoy.Start); err != nil {
		b.t.Fatal(err)
	}
	b.stopEnvoy = sync.OnceFunc(func() {
		_ = envoy.Process.Kill()
		_ = envoy.Wait() // killed
		logFile.Close()
		if said, err := os.ReadFile(logPath); err == nil && b.t.Failed() {
			b.t.Logf("envoy said:\n%s", said)
		}
	})
	b.t.Cleanup(b.stopEnvoy)
	b.eventually("Envoy listens", func() bool {
		c, err := net.Dial("tcp", strings.Trim(strings.TrimPrefix(b.url, "http://"), "/"))
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
}

// bootstrap is a mesh's gateway with what Headstart adds to it.
func (b *bed) bootstrap(port int, plugin []byte) []byte {
	b.t.Helper()
	text, err := os.ReadFile("testdata/gateway.yaml")
	if err != nil {
		b.t.Fatal(err)
	}
	filter := "" // none
	if plugin != nil {
		filter = fmt.Sprintf(`- {name: headstart-prefetch, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm, config: {
			name: headstart-prefetch, failure_policy: FAIL_OPEN, vm_config: {runtime: envoy.wasm.runtime.v8, code: {local: {filename: %q}}},
			configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: %q}}}}`, programtest.Path(b.t, "filters.wasm"), plugin)
	}
	var g gateway
	g.read(b.t, []byte(strings.NewReplacer("127.0.0.1", b.host, "20000", fmt.Sprint(port), "# FILTER", filter, "# OUTLIERS", b.outliers, "# ROUTES", b.routes, "# CLUSTERS", b.clusters).Replace(string(text))))
	var manifests [][]byte
	for _, name := range []string{"gateways.yaml", "keys.yaml"} {
		manifest, err := os.ReadFile(filepath.Join("../../manifests/istio", name))
		if err != nil {
			b.t.Fatal(err)
		}
		manifests = append(manifests, manifest)
	}
	function, err := istio.Object(istio.Config{}, istio.Function{Name: "default/fire", Inputs: b.inputs,
		Service: istio.Service{Host: fireHost, Port: 80, Endpoints: at().Functions[0].AssignmentName()}})
	if err != nil {
		b.t.Fatal(err)
	}
	generated, err := function.MarshalJSON()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, object := range append(manifests, generated) {
		g.apply(b.t, bytes.ReplaceAll(object, []byte("/run/headstart/gateway"), []byte(b.dir)))
	}
	if b.collector != "" {
		g.trace(b.t, b.collector)
	}
	return g.write(b.t, b.dir)
}

// backend serves on an address and says its name; it keeps the last request.
type backend struct {
	address string
	mu      sync.Mutex
	last    *http.Request
	count   int
}

func (b *bed) listen(network, address string, answer http.HandlerFunc) *backend {
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
	b.t.Cleanup(func() { _ = h.Close(); wg.Wait() })
	return s
}

func (s *backend) took(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.count = r, s.count+1
}

func (s *backend) request() (*http.Request, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.count
}

func says(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }
}

// client keeps one connection open, as a busy client does.
var client = &http.Client{Timeout: patience}

// get asks the gateway; headers are pairs. It returns the answer's body, or its status if
// that is not 200.
func (b *bed) get(headers ...string) string {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Host = "video.example"
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]} // as written
	}
	answer, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if answer.StatusCode != http.StatusOK {
		return answer.Status + " " + string(body)
	}
	return string(body)
}
