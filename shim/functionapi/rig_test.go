package functionapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// spans has all that the tests' servers record; a test looks for its own trace.
var spans = tracetest.NewSpanRecorder()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	goleak.VerifyTestMain(m)
}

// patience is more than anything takes here; who waits for it has lost.
const patience = 20 * time.Second

// namespaces are those of the sandboxes that tests have, by id.
var namespaces = map[string]string{"fire-1": "default", "fire-2": "default", "web-1": "web"}

// rig is a server with sandboxes, whose calls get to calls.
type rig struct {
	*functionapi.Server
	t        *testing.T
	dir      string // with a directory per sandbox
	registry *prometheus.Registry
	stop     func()                                          // ends the server and waits
	job      func(ctx context.Context, sandbox string) error // nil: all jobs are known

	late   atomic.Int64 // how often an instance was at work for nobody
	stored [][]string   // what stores was asked for; one request at a time

	mu        sync.Mutex
	functions map[string]*nodeapi.Function
}

func newRig(t *testing.T, calls http.HandlerFunc) *rig {
	t.Helper()
	// Longer than a socket's address may be.
	r := next(t, filepath.Join(t.TempDir(), strings.Repeat("d", 120)), false, calls)
	r.functions = map[string]*nodeapi.Function{
		"default/fire":  {Name: "default/fire", Hosts: []string{"fire.default", "fire.default.headstart.local"}},
		"default/video": {Name: "default/video", HasInput: true, InputTemplate: "s3://videos/{header.x-key}"},
		"default/masked": {Name: "default/masked", InputTemplates: map[string]string{
			"mask": "s3://masks/{header.x-key}",
		}},
		"default/clip": {Name: "default/clip", HasInput: true, InputTemplate: "/clips/{camera} s3://videos/{path.camera|urldecode}/{query.frame}"},
		"web/page":     {Name: "web/page"},
		"web/open":     {Name: "web/open", Callers: []string{"media", "default"}},
	}
	return r
}

// next is a server in the directory of another.
func next(t *testing.T, dir string, succeeds bool, calls http.HandlerFunc) *rig {
	t.Helper()
	r := &rig{t: t, dir: dir, registry: prometheus.NewRegistry()}
	r.Server = functionapi.New(functionapi.Config{Function: r.function, Caller: callerOf, Job: r.awaitJob, Store: r.stores,
		Late: func(string) { r.late.Add(1) }, Succeeds: succeeds, Metrics: functionapi.NewMetrics(r.registry), Log: slog.New(slog.DiscardHandler)})
	for id, namespace := range namespaces {
		path := filepath.Join(dir, id)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		r.open(id, namespace)
	}
	if calls == nil {
		calls = func(http.ResponseWriter, *http.Request) { t.Error("something is called") }
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx, calls) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

func (r *rig) open(id, namespace string) {
	r.t.Helper()
	root, err := os.OpenRoot(filepath.Join(r.dir, id))
	if err == nil {
		err = r.Open(id, namespace, root)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// callerOf knows one of the sandboxes as a function's.
func callerOf(_ context.Context, sandbox string) string {
	if sandbox == "fire-1" {
		return "default/fire"
	}
	return ""
}

func (r *rig) function(_ context.Context, name string) (*nodeapi.Function, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.functions[name]; f != nil {
		return f, nil
	}
	return nil, problem.New(http.StatusNotFound, "FunctionUnknown", "", "no such function is deployed")
}

func (r *rig) awaitJob(ctx context.Context, sandbox string) error {
	if r.job == nil {
		return nil
	}
	return r.job(ctx, sandbox)
}

// client is a program in the sandbox: it has the socket's directory, mounted at a short path.
func (r *rig) client(id string) *http.Client {
	r.t.Helper()
	dir, err := os.Open(filepath.Join(r.dir, id))
	if err != nil {
		r.t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/headstart.sock", dir.Fd()))
	}}
	r.t.Cleanup(func() { transport.CloseIdleConnections(); dir.Close() })
	return &http.Client{Transport: transport, Timeout: patience}
}

// ask sends a request on a sandbox's socket; headers are name and value in turn.
func (r *rig) ask(id, method, path string, body io.Reader, headers ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://headstart"+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, err := r.client(id).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func (r *rig) get(id, path string, headers ...string) *http.Response {
	r.t.Helper()
	return r.ask(id, http.MethodGet, path, nil, headers...)
}

// begin has a sandbox work on a request with this input, until the test's end or end is called.
func (r *rig) begin(id, request string, in sandboxes.Input, depth int) (end func()) {
	r.t.Helper()
	inputs := map[string]sandboxes.Input{}
	if in != nil {
		inputs[""] = in
	}
	end = sync.OnceFunc(r.Begin(id, sandboxes.Delivery{Request: request, Inputs: inputs, Depth: depth,
		Traceparent: "00-" + request + "-00f067aa0ba902b7-01"}))
	r.t.Cleanup(end)
	return end
}

// id is the n-th request's.
func id(n int) string { return fmt.Sprintf("%032x", n+0xabc0) }

func wantProblem(t *testing.T, resp *http.Response, status int, title, field string) {
	t.Helper()
	var p problem.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(resp.Status, err)
	}
	if resp.StatusCode != status || p.Status != status || p.Title != title || p.Field != field || p.Detail == "" || resp.Header.Get("Content-Type") != filterapi.ProblemContentType {
		t.Errorf("%d %+v, want %d %s of %q", resp.StatusCode, p, status, title, field)
	}
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("after %q: %v", b, err)
	}
	return string(b)
}

// input is one in memory that comes as a test wants it to.
type input struct {
	contentType, version string
	sized                bool // its size is known from the start

	mu       sync.Mutex
	size     int64
	data     []byte
	complete bool
	err      error
	changed  chan struct{}
}

// sized is an input of that size of which nothing has come.
func sized(size int) *input {
	return &input{size: int64(size), sized: true, changed: make(chan struct{})}
}

// unsized is one of unknown size.
func unsized() *input { return &input{size: -1, changed: make(chan struct{})} }

// whole is an input that is there.
func whole(content string) *input {
	in := sized(len(content))
	in.contentType, in.version = "video/x-motion-jpeg", `"v1"`
	in.come(content)
	in.end(nil)
	return in
}

func (in *input) change(how func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	how()
	close(in.changed)
	in.changed = make(chan struct{})
}

func (in *input) come(more string) { in.change(func() { in.data = append(in.data, more...) }) }

func (in *input) end(err error) {
	in.change(func() { in.complete, in.err, in.size = true, err, max(in.size, int64(len(in.data))) })
}

func (in *input) Object(context.Context) (source.Object, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return source.Object{Size: in.size, ContentType: in.contentType, Version: in.version}, nil
}

func (in *input) await(ctx context.Context, is func() bool) error {
	for {
		in.mu.Lock()
		there, changed := is(), in.changed
		in.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (in *input) Wait(ctx context.Context) error {
	if err := in.await(ctx, func() bool { return in.complete }); err != nil {
		return err
	}
	return in.err
}

func (in *input) NewReader(ctx context.Context) (io.ReadCloser, error) {
	return io.NopCloser(&reading{ctx: ctx, of: in}), nil
}

type reading struct {
	ctx context.Context
	of  *input
	at  int
}

func (r *reading) Read(p []byte) (int, error) {
	in := r.of
	if err := in.await(r.ctx, func() bool { return len(in.data) > r.at || in.complete }); err != nil {
		return 0, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.at < len(in.data) {
		n := copy(p, in.data[r.at:])
		r.at += n
		return n, nil
	}
	if in.err != nil {
		return 0, in.err
	}
	return 0, io.EOF
}
