package ingress_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

var never = make(chan struct{})

// hang waits for what never comes.
func hang(ctx context.Context) error {
	select {
	case <-never:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func neverReady(ctx context.Context, _ string) (netip.AddrPort, error) {
	return netip.AddrPort{}, hang(ctx)
}

func neverPlaced(ctx context.Context, _ *nodeapi.Activate) (*nodeapi.Bound, error) {
	return nil, hang(ctx)
}

// abort closes the connection without a word.
func abort(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// Whatever goes wrong before an answer is told once to the caller, with function and
// field, and once to the operator: by the ingress only if nobody else does.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		function  http.HandlerFunc
		name      string // of the function; none: withInput
		prepare   func(*rig)
		reference string
		id        string // none: a good one
		status    int
		title     string
		field     string
		silent    bool // no event
	}{
		"missing object, no placement":    {prepare: func(r *rig) { r.cp.activate = neverPlaced }, reference: "s3://inputs/none", status: 404, title: "InputNotFound", field: "headstart.dev/input"},
		"missing object, no readiness":    {prepare: func(r *rig) { r.instances.ready = neverReady }, reference: "s3://inputs/none", status: 404, title: "InputNotFound", field: "headstart.dev/input"},
		"input fails while it starts":     {prepare: func(r *rig) { r.instances.ready = neverReady; r.store.Before = failMidway }, reference: "s3://inputs/some", status: 502, title: "StoreUnavailable", field: "headstart.dev/store"},
		"input too large":                 {prepare: func(r *rig) { r.change(func(f *nodeapi.Function) { f.InputLimit = 10 }) }, reference: "s3://inputs/some", status: 413, title: "InputTooLarge", field: "headstart.dev/input-limit"},
		"malformed reference":             {reference: "s3://inputs/../x", status: 400, title: "InputReferenceMalformed", field: "headstart.dev/input"},
		"refused":                         {prepare: func(r *rig) { r.cp.activate = refuse }, reference: "s3://inputs/some", status: 503, title: "NoNode", field: "a.field"},
		"instance fails":                  {prepare: func(r *rig) { r.instances.ready = failReady }, reference: "s3://inputs/some", status: 504, title: "ReadyTimeout", field: "headstart.dev/ready-timeout", silent: true},
		"instance fails before the input": {prepare: func(r *rig) { r.instances.ready = failReady; r.store.Before = stall }, reference: "s3://inputs/some", status: 504, title: "ReadyTimeout", field: "headstart.dev/ready-timeout", silent: true},
		"instance gone once ready":        {prepare: func(r *rig) { r.cp.activate = bindTo("other"); r.instances.ready = readyNowhere }, reference: "s3://inputs/some", status: 503, title: "InstanceGone"},
		"directory gone once ready":       {prepare: func(r *rig) { _ = r.instances.inputs.Close() }, reference: "s3://inputs/some", status: 503, title: "InstanceGone"},
		"nobody listens":                  {prepare: func(r *rig) { r.instances.ready = readyNowhere }, reference: "s3://inputs/some", status: 502, title: "FunctionFailed"},
		"function closes":                 {function: abort, reference: "s3://inputs/some", status: 502, title: "FunctionFailed"},
		"function speaks no HTTP":         {function: raw("220 smtp.example ready\r\n"), status: 502, title: "FunctionFailed"},
		"answer's head too large":         {function: raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n"), status: 502, title: "FunctionFailed"},
		"function hangs": {function: func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_ = hang(r.Context())
		},
			prepare: func(r *rig) {
				r.change(func(f *nodeapi.Function) { f.RequestTimeout = durationpb.New(time.Millisecond) })
			},
			reference: "s3://inputs/some", status: 504, title: "FunctionTimeout", field: "spec.template.spec.timeoutSeconds"},
		"unknown function": {name: "default/none", status: 404, title: "FunctionUnknown", silent: true},
		"malformed id":     {id: "../../x", status: 400, title: "RequestIDMalformed", field: "x-headstart-request", silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.function)
			r.put("some", "", make([]byte, 5000))
			if c.prepare != nil {
				c.prepare(r)
			}
			f, id := c.name, c.id
			if f == "" {
				f = withInput
			}
			if id == "" {
				id = newID()
			}
			resp := r.do(t, request(t, "POST", f, id, c.reference, nil))
			p := wantProblem(t, resp, c.status, c.title, c.field)
			if p.Function != f || c.id == "" && (p.Request != id || resp.Header.Get("x-headstart-request") != id) {
				t.Errorf("the problem is of %q, request %q", p.Function, p.Request)
			}
			want := []string{c.title}
			if c.silent {
				want = nil
			}
			if got := r.cp.told(); !slices.Equal(got, want) {
				t.Errorf("the operator is told %v, want %v", got, want)
			}
			if s := r.logs.String(); strings.Count(s, c.title) == 0 || strings.Count(s, "\n") != 1 {
				t.Errorf("it is logged as %s", s)
			}
		})
	}
}

func failMidway(_ context.Context, _ source.Reference, at int64) error {
	if at == 0 {
		return nil
	}
	return source.Unavailable("edge", "it is on fire")
}

func stall(ctx context.Context, _ source.Reference, _ int64) error { return hang(ctx) }

func refuse(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	return nil, problem.New(http.StatusServiceUnavailable, "NoNode", "a.field", "no node is there")
}

func failReady(context.Context, string) (netip.AddrPort, error) {
	return netip.AddrPort{}, problem.New(http.StatusGatewayTimeout, "ReadyTimeout", "headstart.dev/ready-timeout", "it was not ready")
}

// readyNowhere names an address where nobody listens: port 1, which needs a privilege.
func readyNowhere(context.Context, string) (netip.AddrPort, error) {
	return netip.MustParseAddrPort("127.0.0.1:1"), nil
}

func bindTo(instance string) func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	return func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Instance: instance, Node: "edge-1"}, nil
	}
}

// raw answers with bytes that net/http would not write.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, answer)
	}
}

// An answer that breaks off must not look like a whole one to the gateway.
func TestAnAnswerThatBreaksOffIsSeenToBeBroken(t *testing.T) {
	half := func(then func(*http.Request)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			_, _ = io.WriteString(w, "half of it")
			_ = http.NewResponseController(w).Flush()
			then(req)
			panic(http.ErrAbortHandler)
		}
	}
	for name, c := range map[string]struct {
		function http.HandlerFunc
		title    string
	}{
		"closed":     {half(func(*http.Request) {}), "FunctionFailed"},
		"timeout":    {half(func(req *http.Request) { _ = hang(req.Context()) }), "FunctionTimeout"},
		"too short":  {raw("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf of it"), "FunctionFailed"},
		"in a chunk": {raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf of it\r\n5\r\nab"), "FunctionFailed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.function)
			if c.title == "FunctionTimeout" { // which comes after the answer's half
				r.change(func(f *nodeapi.Function) { f.RequestTimeout = durationpb.New(2 * time.Second) })
			}
			resp := r.do(t, request(t, "POST", withInput, newID(), r.put("some", "", []byte("input")), nil))
			body, err := io.ReadAll(resp.Body)
			if err == nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "half of it") {
				t.Errorf("%d %q ends with %v", resp.StatusCode, body, err)
			}
			eventually(t, "the operator is told", func() bool { return len(r.cp.told()) == 1 })
			if got := r.cp.told()[0]; got != c.title {
				t.Errorf("the operator is told %s", got)
			}
		})
	}
}

// Two requests with one id: the first goes on as if there were no second.
func TestADuplicateIsRefused(t *testing.T) {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-proceed
		_, _ = io.Copy(w, req.Body)
	})
	ref, id := r.put("some", "", []byte("input")), newID()
	first := make(chan string, 1)
	req := request(t, "POST", withInput, id, ref, nil)
	go func() {
		resp, err := r.gateway.Do(req)
		if err != nil {
			first <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		first <- string(b)
	}()
	<-arrived
	for _, other := range []string{ref, "s3://inputs/other", ""} {
		wantProblem(t, r.do(t, request(t, "POST", withInput, id, other, nil)), http.StatusConflict, "DuplicateRequest", "x-headstart-request")
	}
	close(proceed)
	if got := <-first; got != "input" {
		t.Errorf("the first is answered %q", got)
	}
}

func TestARequestWithoutIDGetsOne(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	resp := r.do(t, request(t, "POST", withInput, "", r.put("some", "", []byte("input")), nil))
	id := resp.Header.Get("x-headstart-request")
	if len(id) != 32 || got.header.Get("x-headstart-request") != id || got.header.Get("x-headstart-input-file") != "/headstart/input/"+id || got.file != "input" {
		t.Errorf("the id is %q, and the function saw %+v", id, got)
	}
}

// newUnheard returns the ingress of a daemon that has heard nothing from the control plane, and what waits for its first word.
func newUnheard(t *testing.T) (*ingress.Ingress, *ingress.Functions) {
	t.Helper()
	r := newNode(t, nil)
	r.Ingress.Close()
	late := ingress.NewFunctions()
	in := ingress.New(ingress.Config{Node: "edge-1", Functions: late, ControlPlane: r.cp, Instances: r.instances,
		Metrics: ingress.NewMetrics(newRegistry()), Log: discard})
	t.Cleanup(in.Close)
	return in, late
}

// A daemon that has just started waits for the control plane's first word, for a while.
func TestRequestsWaitForTheControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, late := newUnheard(t)
		began := time.Now()
		w := call(in.Gateway(), request(t, "GET", withInput, "", "", nil))
		wantProblem(t, w, http.StatusServiceUnavailable, "ControlPlaneAway", "")
		if waited := time.Since(began); waited != ingress.SyncTimeout {
			t.Errorf("it waited %v", waited)
		}
		go late.Set(nil)
		wantProblem(t, call(in.Gateway(), request(t, "GET", withInput, "", "", nil)), http.StatusNotFound, "FunctionUnknown", "")
	})
}

// So does a request that another node hands over, as without the control plane's keys nobody could tell who has bound it.
func TestAttackANodeHandsOverBeforeTheKeysCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, late := newUnheard(t)
		time.AfterFunc(time.Second, func() {
			in.Trust([]ed25519.PublicKey{newKey(t).Public().(ed25519.PublicKey)})
			late.Set(nil)
		})
		wantProblem(t, call(in.Peers(), request(t, "GET", withInput, newID(), "", nil)), http.StatusForbidden, "NotBound", "x-headstart-capability")
	})
}

// A panic is a fault of the program, and still lets go of all that the request held.
func TestAPanicLeavesNothingBehind(t *testing.T) {
	r := newRig(t, nil)
	r.instances.ready = func(context.Context, string) (netip.AddrPort, error) { return netip.AddrPort{}, nil }
	r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Instance: target, PeerAddress: "x"}, nil
	}
	broken := ingress.New(ingress.Config{Node: "edge-1", Functions: r.functions, ControlPlane: r.cp, Instances: r.instances, Peers: panics{}, Metrics: ingress.NewMetrics(newRegistry()), Log: discard})
	defer broken.Close()
	client := unixClient(t, serveUnix(t, broken.Gateway()))
	if _, err := client.Do(request(t, "GET", withoutInput, "", "", nil)); err == nil {
		t.Error("a panic is answered")
	}
	if n := r.cp.holds(withoutInput); n != 0 {
		t.Errorf("%d requests are still held", n)
	}
}

type panics struct{}

func (panics) RoundTrip(*http.Request) (*http.Response, error) { panic("a fault") }

// A request that waits when the daemon ends is answered; one that a function has may
// end.
func TestClose(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"placement": func(r *rig) { r.cp.activate = neverPlaced },
		"instance":  func(r *rig) { r.instances.ready = neverReady },
		"input":     func(r *rig) { r.store.Before = stall },
	} {
		t.Run("waiting for the "+name, func(t *testing.T) {
			r := newRig(t, nil)
			ref := r.put("some", "", []byte("input"))
			prepare(r)
			go func() {
				for r.cp.holds(withInput) == 0 {
					time.Sleep(time.Millisecond)
				}
				r.Close()
			}()
			wantProblem(t, r.do(t, request(t, "POST", withInput, newID(), ref, nil)), http.StatusServiceUnavailable, "DaemonStopping", "")
			wantProblem(t, r.do(t, request(t, "POST", withInput, newID(), ref, nil)), http.StatusServiceUnavailable, "DaemonStopping", "")
			if told := r.cp.told(); told != nil {
				t.Errorf("the operator is told %v", told)
			}
		})
	}
	t.Run("with its server", func(t *testing.T) {
		r := newNode(t, nil)
		ctx, end := context.WithCancel(t.Context())
		r.cp.activate = func(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
			end()
			return neverPlaced(ctx, a)
		}
		socket := filepath.Join(t.TempDir(), "s")
		g, ctx := errgroup.WithContext(ctx)
		serve.Go(g, serve.Unix(socket), serve.HTTP(ctx, r.Gateway(), time.Hour, discard))
		g.Go(func() error { <-ctx.Done(); r.Close(); return nil })
		wantProblem(t, do(t, unixClient(t, socket), request(t, "GET", withInput, "", "", nil)), http.StatusServiceUnavailable, "DaemonStopping", "")
		if err := g.Wait(); err != nil { // long before the hour is over
			t.Error(err)
		}
	})
	t.Run("executing", func(t *testing.T) {
		var r *rig
		r = newRig(t, func(w http.ResponseWriter, _ *http.Request) {
			r.Close()
			_, _ = io.WriteString(w, "done")
		})
		if got := read(t, r.do(t, request(t, "GET", withoutInput, "", "", nil)).Body); got != "done" {
			t.Errorf("it is answered %q", got)
		}
	})
}

// A client may leave at any point; then nothing of its request goes on.
func TestAClientThatLeavesIsForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		prepare  func(r *rig, reached func())
		function func(reached func(), forgotten <-chan struct{}) http.HandlerFunc
		body     func(context.Context) io.Reader
	}{
		"while it is placed": {prepare: func(r *rig, reached func()) {
			r.cp.activate = func(ctx context.Context, _ *nodeapi.Activate) (*nodeapi.Bound, error) {
				reached()
				return nil, hang(ctx)
			}
		}},
		"while the instance starts": {prepare: func(r *rig, reached func()) {
			r.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
				reached()
				return netip.AddrPort{}, hang(ctx)
			}
		}},
		"while the input arrives": {prepare: func(r *rig, reached func()) {
			r.store.Before = func(ctx context.Context, _ source.Reference, at int64) error {
				if at == 0 {
					return nil
				}
				reached()
				return hang(ctx)
			}
		}},
		"while the function works": {function: func(reached func(), forgotten <-chan struct{}) http.HandlerFunc {
			return func(_ http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				reached()
				_ = hang(req.Context())
			}
		}},
		"while the input is delivered": {function: func(reached func(), forgotten <-chan struct{}) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { reached(); <-forgotten }
		}},
		"while the answer arrives": {function: func(reached func(), forgotten <-chan struct{}) http.HandlerFunc {
			return func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(w, "half of it")
				_ = http.NewResponseController(w).Flush()
				reached()
				for req.Context().Err() == nil {
					_, _ = w.Write(make([]byte, 4096))
				}
			}
		}},
		"while its own body arrives": {function: func(reached func(), forgotten <-chan struct{}) http.HandlerFunc {
			return func(_ http.ResponseWriter, req *http.Request) {
				reached()
				_, _ = io.Copy(io.Discard, req.Body)
			}
		}, body: halfBody},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			forgotten := make(chan struct{})
			forget := sync.OnceFunc(func() { close(forgotten) })
			defer forget()
			var function http.HandlerFunc
			if c.function != nil {
				function = c.function(leave, forgotten)
			}
			r := newRig(t, function)
			if c.prepare != nil {
				c.prepare(r, leave)
			}
			ref := r.put("some", "", make([]byte, inputLimit)) // more than sockets hold
			var body io.Reader
			if c.body != nil {
				body = c.body(ctx)
			}
			resp, err := r.gateway.Do(request(t, "POST", withInput, newID(), ref, body).WithContext(ctx))
			if err == nil {
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the client sees %v", err)
			}
			eventually(t, "nothing is held", func() bool {
				return r.cp.holds(withInput) == 0 && strings.Contains(r.logs.String(), "the client went away")
			})
			<-r.outcomes // the fetch has ended, too
			r.nothingLeft(t)
			if told := r.cp.told(); told != nil {
				t.Errorf("the operator is told %v of a client that left", told)
			}
			if !strings.Contains(metrics(t, r), `headstart_ingress_requests_total{function="default/video",reason="ClientGone"} 1`) {
				t.Errorf("it is counted otherwise:\n%s", metrics(t, r))
			}
		})
	}
}

// halfBody is a body of which the rest does not come.
func halfBody(ctx context.Context) io.Reader {
	rest, write := io.Pipe()
	context.AfterFunc(ctx, func() { _ = write.CloseWithError(ctx.Err()) })
	return io.MultiReader(strings.NewReader("half of it"), rest)
}

// Half a body whose sender still listens is the sender's failure, not the function's.
func TestAMalformedBodyIsNotTheFunctionsFailure(t *testing.T) {
	r := newNode(t, nil)
	r.instances.run(t, func(_ http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body) })
	conn, err := net.Dial("unix", serveUnix(t, r.Gateway()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nx-headstart-function: "+withoutInput+"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nnonsense\r\n")
	resp := readResponse(t, conn)
	wantProblem(t, resp, http.StatusBadRequest, "ClientGone", "")
	if told := r.cp.told(); told != nil {
		t.Errorf("the operator is told %v", told)
	}
}

// A stranger who makes a request fail learns the title, and nothing of the store, the object or the node.
// The operator's log has all of it.
func TestAttackStrangerReadsTheOperatorsDetails(t *testing.T) {
	r := newNode(t, nil)
	inside := []string{"10.0.0.7", "tenant-b", "edge"}
	ref := r.put("tenant-b/1", "", []byte("input"))
	r.store.Before = func(context.Context, source.Reference, int64) error {
		return source.Unavailable("edge", "connecting to 10.0.0.7:9000 for tenant-b/1 failed")
	}
	resp := call(r.Gateway(), request(t, "GET", withInput, newID(), ref, nil))
	body := read(t, resp.Body)
	if !strings.Contains(body, "StoreUnavailable") {
		t.Errorf("a stranger is told %s", body)
	}
	for _, detail := range inside {
		if strings.Contains(body, detail) {
			t.Errorf("a stranger is told %s", body)
		}
		if log := r.logs.String(); !strings.Contains(log, detail) {
			t.Errorf("the log has only %s", log)
		}
	}
}
