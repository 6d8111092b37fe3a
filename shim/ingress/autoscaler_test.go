package ingress_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// relaying binds each request to another autoscaler's entry.
func (r *rig) relaying(t *testing.T, entry http.HandlerFunc) {
	t.Helper()
	s := httptest.NewServer(entry)
	t.Cleanup(s.Close)
	r.cp.activate = relayTo(strings.TrimPrefix(s.URL, "http://"))
}

func relayTo(address string) func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	return func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Request: a.GetRequest(), Cold: true, RelayAddress: address,
			RelayHeaders: map[string]string{"Knative-Serving-Namespace": "default", "Knative-Serving-Revision": "video-00001"}}, nil
	}
}

// The request is at the other autoscaler's as soon as its input's size is known; the input
// follows as it comes.
func TestAnotherAutoscalerGetsTheRequestAtOnce(t *testing.T) {
	r := newRig(t, nil)
	input := strings.Repeat("frame ", 1000)
	ref := r.put("some", "video/x-mjpeg", []byte(input))
	arrived := make(chan struct{})
	r.store.Before = func(ctx context.Context, _ source.Reference, at int64) error {
		if at == 0 {
			return nil
		}
		select { // the rest comes once the request has
		case <-arrived:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.relaying(t, func(w http.ResponseWriter, req *http.Request) {
		close(arrived)
		for name, want := range map[string]string{"Knative-Serving-Namespace": "default", "Knative-Serving-Revision": "video-00001",
			"Content-Type": "video/x-mjpeg", "X-Headstart-Function": "", "X-Headstart-Input-File": ""} {
			if got := req.Header.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if req.ContentLength != int64(len(input)) || req.Host != "video.example" || req.Header.Get("traceparent") == "" {
			t.Errorf("%d bytes for %s, of trace %s", req.ContentLength, req.Host, req.Header.Get("traceparent"))
		}
		if got := read(t, req.Body); got != input {
			t.Errorf("%d bytes came", len(got))
		}
		_, _ = io.WriteString(w, "done")
	})
	id := newID()
	if resp := r.do(t, request(t, "POST", withInput, id, ref, nil)); read(t, resp.Body) != "done" {
		t.Errorf("answered with %d", resp.StatusCode)
	}
	waitTrace(t, id, 1)
	if got := attributes(named(t, id, tracing.Relay, 0))[tracing.RelayAddress]; got == "" {
		t.Error("the trace does not say to whom it went")
	}
	for _, s := range spansOf(id) {
		if s.Name() == tracing.Deliver || s.Name() == tracing.Execute {
			t.Errorf("the trace has %s, which nobody here can tell", s.Name())
		}
	}
}

// An answer of the other autoscaler is the function's, also one that another might retry.
func TestAnotherAutoscalersAnswerPasses(t *testing.T) {
	r := newRig(t, nil)
	calls := 0
	r.relaying(t, func(w http.ResponseWriter, req *http.Request) {
		calls++
		body, _ := io.ReadAll(req.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body)
	})
	ref := r.put("some", "", []byte("input"))
	for reference, function := range map[string]string{"": withoutInput, ref: withInput} {
		resp := r.do(t, request(t, "POST", function, newID(), reference, strings.NewReader("own")))
		if got := read(t, resp.Body); resp.StatusCode != http.StatusServiceUnavailable || got != "own" {
			t.Errorf("%d %q", resp.StatusCode, got)
		}
	}
	if calls != 2 {
		t.Errorf("called %d times for 2 requests", calls)
	}
}

// Whoever has a body and an input and no sandbox of ours gets the body, and the trace says
// so.
func TestAnInputThatHasNoWay(t *testing.T) {
	r := newRig(t, nil)
	r.relaying(t, func(http.ResponseWriter, *http.Request) {})
	id := newID()
	r.do(t, request(t, "POST", withInput, id, r.put("some", "", []byte("input")), strings.NewReader("own")))
	wantDegraded(t, id, "NoInputFile")
}

func wantDegraded(t *testing.T, id, reason string) {
	t.Helper()
	eventually(t, "the span says "+reason, func() bool {
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if s.SpanContext().TraceID().String() == id && a.Key == "headstart.degraded" && a.Value.AsString() == reason {
					return true
				}
			}
		}
		return false
	})
}

func TestAnotherAutoscalerFails(t *testing.T) {
	for name, c := range map[string]struct {
		entry        http.HandlerFunc
		before       func(context.Context, source.Reference, int64) error
		status       int
		title, field string
	}{
		"closes":       {entry: func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, status: 502, title: "RelayFailed"},
		"is not there": {status: 502, title: "RelayFailed"},
		"input cannot be had": {entry: func(http.ResponseWriter, *http.Request) { t.Error("it was called") },
			before: func(context.Context, source.Reference, int64) error {
				return source.NotFound("edge", source.Reference{})
			},
			status: 404, title: "InputNotFound", field: "headstart.dev/input"},
		"input breaks off": {entry: func(w http.ResponseWriter, req *http.Request) {
			if _, err := io.Copy(io.Discard, req.Body); err == nil {
				t.Error("the request looks whole")
			}
		}, before: func(_ context.Context, _ source.Reference, at int64) error {
			if at == 0 {
				return nil
			}
			return source.Changed("edge", source.Reference{})
		}, status: 502, title: "InputChanged", field: "headstart.dev/input"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.cp.activate = relayTo("127.0.0.1:1")
			if c.entry != nil {
				r.relaying(t, c.entry)
			}
			ref := r.put("some", "", make([]byte, 4<<20))
			if name == "input cannot be had" {
				ref = source.Reference{Scheme: "s3", Bucket: "inputs", Key: "none"}.String()
			} else {
				r.store.Before = c.before
			}
			wantProblem(t, r.do(t, request(t, "POST", withInput, newID(), ref, nil)), c.status, c.title, c.field)
		})
	}
}

// A ready instance takes requests of other nodes also while its own node's daemon is away,
// until the node turns out to be lost.
func TestAnInstanceWithoutADaemonFails(t *testing.T) {
	r := newRig(t, nil)
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Request: a.GetRequest(), RelayAddress: "127.0.0.1:1"}, nil
	}
	wantProblem(t, r.do(t, request(t, "GET", withInput, newID(), "", nil)), http.StatusBadGateway, "FunctionFailed", "")
}

// The request's own timeout begins when a function might be ready, as for other requests.
func TestAnotherAutoscalerIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		r.change(func(f *nodeapi.Function) {
			f.ReadyTimeout, f.RequestTimeout = durationpb.New(readyTimeout), durationpb.New(time.Minute)
		})
		r.cp.activate = relayTo("192.0.2.1:80")
		r.store.Before = stalled
		r.Relays(roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}))
		began := time.Now()
		ref := r.put("some", "", make([]byte, 4096))
		wantProblem(t, call(r.Gateway(), request(t, "POST", withInput, newID(), ref, nil)), http.StatusGatewayTimeout, "FunctionTimeout", "spec.template.spec.timeoutSeconds")
		if waited, want := time.Since(began), readyTimeout+ingress.Grace+time.Minute; waited != want {
			t.Errorf("it waited %v, want %v", waited, want)
		}
	})
}

// A store that does not even tell the size holds the request up to its ready timeout.
func TestAnotherAutoscalerWaitsForTheSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(readyTimeout) })
		r.cp.activate = relayTo("192.0.2.1:80")
		r.blind = true
		began := time.Now()
		ref := r.put("some", "", make([]byte, 4096))
		wantProblem(t, call(r.Gateway(), request(t, "POST", withInput, newID(), ref, nil)), http.StatusGatewayTimeout, "StoreTimeout", "headstart.dev/input")
		if waited, want := time.Since(began), readyTimeout+ingress.Grace; waited != want {
			t.Errorf("it waited %v, want %v", waited, want)
		}
	})
}

// blindSource never says anything of an object.
type blindSource struct{}

func (blindSource) Fetch(ctx context.Context, _ source.Reference, _ string, _ func(source.Object) (io.WriterAt, error)) error {
	<-ctx.Done()
	return errors.Join(ctx.Err())
}

// An instance in the mesh is reached over the mesh, by its name there.
func TestAnInstanceInTheMesh(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	r.instances.meshSNI = "outbound_.80_._.video.default.svc.cluster.local"
	if resp := r.do(t, request(t, "GET", withoutInput, "", "", nil)); read(t, resp.Body) != "ok" {
		t.Errorf("answered with %d", resp.StatusCode)
	}
	if len(r.mesh.names) != 1 || r.mesh.names[0] != r.instances.meshSNI {
		t.Errorf("sent to %v", r.mesh.names)
	}
}

// Without a directory in the sandbox the input is the body alone.
func TestAnInstanceWithoutADirectory(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	r.instances.inputs = nil
	id, ref := newID(), r.put("some", "", []byte("input"))
	r.do(t, request(t, "POST", withInput, id, ref, nil))
	if got.body != "input" || got.header.Get("x-headstart-input-file") != "" {
		t.Errorf("the function saw %+v", got)
	}
	r.do(t, request(t, "POST", withInput, id, ref, strings.NewReader("own")))
	if got.body != "own" || got.header.Get("x-headstart-input-file") != "" {
		t.Errorf("the function saw %+v", got)
	}
	wantDegraded(t, id, "NoInputFile")
}

// hidden is a medium whose bytes are no files.
type hidden struct{ *buffer.Files }

func (h hidden) Create(id string) (buffer.Content, error) {
	c, err := h.Files.Create(id)
	return struct{ buffer.Content }{c}, err
}

// An input that is buffered where the sandbox cannot see it is the body alone, too.
func TestAnInputThatIsNoFile(t *testing.T) {
	state := t.TempDir()
	files, err := buffer.OpenFiles(filepath.Join(state, "buffer"))
	if err != nil {
		t.Fatal(err)
	}
	buf := buffer.New(buffer.Quota{}, buffer.Tier{Name: "redis", Limit: bufferLimit, Medium: hidden{files}})
	r := newNodeOver(t, "edge-1", http.DefaultTransport, buf, state)
	var got seen
	r.instances.run(t, see(t, &r, &got))
	r.gateway = unixClient(t, serveUnix(t, r.Gateway()))
	id, ref := newID(), r.put("some", "", []byte("input"))
	r.do(t, request(t, "POST", withInput, id, ref, nil))
	if got.body != "input" || got.header.Get("x-headstart-input-file") != "" {
		t.Errorf("the function saw %+v", got)
	}
	wantDegraded(t, id, "NoInputFile")
}

// Requests that passed no filter are known by whom they are for.
func TestFunctionsByAuthority(t *testing.T) {
	var mu sync.Mutex
	functions := map[string]string{}
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {})
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		mu.Lock()
		defer mu.Unlock()
		functions[a.GetRequest()] = a.GetFunction()
		return &nodeapi.Bound{Instance: target}, nil
	}
	function := func(name string, hosts ...string) *nodeapi.Function {
		return &nodeapi.Function{Name: name, Hosts: hosts, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)}
	}
	r.functions.Set([]*nodeapi.Function{function("default/fire", "fire.default.svc.cluster.local", "fire.default"), function("default/ip", "10.96.0.7"), function("default/video")})
	for authority, want := range map[string]string{
		"fire.default.svc.cluster.local": "default/fire", "FIRE.default:80": "default/fire", "fire.default.:8080": "default/fire",
		"10.96.0.7": "default/ip", "10.96.0.7:80": "default/ip",
		"default/fire": "", "fire": "", "": "", ":80": "", "[::1]": "", "[::1]:80": "", "fire.default:80:80": "",
	} {
		id := newID()
		req := request(t, "GET", "", id, "", nil)
		req.Header.Del("x-headstart-function")
		req.Host = authority
		resp := call(r.Gateway(), req)
		if want == "" {
			wantProblem(t, resp, http.StatusNotFound, "FunctionUnknown", "")
		} else if functions[id] != want || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d, for %s", authority, resp.StatusCode, functions[id])
		}
	}
	// What the filter says counts more.
	id := newID()
	req := request(t, "GET", "default/video", id, "", nil)
	req.Host = "fire.default"
	if call(r.Gateway(), req); functions[id] != "default/video" {
		t.Errorf("for %s", functions[id])
	}
}
