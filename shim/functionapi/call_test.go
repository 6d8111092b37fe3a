package functionapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// What a call is for is in its path; the rest of it is the function's, as it is.
func TestACallGoesToItsFunction(t *testing.T) {
	var got string
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		got = fmt.Sprintf("%s %s %s %s %s %s", req.Method, req.Header.Get("x-headstart-function"), req.Host, req.URL.RequestURI(), req.Header.Get("x-mine"), b)
		w.Header().Set("x-answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "an answer")
	})
	for _, c := range []struct{ from, method, path, want string }{
		{"fire-1", http.MethodPost, "/call/fire", "POST default/fire fire.default / a b"},
		{"fire-1", http.MethodPost, "/call/fire?x=1&y=%2F", "POST default/fire fire.default /?x=1&y=%2F a b"},
		{"fire-1", http.MethodPut, "/call/default/fire", "PUT default/fire fire.default / a b"},
		{"fire-1", http.MethodPatch, "/call/default/fire/", "PATCH default/fire fire.default / a b"},
		{"fire-1", http.MethodPost, "/call/-/fire/v1/a%2Fb//c;d?e;f", "POST default/fire fire.default /v1/a%2Fb//c;d?e;f a b"},
		{"fire-1", http.MethodPost, "/call/web/open", "POST web/open open.web / a b"},
		{"web-1", http.MethodPost, "/call/page", "POST web/page page.web / a b"},
		{"web-1", http.MethodPost, "/call/-/page/..", "POST web/page page.web /.. a b"},
	} {
		resp := r.ask(c.from, c.method, c.path, strings.NewReader("b"), "x-mine", "a")
		if b := body(t, resp); got != c.want || resp.StatusCode != http.StatusTeapot || b != "an answer" || resp.Header.Get("x-answer") != "yes" {
			t.Errorf("%s: %q, want %q; %s %q", c.path, got, c.want, resp.Status, b)
		}
	}
}

func TestCallsThatAreRefused(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		from, path   string
		headers      []string
		status       int
		title, field string
	}{
		{"fire-1", "/call/nothing", nil, 404, "FunctionUnknown", ""},
		// Whether another namespace has it is not told.
		{"fire-1", "/call/web/page", nil, 403, "CallNotAllowed", "headstart.dev/callers"},
		{"fire-1", "/call/web/nothing", nil, 403, "CallNotAllowed", "headstart.dev/callers"},
		{"web-1", "/call/default/fire", nil, 403, "CallNotAllowed", "headstart.dev/callers"},
		{"web-1", "/call/default/fire", []string{"x-headstart-function", "web/page", "x-headstart-caller", "default"}, 403, "CallNotAllowed", "headstart.dev/callers"},
		{"fire-1", "/call/", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call//fire", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call/Fire", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call/web%2Fopen", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call/default/fire%00", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call/../fire", nil, 400, "CallMalformed", ""},
		{"fire-1", "/call/fire/v1", nil, 403, "CallNotAllowed", "headstart.dev/callers"}, // of a namespace named fire
		{"fire-1", "/calls/fire", nil, 404, "EndpointUnknown", ""},
		{"fire-1", "/call/fire", []string{"x-headstart-input", "s3://videos/a"}, 400, "InputNotTaken", "x-headstart-input"},
		{"fire-1", "/call/video", []string{"x-headstart-input", "/etc/passwd"}, 400, "InputReferenceMalformed", "x-headstart-input"},
		{"fire-1", "/call/video", []string{"x-headstart-input", "s3://videos/../a"}, 400, "InputReferenceMalformed", "x-headstart-input"},
		{"fire-1", "/call/video", []string{"x-headstart-input", "s3://videos/a", "x-headstart-input", "s3://videos/b"}, 400, "InputReferenceMalformed", "header x-headstart-input"},
		{
			"fire-1", "/call/video", []string{"x-headstart-inputs", "mask=s3://masks/a"}, 400, "InputNotTaken",
			"x-headstart-inputs",
		},
		{
			"fire-1", "/call/masked", []string{"x-headstart-input", "s3://masks/a"}, 400, "InputNotTaken",
			"x-headstart-input",
		},
		{
			"fire-1", "/call/masked", []string{"x-headstart-inputs", "mask=/etc/passwd"}, 400,
			"InputReferenceMalformed", "header x-headstart-inputs",
		},
		{
			"fire-1", "/call/masked",
			[]string{"x-headstart-inputs", "mask=s3://masks/a", "x-headstart-inputs", "mask=s3://masks/b"}, 400,
			"InputReferenceMalformed", "header x-headstart-inputs",
		},
		{"fire-1", "/call/masked", []string{"x-key", ".."}, 400, "InputReferenceMalformed", "header x-key"},
		{"fire-1", "/call/video", []string{"x-key", ".."}, 400, "InputReferenceMalformed", "header x-key"},
		{"fire-1", "/call/video", []string{"x-key", "a", "x-key", "b"}, 400, "InputReferenceMalformed", "header x-key"},
		// The path that names the input is the call's without what names the function.
		{"fire-1", "/call/default/clip/clips/c1", nil, 400, "InputReferenceMalformed", "query frame"},
		{"fire-1", "/call/default/clip/clips/%2e%2e?frame=a", nil, 400, "InputReferenceMalformed", "path, query frame"},
		{"fire-1", "/call/fire", []string{"x-headstart-depth", "16"}, 508, "CallDepthExceeded", ""},
	} {
		t.Run(c.from+c.path+fmt.Sprint(c.headers), func(t *testing.T) {
			wantProblem(t, r.ask(c.from, http.MethodPost, c.path, nil, c.headers...), c.status, c.title, c.field)
		})
	}
}

// A function gets from another one what it would get from a gateway, and nothing that only
// gateways and daemons say.
func TestACallSaysWhatAGatewayWould(t *testing.T) {
	got := make(chan http.Header, 1)
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) { got <- req.Header.Clone() })
	r.begin("fire-1", id(1), nil, 3)
	resp := r.ask("fire-1", http.MethodPost, "/call/video", nil, "x-key", "camera/1", "x-headstart-request", id(1), "x-headstart-endpoint", "e", "x-headstart-instance", "i",
		"x-headstart-function", "web/page", "X_Key", "x", "x-envoy-a", "x", "x-forwarded-for", "10.0.0.1", "forwarded", "for=10.0.0.1", "authorization", "mine")
	_ = body(t, resp)
	h := <-got
	for name, want := range map[string]string{"x-headstart-function": "default/video", "x-headstart-input": "s3://videos/camera/1", "x-headstart-depth": "4", "authorization": "mine",
		"x-headstart-caller":   "default/fire",
		"x-headstart-endpoint": "", "x-headstart-instance": "", "x_key": "", "x-envoy-a": "", "x-forwarded-for": "", "forwarded": ""} {
		if v := h.Get(name); v != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
	if made := h.Get("x-headstart-request"); len(made) != 32 || made == id(1) {
		t.Errorf("its id is %q", made)
	}
	_ = body(t, r.ask("fire-1", http.MethodPost, "/call/video", nil, "x-headstart-input", "s3://others/by-reference"))
	if h := <-got; h.Get("x-headstart-input") != "s3://others/by-reference" {
		t.Errorf("by reference: %v", h)
	}
	for _, c := range [][3]string{
		{"x-key", "a b", "mask=s3://masks/a%20b"}, {"x-headstart-inputs", "mask=s3://masks/c", "mask=s3://masks/c"},
	} {
		_ = body(t, r.ask("fire-1", http.MethodPost, "/call/masked", nil, c[0], c[1]))
		if h := <-got; h.Get("x-headstart-inputs") != c[2] || h.Get("x-headstart-input") != "" {
			t.Errorf("named by %v: %v", c, h)
		}
	}
	_ = body(t, r.ask("fire-1", http.MethodPost, "/call/video", nil))
	if h := <-got; h.Get("x-headstart-input") != "" {
		t.Errorf("without an input: %v", h)
	}
}

// A call continues the trace that it says, or else that of the request it is made for.
func TestACallContinuesTheTrace(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) {
		got <- req.Header.Get("traceparent") + req.Header.Get("tracestate")
	})
	said := "00-" + id(9) + "-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		headers []string
		want    string
	}{
		"its own":         {[]string{"traceparent", said, "x-headstart-request", id(1)}, id(9)},
		"of the named":    {[]string{"x-headstart-request", id(1)}, id(1)},
		"of the only one": {nil, id(1)},
		"no valid one":    {[]string{"traceparent", "00-0-0-01", "tracestate", "of=another"}, id(1)},
	} {
		end := r.begin("fire-1", id(1), nil, 0)
		_ = body(t, r.ask("fire-1", http.MethodPost, "/call/fire", nil, c.headers...))
		if parent := <-got; !strings.HasPrefix(parent, "00-"+c.want) || strings.Contains(parent, "another") {
			t.Errorf("%s: %s", name, parent)
		}
		end()
	}
	for _, s := range spans.Ended() {
		if s.Name() == tracing.Call && s.SpanContext().TraceID().String() == id(9) && s.Parent().SpanID().String() == "00f067aa0ba902b7" {
			return
		}
	}
	t.Error("no span of the call")
}

// Functions that call each other come to an end, whatever they tell of the requests that
// they work on.
func TestCallsHaveAnEnd(t *testing.T) {
	for name, tell := range map[string]func(in http.Header) []string{
		"they tell nothing": func(http.Header) []string { return nil },
		"they pass on all": func(in http.Header) []string {
			return []string{"x-headstart-request", in.Get("x-headstart-request"), "traceparent", in.Get("traceparent")}
		},
		"they name the request":   func(in http.Header) []string { return []string{"x-headstart-request", in.Get("x-headstart-request")} },
		"they continue the trace": func(in http.Header) []string { return []string{"traceparent", in.Get("traceparent")} },
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			var mu sync.Mutex
			calls := 0
			r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
				mu.Lock()
				calls++
				n := calls
				mu.Unlock()
				depth := 0
				_, _ = fmt.Sscan(req.Header.Get("x-headstart-depth"), &depth)
				// fire-1 is the instance of every function, and calls again.
				defer r.Begin("fire-1", sandboxes.Delivery{Request: id(n), Depth: depth, Traceparent: req.Header.Get("traceparent")})()
				req.Header.Set("x-headstart-request", id(n))
				resp := r.ask("fire-1", http.MethodPost, "/call/fire", nil, tell(req.Header)...)
				w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
				w.WriteHeader(resp.StatusCode)
				_, _ = io.Copy(w, resp.Body)
			})
			r.begin("fire-1", id(0), nil, 0)
			wantProblem(t, r.ask("fire-1", http.MethodPost, "/call/fire", nil, tell(http.Header{"X-Headstart-Request": {id(0)}})...), 508, "CallDepthExceeded", "")
			if calls != call.DepthLimit {
				t.Errorf("%d calls", calls)
			}
		})
	}
}

// One that lies about its requests is stopped by the number of its calls.
func TestCallsHaveAnEndForLiars(t *testing.T) {
	var r *rig
	r = newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		resp := r.ask("fire-1", http.MethodPost, "/call/fire", nil, "x-headstart-request", id(0))
		w.WriteHeader(resp.StatusCode)
	})
	r.begin("fire-1", id(0), nil, 0)
	if resp := r.ask("fire-1", http.MethodPost, "/call/fire", nil, "x-headstart-request", id(0)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.Status)
	}
}

// Who calls is known by the socket alone.
func TestAttackAFunctionClaimsToBeAnother(t *testing.T) {
	got := make(chan []string, 1)
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) { got <- req.Header.Values("x-headstart-caller") })
	for sandbox, want := range map[string][]string{"fire-1": {"default/fire"}, "fire-2": nil} {
		for _, name := range []string{"x-headstart-caller", "X_Headstart_Caller"} {
			_ = body(t, r.ask(sandbox, http.MethodPost, "/call/fire", nil, name, "bank/ledger"))
			if caller := <-got; !slices.Equal(caller, want) {
				t.Errorf("%s calls with %s, as %q", sandbox, name, caller)
			}
		}
	}
}

// Many requests at a time are no deep ones.
func TestWideIsNotDeep(t *testing.T) {
	got := make(chan string, 1)
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) { got <- req.Header.Get("x-headstart-depth") })
	for n := range 100 {
		r.begin("fire-1", id(n), nil, 0)
	}
	r.begin("fire-1", id(100), nil, 5)
	for request, want := range map[string]string{id(3): "1", id(100): "6"} {
		_ = body(t, r.ask("fire-1", http.MethodPost, "/call/fire", nil, "x-headstart-request", request))
		if depth := <-got; depth != want {
			t.Errorf("for %s: %s, want %s", request, depth, want)
		}
	}
}

func TestTooManyCalls(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-answer })
	client := r.client("fire-1")
	var waiting sync.WaitGroup
	for range functionapi.CallsLimit {
		waiting.Go(func() {
			resp, err := client.Post("http://headstart/call/fire", "", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	for range functionapi.CallsLimit {
		<-arrived
	}
	wantProblem(t, r.ask("fire-1", http.MethodPost, "/call/fire", nil), 503, "TooManyCalls", "")
	// Another sandbox has its own.
	done := make(chan struct{})
	other := r.client("fire-2")
	go func() {
		defer close(done)
		if resp, err := other.Post("http://headstart/call/fire", "", nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Error(err)
		} else {
			resp.Body.Close()
		}
	}()
	<-arrived
	close(answer)
	<-done
	waiting.Wait()
	go func() { <-arrived }()
	if resp := r.ask("fire-1", http.MethodPost, "/call/fire", nil); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
}

// Bodies flow both ways at once, and no more of them is held than sockets and pipes do.
func TestBodiesAreStreams(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		b := make([]byte, 1)
		for {
			if _, err := req.Body.Read(b); err != nil {
				return
			}
			_, _ = w.Write(b)
			_ = http.NewResponseController(w).Flush()
		}
	})
	pr, pw := io.Pipe()
	resp := r.ask("fire-1", http.MethodPost, "/call/fire", io.MultiReader(strings.NewReader("?"), pr))
	for _, s := range []string{"?", "a", "b"} {
		if s != "?" {
			if _, err := io.WriteString(pw, s); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
			t.Fatalf("%q, %v", got, err)
		}
	}
	pw.Close()
	if rest := body(t, resp); rest != "" {
		t.Errorf("%q", rest)
	}
}

// What follows a body gets to the function like the body itself.
func TestTrailersArePassedOn(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.Copy(w, req.Body)
		w.Header().Set("X-Sum", "of "+req.Trailer.Get("X-Part"))
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://headstart/call/fire", io.MultiReader(strings.NewReader("b")))
	if err != nil {
		t.Fatal(err)
	}
	req.Trailer = http.Header{"X-Part": {"7"}}
	resp, err := r.client("fire-1").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b := body(t, resp); b != "b" || resp.Trailer.Get("X-Sum") != "of 7" {
		t.Errorf("%q, trailers %v", b, resp.Trailer)
	}
}

// A caller that goes away is noticed by whom it called.
func TestACallerThatGoes(t *testing.T) {
	begun, gone := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(begun)
		select {
		case <-req.Context().Done():
			close(gone)
		case <-time.After(patience):
		}
	})
	resp := r.ask("fire-1", http.MethodPost, "/call/fire", nil)
	<-begun
	resp.Body.Close()
	r.client("fire-1").CloseIdleConnections()
	<-gone
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"fire", "default/fire", "-/fire/a%2Fb", "a/b//c", "", "/", "../..", "a/b/%zz", "a/b/\x00"} {
		f.Add(s, "x=1")
	}
	f.Fuzz(func(t *testing.T, s, query string) {
		function, path, err := functionapi.ParseTarget(s, query, "own")
		if err != nil {
			return
		}
		namespace, name, ok := strings.Cut(function, "/")
		if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || !strings.HasPrefix(path, "/") {
			t.Errorf("%q is %q, %q", s, function, path)
		}
		// What no URL has as it is comes escaped; what it stands for stays.
		rest, _, _ := strings.Cut(path, "?")
		wrote, err := url.PathUnescape(s)
		reads, wrong := url.PathUnescape(rest)
		if rest != "/" && (err != nil || wrong != nil || !strings.HasSuffix(wrote, reads)) {
			t.Errorf("%q has the path %q: %v %v", s, rest, err, wrong)
		}
	})
}
