package admin_test

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manifestMost is the documented limit.
const manifestMost = 16 << 20

// backend answers as it is told and remembers what it was asked.
type backend struct {
	err    error
	status admin.Status
	trace  trace.Trace
	// weights are default/fire's.
	weights routing.Explanation
	absent  trace.Absence
	traces  trace.Listing
	lines   []admin.LogLine
	asked   admin.LogOptions
	// request is an id that the trace is known by, too.
	request string

	applied []byte
	deleted string
	// begun is closed when a job runs, which then ends with its caller; nil: it ends at once.
	begun chan struct{}
}

func (b *backend) RunJob(ctx context.Context, manifest io.Reader) (admin.JobOutcome, error) {
	var err error
	if b.applied, err = io.ReadAll(manifest); err != nil {
		return admin.JobOutcome{}, err
	}
	if b.begun != nil {
		close(b.begun)
		<-ctx.Done()
		return admin.JobOutcome{}, ctx.Err()
	}
	return admin.JobOutcome{Job: "default/digest", Reason: admin.Succeeded}, b.err
}

func (b *backend) Apply(manifest io.Reader) ([]admin.Applied, error) {
	var err error
	if b.applied, err = io.ReadAll(manifest); err != nil {
		return nil, err
	}
	return []admin.Applied{{Function: "default/fire", Change: platform.Created}}, b.err
}

func (b *backend) Delete(function string) error { b.deleted = function; return b.err }

func (b *backend) Status() admin.Status { return b.status }

func (b *backend) Weights(function string) (routing.Explanation, bool) {
	return b.weights, function == b.weights.Function
}

func (b *backend) Trace(id string) (trace.Trace, error) {
	if id != b.trace.ID && id != b.request {
		return trace.Trace{}, stdcmp.Or(b.absent, trace.Unknown)
	}
	return b.trace, nil
}

func (b *backend) Traces(string) trace.Listing { return b.traces }

func (b *backend) Logs(ctx context.Context, o admin.LogOptions, to func(admin.LogLine) error) error {
	b.asked = o
	for _, l := range b.lines {
		if err := to(l); err != nil {
			return err
		}
	}
	if o.Follow {
		<-ctx.Done()
	}
	return b.err
}

// serve returns the path of a socket that b answers at.
func serve(t *testing.T, b admin.Backend) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: admin.Handler(b)}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return socket
}

func TestApply(t *testing.T) {
	var b backend
	applied, err := admin.NewClient(serve(t, &b)).Apply(t.Context(), strings.NewReader("kind: Service\n"))
	if err != nil {
		t.Fatal(err)
	}
	if string(b.applied) != "kind: Service\n" {
		t.Errorf("the control plane read %q", b.applied)
	}
	if d := cmp.Diff([]admin.Applied{{Function: "default/fire", Change: platform.Created}}, applied); d != "" {
		t.Error(d)
	}
}

// A job ends when whoever runs it goes away.
func TestRunJob(t *testing.T) {
	var b backend
	o, err := admin.NewClient(serve(t, &b)).RunJob(t.Context(), strings.NewReader("kind: Job\n"))
	if err != nil || string(b.applied) != "kind: Job\n" || !reflect.DeepEqual(o, admin.JobOutcome{
		Job: "default/digest", Reason: admin.Succeeded,
	}) {
		t.Errorf("got %+v, %v of %q", o, err, b.applied)
	}
	b = backend{begun: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := admin.NewClient(serve(t, &b)) // whose end waits for the job's
	ended := make(chan error)
	go func() {
		_, err := c.RunJob(ctx, strings.NewReader(""))
		ended <- err
	}()
	<-b.begun
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestErrorsArriveAsTheyAre(t *testing.T) {
	for _, err := range []error{
		&platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "ManifestRefused", Message: "document 1, line 7: function default/fire: spec.x: <b>\"&\"</b>\n\nsecond line"},
		errors.New("writing the deployed functions: no space left on device"),
	} {
		want := err.Error()
		var r *platform.Refusal
		if errors.As(err, &r) {
			want = r.Message
		}
		c := admin.NewClient(serve(t, &backend{err: err}))
		if _, got := c.Apply(t.Context(), strings.NewReader("")); got == nil || got.Error() != want {
			t.Errorf("applying: %v, want %s", got, want)
		}
		if _, got := c.RunJob(t.Context(), strings.NewReader("")); got == nil || got.Error() != want {
			t.Errorf("running: %v, want %s", got, want)
		}
		if got := c.Delete(t.Context(), "default/fire"); got == nil || got.Error() != want {
			t.Errorf("deleting: %v, want %s", got, want)
		}
	}
}

// Scripts that speak HTTP get problem details (RFC 9457).
func TestErrorsAreProblems(t *testing.T) {
	refused := &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function", Field: "metadata.name"}
	for _, c := range []struct {
		err    error
		status int
		want   map[string]any
	}{
		{refused, http.StatusNotFound, map[string]any{"type": "about:blank", "title": "FunctionUnknown", "status": 404.0, "detail": "no such function", "field": "metadata.name"}},
		{fmt.Errorf("deleting: %w", refused), http.StatusNotFound, map[string]any{"type": "about:blank", "title": "FunctionUnknown", "status": 404.0, "detail": "no such function", "field": "metadata.name"}},
		{errors.New("disk full"), http.StatusInternalServerError, map[string]any{"type": "about:blank", "title": "Internal", "status": 500.0, "detail": "disk full"}},
	} {
		resp := call(t, serve(t, &backend{err: c.err}), http.MethodDelete, "/v1/functions/default/fire", nil)
		var got map[string]any
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%d %s", resp.StatusCode, resp.Header.Get("Content-Type"))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Error(d)
		}
	}
}

// call speaks HTTP to the socket.
func call(t *testing.T, socket, method, path string, body io.Reader) *http.Response {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://headstart"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestDelete(t *testing.T) {
	var b backend
	c := admin.NewClient(serve(t, &b))
	for _, name := range []string{"default/fire", "a b/c?d=e#f", "x/y/z", "%2e/%00"} {
		if err := c.Delete(t.Context(), name); err != nil || b.deleted != name {
			t.Errorf("deleting %q: %v; the control plane heard %q", name, err, b.deleted)
		}
	}
	for _, name := range []string{"", "fire", "default/", "/fire", "../.."} {
		b.deleted = ""
		if err := c.Delete(t.Context(), name); err == nil || b.deleted != "" {
			t.Errorf("deleting %q: %v; the control plane heard %q", name, err, b.deleted)
		}
	}
}

func TestStatus(t *testing.T) {
	at := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	want := admin.Status{
		Version: "v1",
		Nodes:   []admin.Node{{Name: "edge", Version: "v1", Gateway: "http://10.0.0.1:8080", Instances: 1}},
		Functions: []admin.Function{{
			Name: "default/fire", Hosts: []string{"fire.default"}, Image: "fire:1", Input: "s3://a/b", Deleting: true,
			Instances: []admin.Instance{{
				ID: "fire-1", Node: "edge", Phase: platform.Ready, Address: netip.MustParseAddrPort("10.1.0.2:8080"),
			}},
			Events: []event.Event{{Reason: "R", Message: "m", Field: "f", Node: "edge", Count: 2, First: at, Last: at}},
		}},
	}
	got, err := admin.NewClient(serve(t, &backend{status: want})).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
		t.Error(d)
	}
}

func TestWeights(t *testing.T) {
	want := routing.Explanation{Function: "default/fire", Policy: "balanced", Decided: 1.5, Latency: 0.004,
		Nodes:    []routing.Node{{Name: "edge", Endpoints: []string{"10.0.0.1:8080"}, Service: 0.004, Workers: 2, Trust: 1}},
		Gateways: []routing.Gateway{{Name: "edge", Requests: 10, Held: 60, To: []routing.To{{Node: "edge", Share: 1, Wanted: 0.9, Source: topology.Itself}}}}}
	c := admin.NewClient(serve(t, &backend{weights: want}))
	got, err := c.Weights(t.Context(), want.Function)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := c.Weights(t.Context(), "default/ice"); err == nil || err.Error() != "no such function; `headstart status` lists them" {
		t.Errorf("of no function: %v", err)
	}
}

func TestTrace(t *testing.T) {
	want := trace.Trace{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Spans: []trace.Span{{Name: "fetch", ID: "1", Status: trace.OK}}}
	c := admin.NewClient(serve(t, &backend{trace: want}))
	got, err := c.Trace(t.Context(), want.ID)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, id := range []string{"unknown", "a/b", "?", "../status"} {
		_, err := c.Trace(t.Context(), id)
		if err == nil || err.Error() != trace.Unknown.Error() {
			t.Errorf("trace %q: %v", id, err)
		}
	}
	// Why there is none is told in words, and to scripts by name.
	for absent, title := range map[trace.Absence]string{trace.NotSampled: "TraceNotSampled", trace.NotKept: "TraceNotKept", trace.Unknown: "TraceUnknown"} {
		resp := call(t, serve(t, &backend{absent: absent}), http.MethodGet, "/v1/traces/1", nil)
		var p struct{ Title, Detail string }
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != http.StatusNotFound || p.Title != title || p.Detail != absent.Error() {
			t.Errorf("%s: %d %+v, %v", absent, resp.StatusCode, p, err)
		}
	}
}

func TestTraces(t *testing.T) {
	want := trace.Listing{Latest: []trace.Summary{{ID: "1", Status: trace.OK}}, Slowest: []trace.Summary{}, Kept: 1}
	got, err := admin.NewClient(serve(t, &backend{traces: want})).Traces(t.Context(), "city")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLogs(t *testing.T) {
	want := []admin.LogLine{{Node: "edge", Line: "one\x1b"}, {Node: "cloud", Line: ""}}
	b := &backend{lines: want}
	c := admin.NewClient(serve(t, b))
	read := func(ctx context.Context, o admin.LogOptions, after func()) (got []admin.LogLine, err error) {
		err = c.Logs(ctx, o, func(l admin.LogLine) error {
			if got = append(got, l); len(got) == len(want) {
				after()
			}
			return nil
		})
		return got, err
	}
	o := admin.LogOptions{Function: "city/fire", Tail: 7}
	got, err := read(t.Context(), o, func() {})
	if d := cmp.Diff(want, got); err != nil || d != "" || b.asked != o {
		t.Errorf("%v, asked for %+v: %s", err, b.asked, d)
	}
	// Who follows has each line as it comes, and ends it himself.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Follow = true
	if got, err = read(ctx, o, cancel); !errors.Is(err, context.Canceled) || len(got) != len(want) || b.asked != o {
		t.Errorf("%v, asked for %+v, got %+v", err, b.asked, got)
	}
	// A log that ends early is not taken for all of it.
	o.Follow = false
	c = admin.NewClient(serve(t, &backend{lines: want, err: errors.New("the disk is gone")}))
	if _, err := read(t.Context(), o, func() {}); err == nil {
		t.Error("half a log passes for all of it")
	}
	c = admin.NewClient(serve(t, &backend{err: errors.New("the disk is gone")}))
	if _, err := read(t.Context(), o, func() {}); err == nil || err.Error() != "the disk is gone" {
		t.Errorf("error is %v", err)
	}
	resp := call(t, serve(t, b), http.MethodGet, "/v1/functions/city/fire/logs?tail=many", nil)
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a tail that is no number: %d", resp.StatusCode)
	}
}

func TestALargeManifest(t *testing.T) {
	var b backend
	socket := serve(t, &b)
	c := admin.NewClient(socket)
	if _, err := c.Apply(t.Context(), bytes.NewReader(make([]byte, manifestMost))); err != nil || len(b.applied) != manifestMost {
		t.Errorf("the largest one: %v; the control plane read %d bytes", err, len(b.applied))
	}
	if _, err := c.Apply(t.Context(), bytes.NewReader(make([]byte, manifestMost+1))); err == nil || err.Error() != "the manifest is larger than 16 MiB; apply it in parts" {
		t.Errorf("one byte more: %v", err)
	}
	// A client without manners is cut off.
	resp := call(t, socket, http.MethodPut, "/v1/functions", bytes.NewReader(make([]byte, 2*manifestMost)))
	if resp.StatusCode == http.StatusOK || len(b.applied) > manifestMost {
		t.Errorf("answered %s after %d bytes", resp.Status, len(b.applied))
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("is a directory") }

func TestAManifestThatCannotBeRead(t *testing.T) {
	_, err := admin.NewClient("/nowhere").Apply(t.Context(), brokenReader{})
	if err == nil || err.Error() != "reading the manifest: is a directory" {
		t.Errorf("error is %v", err)
	}
}

// Whoever cannot be reached, the message says what to do.
func TestUnreachable(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false) // as a control plane leaves it that was killed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{filepath.Join(dir, "none.sock"), dead} {
		want := "no control plane serves " + socket + ": start the platform by `headstart up`, or say by --run-dir where it runs"
		if _, err := admin.NewClient(socket).Status(t.Context()); err == nil || err.Error() != want {
			t.Errorf("error is %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	socket := serve(t, &backend{})
	if _, err := admin.NewClient(socket).Status(ctx); !errors.Is(err, context.Canceled) || err.Error() != "calling the control plane at "+socket+": context canceled" {
		t.Errorf("error is %v", err)
	}
}

// What answers may be something else, or broken.
func TestAnswersThatAreNone(t *testing.T) {
	for want, h := range map[string]http.HandlerFunc{
		"the control plane answered 502 Bad Gateway": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "oops", http.StatusBadGateway) },
		"reading the control plane's answer: ":       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{") },
	} {
		socket := filepath.Join(t.TempDir(), "other.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: h}
		var wg sync.WaitGroup
		wg.Go(func() { _ = s.Serve(l) })
		if _, err := admin.NewClient(socket).Status(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
		_ = s.Close()
		wg.Wait()
	}
}

// The socket's mode keeps others out; the message says who may.
func TestSomebodyElsesSocket(t *testing.T) {
	err := admin.Unreachable("/run/headstart/admin.sock", fmt.Errorf("dialing: %w", syscall.EACCES))
	if want := "/run/headstart/admin.sock is its owner's only: run this as the user that runs `headstart up`, usually by sudo"; err.Error() != want {
		t.Errorf("error is %v", err)
	}
}

// Over a connection of another kind, an error is what its dialer says.
func TestClientOverAConnection(t *testing.T) {
	socket := serve(t, &backend{status: admin.Status{Version: "v1", Platform: admin.Kubernetes}})
	dialed := 0
	c := admin.NewClientOver(func(ctx context.Context) (net.Conn, error) {
		dialed++
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})
	defer c.Close()
	for range 3 {
		if s, err := c.Status(t.Context()); err != nil || s.Platform != "kubernetes" {
			t.Errorf("%+v, %v", s, err)
		}
	}
	if dialed != 1 {
		t.Errorf("%d connections for 3 calls", dialed)
	}
	cause := errors.New("no pod runs")
	c = admin.NewClientOver(func(context.Context) (net.Conn, error) { return nil, cause })
	if _, err := c.Status(t.Context()); !errors.Is(err, cause) || err.Error() != "no pod runs" {
		t.Errorf("error is %v", err)
	}
}

func (b *backend) Cache(_ context.Context, q admin.CacheQuery) ([]admin.CacheNode, error) {
	return []admin.CacheNode{{Node: q.Node, Entries: []*nodeapi.CacheEntry{{Reference: q.Reference}}, Problem: q.Verb}}, b.err
}

func TestCache(t *testing.T) {
	c := admin.NewClient(serve(t, &backend{}))
	got, err := c.Cache(t.Context(), admin.CacheQuery{Verb: "list", Node: "edge", Reference: "s3://models/"})
	if err != nil || len(got) != 1 || got[0].Node != "edge" || got[0].Problem != "list" || got[0].Entries[0].Reference != "s3://models/" {
		t.Errorf("%+v, %v", got, err)
	}
}
