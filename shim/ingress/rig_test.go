package ingress_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/observed"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// spans has all that the tests' ingresses record; a test looks for its own trace.
var spans = tracetest.NewSpanRecorder()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	goleak.VerifyTestMain(m)
}

const (
	withInput    = "default/video"
	withoutInput = "default/plain"
	withBody     = "default/upload" // the request's body is its input
	oneAtATime   = "default/one"    // its instance takes one request at a time
	target       = "video-1"        // the instance that requests are bound to
	bufferLimit  = 64 << 20
	inputLimit   = 8 << 20
	// soon is more than anything takes here; who waits for it has lost.
	soon = 10 * time.Second
)

// rig is one node: the real ingress, objects and buffer between a store in memory and
// functions over real HTTP.
type rig struct {
	*ingress.Ingress
	store      *sourcetest.Memory
	buffer     *buffer.Buffer
	registry   *prometheus.Registry
	functions  *ingress.Functions
	cp         *controlPlane
	instances  *instances
	dir, named string // what the instance sees as /headstart/input and /headstart/inputs
	gateway    *http.Client
	outcomes   chan objects.Outcome
	logs       *log
	mesh       *mesh
	deliveries *deliveries
	blind      bool           // the store says nothing
	busy       func() float64 // the processors
	source     source.Source  // nil: store
	observed   *observed.Notes
	allowed    error // says the operator of what observed functions name
}

// newRig returns a node whose instance is function. What every request leaves behind,
// namely nothing, is checked at the end of each test.
func newRig(t testing.TB, function http.HandlerFunc) *rig {
	t.Helper()
	r := newNode(t, http.DefaultTransport)
	if function != nil {
		r.instances.run(t, function)
	}
	r.gateway = unixClient(t, serveUnix(t, r.Gateway()))
	return r
}

func newNode(t testing.TB, peers http.RoundTripper) *rig {
	t.Helper()
	return newNodeNamed(t, "edge-1", peers)
}

func newNodeNamed(t testing.TB, node string, peers http.RoundTripper) *rig {
	t.Helper()
	state := t.TempDir()
	buf, err := buffer.Open(filepath.Join(state, "buffer"), bufferLimit)
	if err != nil {
		t.Fatal(err)
	}
	return newNodeOver(t, node, peers, buf, state)
}

// newNodeOver is a node that has its inputs in the buffer, which it closes, and its
// sandboxes' files below state.
func newNodeOver(t testing.TB, node string, peers http.RoundTripper, buf *buffer.Buffer, state string) *rig {
	t.Helper()
	r := &rig{busy: func() float64 { return 0 },
		store: &sourcetest.Memory{}, buffer: buf, registry: prometheus.NewRegistry(), functions: ingress.NewFunctions(),
		cp: &controlPlane{held: map[string]int32{}}, dir: filepath.Join(state, "input"), named: filepath.Join(state, "inputs"), outcomes: make(chan objects.Outcome, 2048), logs: &log{}, mesh: &mesh{}, deliveries: &deliveries{}, observed: observed.New()}
	if err := errors.Join(os.Mkdir(r.dir, 0o755), os.Mkdir(r.named, 0o755)); err != nil {
		t.Fatal(err)
	}
	input, err := os.OpenRoot(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	named, err := os.OpenRoot(r.named)
	if err != nil {
		t.Fatal(err)
	}
	inputs := &staging.Dir{Input: input, Named: named}
	r.instances = &instances{inputs: inputs}
	e := objects.New(objects.Config{Sources: func(string, string) (source.Source, error) {
		if r.blind {
			return blindSource{}, nil
		}
		if r.source != nil {
			return r.source, nil
		}
		return r.store, nil
	}, Buffer: buf, Age: time.Hour, Metrics: outcomes(r.outcomes)})
	r.functions.Set([]*nodeapi.Function{
		{Name: withInput, HasInput: true, Store: "edge", InputLimit: inputLimit, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)},
		{Name: withoutInput, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)},
		{Name: oneAtATime, OneAtATime: true, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)},
		{Name: withBody, BodyInput: true, InputLimit: inputLimit, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)},
	})
	r.Ingress = ingress.New(ingress.Config{Node: node, Functions: r.functions, ControlPlane: r.cp, Instances: r.instances, Objects: e, Peers: peers,
		Observed: r.observed, Allowed: func(string, string, source.Reference) error { return r.allowed },
		Mesh: r.mesh, Deliveries: r.deliveries, Busy: func() float64 { return r.busy() },
		Metrics: ingress.NewMetrics(r.registry), Log: slog.New(slog.NewJSONHandler(r.logs, nil))})
	r.Hasten()
	t.Cleanup(func() {
		r.Close()
		// A server does not wait for connections that were upgraded.
		eventually(t, "nothing is held", func() bool { return r.cp.holds(withInput)+r.cp.holds(withoutInput)+r.cp.holds(withBody) == 0 })
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
		r.nothingLeft(t)
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
		_ = inputs.Close()
	})
	return r
}

func (r *rig) nothingLeft(t testing.TB) {
	t.Helper()
	// A read from the buffer may still end.
	eventually(t, "the buffer is empty", func() bool { return r.buffer.Used() == 0 })
	if files, err := os.ReadDir(r.dir); err != nil || len(files) != 0 {
		t.Errorf("files are left in the instance's directory: %v, %v", files, err)
	}
	if files, err := filepath.Glob(filepath.Join(r.named, "*", "*")); err != nil || len(files) != 0 {
		t.Errorf("named inputs are left in the instance's directory: %v, %v", files, err)
	}
	r.cp.mu.Lock()
	defer r.cp.mu.Unlock()
	for f, n := range r.cp.held {
		if n != 0 {
			t.Errorf("%d requests of %s are still held", n, f)
		}
	}
}

// change replaces the policy of the function with an input.
func (r *rig) change(change func(*nodeapi.Function)) {
	f := &nodeapi.Function{Name: withInput, HasInput: true, Store: "edge", InputLimit: inputLimit, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)}
	change(f)
	r.functions.Set([]*nodeapi.Function{f})
}

// changeUpload replaces the policy of the function whose input is the request's body.
func (r *rig) changeUpload(change func(*nodeapi.Function)) {
	f := &nodeapi.Function{Name: withBody, BodyInput: true, InputLimit: inputLimit, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)}
	change(f)
	r.functions.Set([]*nodeapi.Function{f})
}

// put makes an object and returns its reference.
func (r *rig) put(key, contentType string, content []byte) string {
	ref := source.Reference{Scheme: "s3", Bucket: "inputs", Key: key}
	r.store.Put(ref, contentType, content)
	return ref.String()
}

// do sends a request as the gateway does. It has the trace of its id.
func (r *rig) do(t testing.TB, req *http.Request) *http.Response {
	t.Helper()
	return do(t, r.gateway, req)
}

func do(t testing.TB, c *http.Client, req *http.Request) *http.Response {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// request is one for the function, from the gateway.
func request(t testing.TB, method, function, id, reference string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://video.example/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-headstart-function", function)
	for name, v := range map[string]string{"x-headstart-request": id, "x-headstart-input": reference} {
		if v != "" {
			req.Header.Set(name, v)
		}
	}
	if id != "" {
		req.Header.Set("traceparent", "00-"+id+"-00f067aa0ba902b7-01")
	}
	return req
}

// newID returns a request's id, which is also its trace's.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func read(t testing.TB, body io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantProblem checks a whole problem and returns it.
func wantProblem(t testing.TB, resp *http.Response, status int, title, field string) problem.Problem {
	t.Helper()
	var p problem.Problem
	body := read(t, resp.Body)
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%d is answered with %q", resp.StatusCode, body)
	}
	if resp.StatusCode != status || p.Status != status || p.Title != title || p.Field != field || p.Detail == "" || resp.Header.Get("Content-Type") != filterapi.ProblemContentType {
		t.Errorf("got %d %s; want %d %s of field %q", resp.StatusCode, body, status, title, field)
	}
	return p
}

func serveUnix(t testing.TB, h http.Handler) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnContext = serve.WithConnection
	s.Start()
	t.Cleanup(s.Close)
	return socket
}

func unixClient(t testing.TB, socket string) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, ExpectContinueTimeout: soon,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(soon); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never happened: ", what)
		}
	}
}

// controlPlane binds each request to the instance target, unless activate says else.
type controlPlane struct {
	activate func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error)
	sign     func(*nodeapi.Activate, *nodeapi.Bound) string // nil: an older one

	mu     sync.Mutex
	asked  []*nodeapi.Activate
	held   map[string]int32
	events []*nodeapi.Event
}

func (c *controlPlane) Activate(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
	c.mu.Lock()
	c.asked = append(c.asked, a)
	c.mu.Unlock()
	if c.activate != nil {
		bound, err := c.activate(ctx, a)
		if err == nil && c.sign != nil && bound.GetPeerAddress() != "" {
			bound = proto.CloneOf(bound)
			bound.Capability = c.sign(a, bound)
		}
		return bound, err
	}
	return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1", Cold: true}, nil
}

func (c *controlPlane) Hold(function string, delta int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[function] += delta
}

func (c *controlPlane) holds(function string) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[function]
}

func (c *controlPlane) Event(e *nodeapi.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
}

// activations is how often an instance was asked for.
func (c *controlPlane) activations() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

// told returns the reasons of the events.
func (c *controlPlane) told() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reasons []string
	for _, e := range c.events {
		reasons = append(reasons, e.GetReason())
	}
	return reasons
}

// instances has the one instance target, ready at address unless ready says else.
type instances struct {
	ready   func(context.Context, string) (netip.AddrPort, error)
	address netip.AddrPort
	meshSNI string
	inputs  *staging.Dir // nil: the instance sees none

	mu       sync.Mutex
	replaced bool
	news     chan struct{}
}

// Serving says that a function that takes one request at a time has the instance, until that is replaced.
func (i *instances) Serving(function string) (ids []string, changed <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.news == nil {
		i.news = make(chan struct{})
	}
	if function == oneAtATime && !i.replaced && i.address.IsValid() {
		ids = []string{target}
	}
	return ids, i.news
}

func (i *instances) IsClosed(string) bool { return true }

func (i *instances) Replace(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.replaced = i.replaced || id == target
	close(i.news)
	i.news = make(chan struct{})
}

func (i *instances) wasReplaced() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.replaced
}

func (i *instances) run(t testing.TB, function http.HandlerFunc) {
	t.Helper()
	s := httptest.NewUnstartedServer(function)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	i.address = netip.MustParseAddrPort(s.Listener.Addr().String())
}

func (i *instances) Ready(ctx context.Context, id string) (sandboxes.Endpoint, error) {
	if i.ready != nil {
		at, err := i.ready(ctx, id)
		return sandboxes.Endpoint{Address: at, MeshSNI: i.meshSNI}, err
	}
	if id != target {
		return sandboxes.Endpoint{}, problem.New(http.StatusServiceUnavailable, "InstanceGone", "", "it is gone")
	}
	return sandboxes.Endpoint{Address: i.address, MeshSNI: i.meshSNI}, nil
}

func (i *instances) Inputs(id string) (*staging.Dir, bool) {
	if id != target {
		return nil, false
	}
	return i.inputs, true
}

// mesh notes whom requests were for, and sends them as they are but for TLS.
type mesh struct {
	mu    sync.Mutex
	names []string
}

func (m *mesh) Transport(sni string, h2 bool) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		m.mu.Lock()
		m.names = append(m.names, sni)
		m.mu.Unlock()
		if h2 {
			t := &http.Transport{Protocols: h2c(), DisableKeepAlives: true}
			return t.RoundTrip(r)
		}
		return http.DefaultTransport.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// log keeps what is logged.
type log struct {
	mu    sync.Mutex
	lines []byte
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, p...)
	return len(p), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(slices.Clone(l.lines))
}

// outcomes takes what becomes of inputs.
type outcomes chan objects.Outcome

func (o outcomes) Ended(of objects.Outcome) { o <- of }
func (outcomes) Evicted(string)             {}
