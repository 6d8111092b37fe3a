package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call is a task that calls a function with the run's value, and has its answer.
func call(name, host string) *nodeapi.Task {
	return &nodeapi.Task{Name: name, Path: "/do/" + name, Kind: &nodeapi.Task_Call{Call: &nodeapi.Call{
		Request: fmt.Sprintf(`{method: "post", url: "http://%s/work?n=1", headers: {"x-own": "1", "x-headstart-caller": "shop/other"}, body: .}`, host), Host: host}}}
}

func of(tasks ...*nodeapi.Task) *nodeapi.Function {
	return &nodeapi.Function{Name: "shop/checkout", RequestTimeout: durationpb.New(time.Minute), Workflow: &nodeapi.Workflow{Revision: "1", Tasks: tasks}}
}

// rig is a node whose functions are handlers.
type rig struct {
	*workflow.Owner
	t         *testing.T
	functions map[string]http.HandlerFunc // by their names
	prepared  chan string                 // those of which an instance was asked for
	outside   http.RoundTripper           // for namespace shop, at api.example
}

func newRig(t *testing.T, functions map[string]http.HandlerFunc) *rig {
	r := &rig{t: t, functions: functions, prepared: make(chan string, 100)}
	r.Owner = workflow.New(workflow.Config{Metrics: workflow.NewMetrics(prometheus.NewRegistry()),
		Outside: func(namespace string, u *url.URL) (http.RoundTripper, string) {
			if namespace != "shop" || u.Host != "api.example" {
				return nil, ""
			}
			return r.outside, "api"
		},
		Find: func(_ context.Context, host string) (*nodeapi.Function, error) {
			name, namespace, _ := strings.Cut(host, ".")
			f := &nodeapi.Function{Name: namespace + "/" + name, Hosts: []string{host}}
			if functions[f.GetName()] == nil {
				return nil, problem.New(http.StatusNotFound, problem.ReasonFunctionUnknown, "", "no such function is deployed")
			}
			return f, nil
		}})
	return r
}

// ServeHTTP is the node's ingress.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.functions[req.Header.Get(filterapi.HeaderFunction)](w, req)
}

// run has a workflow answer a request.
func (r *rig) run(f *nodeapi.Function, req *http.Request) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	err := r.Serve(req.Context(), w, req, workflow.Request{ID: nodeapi.NewRequestID(), Workflow: f, Ingress: r,
		Prepare: func(_ context.Context, function, caller string) { r.prepared <- caller + " " + function }})
	return w, err
}

func (r *rig) post(body string) *http.Request {
	return httptest.NewRequestWithContext(r.t.Context(), http.MethodPost, "/", strings.NewReader(body))
}

// A workflow calls functions as a function does: under its own name, one level deeper, by their hosts.
func TestAWorkflowCallsFunctions(t *testing.T) {
	r := newRig(t, map[string]http.HandlerFunc{
		"shop/first": func(w http.ResponseWriter, req *http.Request) {
			b, _ := io.ReadAll(req.Body)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"body": string(b), "path": req.URL.RequestURI(), "method": req.Method, "host": req.Host,
				"caller": req.Header.Get(filterapi.HeaderCaller), "depth": req.Header.Get(filterapi.HeaderDepth), "own": req.Header.Get("X-Own"),
				"type": req.Header.Get("Content-Type")})
		},
		"shop/second": func(w http.ResponseWriter, req *http.Request) {
			b, _ := io.ReadAll(req.Body)
			_, _ = fmt.Fprintf(w, "second got %d bytes", len(b))
		},
	})
	w, err := r.run(of(call("a", "first.shop")), r.post(`{"n": 1}`))
	want := `{"body":"{\"n\":1}","caller":"shop/checkout","depth":"1","host":"first.shop","method":"POST","own":"1","path":"/work?n=1","type":"application/json"}` + "\n"
	if err != nil || w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s, %v; want %s", w.Code, w.Body, err, want)
	}
	w, err = r.run(of(call("a", "first.shop"), call("b", "second.shop")), r.post(""))
	if err != nil || w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), `"second got 1`) {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
}

// outside answers requests as a server does that is no function's.
type outside func(*http.Request) (*http.Response, error)

func (o outside) RoundTrip(r *http.Request) (*http.Response, error) { return o(r) }

// A workflow calls servers outside, if they are destinations of its namespace: by the URL as it is, and with nothing that only nodes say.
func TestAWorkflowCallsServersOutside(t *testing.T) {
	r := newRig(t, map[string]http.HandlerFunc{})
	says := func(body io.Reader) {
		r.outside = outside(func(req *http.Request) (*http.Response, error) {
			if req.URL.String() != "http://api.example/work?n=1" || req.Header.Get("X-Own") != "1" || len(req.Header) != 2 {
				t.Errorf("%s %v", req.URL, req.Header)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body)}, nil
		})
	}
	says(strings.NewReader(`{"is":"outside"}`))
	f := of(call("a", "api.example"))
	if w, err := r.run(f, r.post(`{}`)); err != nil || w.Body.String() != `{"is":"outside"}`+"\n" {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	other := of(call("a", "api.example"))
	other.Name = "bank/checkout"
	for why, c := range map[string]struct {
		f    *nodeapi.Function
		body io.Reader
		want string
	}{
		"an answer that breaks off":          {f, io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)), "DestinationFailed"},
		"an answer that is too large":        {f, strings.NewReader(strings.Repeat(" ", expression.SizeLimit+1)), "larger than"},
		"a destination of another namespace": {other, nil, "no destination of namespace bank"},
	} {
		says(c.body)
		if w, err := r.run(c.f, r.post(`{}`)); err != nil || w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s, %v", why, w.Code, w.Body, err)
		}
	}
}

// What goes wrong is an error of the run, which says where; none of it is the daemon's.
func TestWhatGoesWrong(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for part := make([]byte, 64<<10); ; {
			if _, err := w.Write(part); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
	}
	r := newRig(t, map[string]http.HandlerFunc{
		"shop/endless": endless,
		"shop/broken": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "half")
			panic(http.ErrAbortHandler)
		},
		"shop/nojson": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "<html>")
		},
		"shop/fails":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) },
		"shop/panics":  func(http.ResponseWriter, *http.Request) { panic("bug") },
		"other/closed": func(http.ResponseWriter, *http.Request) { t.Error("it is called") },
	})
	for host, want := range map[string]string{
		"endless.shop": "502 the answer's body is larger", "broken.shop": "502 FunctionFailed", "nojson.shop": "502 the answer's body",
		"fails.shop": "418 the answer has the status 418", "panics.shop": "502 Internal", "nobody.shop": "502 FunctionUnknown", "closed.other": "502 CallNotAllowed",
		"127.0.0.1:22": "502 FunctionUnknown",
	} {
		w, err := r.run(of(call("a", host)), r.post(`{}`))
		var fault struct {
			Type, Detail, Instance string
			Status                 int
		}
		if err != nil || json.Unmarshal(w.Body.Bytes(), &fault) != nil || w.Header().Get("Content-Type") != filterapi.ProblemContentType {
			t.Errorf("%s: %s, %v", host, w.Body, err)
			continue
		}
		status, detail, _ := strings.Cut(want, " ")
		if fmt.Sprint(w.Code) != status || fault.Status != w.Code || !strings.Contains(fault.Detail, detail) || fault.Instance != "/do/a" {
			t.Errorf("%s: %d %+v, want %s", host, w.Code, fault, want)
		}
	}
}

// A request that cannot be a workflow's input is refused, as is one for a workflow that the node does not know.
func TestRefusals(t *testing.T) {
	r := newRig(t, map[string]http.HandlerFunc{})
	for body, want := range map[string]int{
		`{`: http.StatusBadRequest, `<a/>`: http.StatusBadRequest, `{} {}`: http.StatusBadRequest,
		strings.Repeat(" ", expression.SizeLimit+1): http.StatusRequestEntityTooLarge,
	} {
		_, err := r.run(of(call("a", "first.shop")), r.post(body))
		if p := problem.Of(err); err == nil || p.Status != want || p.Title != "WorkflowInputMalformed" {
			t.Errorf("%.10q: %v", body, err)
		}
	}
	_, err := r.run(of(&nodeapi.Task{Name: "a", Path: "/do/0/a"}), r.post(""))
	if p := problem.Of(err); p.Title != "WorkflowUnknown" || !strings.Contains(p.Detail, "older than the control plane") {
		t.Errorf("of a task of a later control plane: %v", err)
	}
}

// When the client leaves, or the time is over, nothing is called any more, and what was called hears of it.
func TestARunThatIsLeft(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	r := newRig(t, map[string]http.HandlerFunc{"shop/slow": func(_ http.ResponseWriter, req *http.Request) {
		began <- struct{}{}
		<-req.Context().Done()
		ended <- struct{}{}
	}})
	ctx, leave := context.WithCancel(t.Context())
	failed := make(chan error)
	start := func(f *nodeapi.Function) {
		go func() {
			_, err := r.run(f, r.post(`{}`).WithContext(ctx))
			failed <- err
		}()
		select {
		case <-began:
		case err := <-failed:
			t.Fatalf("nothing is called: %v", err)
		}
	}
	late := of(call("a", "slow.shop"))
	late.RequestTimeout = durationpb.New(time.Second)
	start(late)
	<-ended
	if err := <-failed; problem.ReasonOf(err) != problem.ReasonFunctionTimeout {
		t.Errorf("after its time: %v", err)
	}
	start(of(call("a", "slow.shop")))
	leave()
	<-ended
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("after its client has left: %v", err)
	}
}

// The other branch of a fork is not waited for when one has failed, or won.
func TestBranchesThatNobodyWaitsFor(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{}, 1)
	r := newRig(t, map[string]http.HandlerFunc{
		"shop/slow": func(_ http.ResponseWriter, req *http.Request) {
			close(began)
			<-req.Context().Done()
			ended <- struct{}{}
		},
		"shop/fast": func(w http.ResponseWriter, _ *http.Request) { <-began; _, _ = io.WriteString(w, "fast") },
	})
	race := &nodeapi.Task{Name: "race", Path: "/do/race", Kind: &nodeapi.Task_Fork{Fork: &nodeapi.Fork{Compete: true,
		Branches: []*nodeapi.Task{call("slow", "slow.shop"), call("fast", "fast.shop")}}}}
	w, err := r.run(of(race), r.post(""))
	if err != nil || w.Body.String() != "\"fast\"\n" {
		t.Errorf("%s, %v", w.Body, err)
	}
	<-ended
}

// A namespace whose runs hold much does not keep those of others out, and all of it is given back.
func TestRunsShareTheNode(t *testing.T) {
	began, release := make(chan struct{}, 1000), make(chan struct{})
	r := newRig(t, map[string]http.HandlerFunc{
		"shop/slow":  func(http.ResponseWriter, *http.Request) { began <- struct{}{}; <-release },
		"other/fast": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "fast") },
	})
	large := `"` + strings.Repeat("x", expression.SizeLimit-100) + `"`
	held, refused := 0, make(chan error, 1)
	var runs sync.WaitGroup
	for refusal := error(nil); refusal == nil; {
		runs.Go(func() {
			if _, err := r.run(of(call("a", "slow.shop")), r.post(large)); err != nil {
				refused <- err
			}
		})
		select {
		case <-began:
			held++
		case refusal = <-refused:
			if problem.ReasonOf(refusal) != "TooManyInFlight" || !strings.Contains(refusal.Error(), "shop") {
				t.Errorf("it is refused as %v", refusal)
			}
		}
	}
	if held < 10 || held > 100 {
		t.Errorf("%d runs of %d bytes are held", held, len(large))
	}
	other := of(call("a", "fast.other"))
	other.Name = "other/checkout"
	if w, err := r.run(other, r.post(large)); err != nil || w.Code != http.StatusOK {
		t.Errorf("another namespace's: %d, %v", w.Code, err)
	}
	close(release)
	runs.Wait()
	if w, err := r.run(of(call("a", "slow.shop")), r.post(large)); err != nil || w.Code != http.StatusOK {
		t.Errorf("afterwards: %d, %v", w.Code, err)
	}
}

// What a run will call next is started before its turn: as far as the document says, and as others went that came by the same way.
func TestWhatComesNextIsPrepared(t *testing.T) {
	var wanted string
	var r *rig
	r = newRig(t, map[string]http.HandlerFunc{
		"shop/first": func(w http.ResponseWriter, _ *http.Request) {
			var got []string // in any order
			for range strings.Fields(wanted) {
				got = append(got, strings.TrimPrefix(<-r.prepared, "shop/checkout "))
			}
			if slices.Sort(got); strings.Join(got, " ") != wanted {
				t.Errorf("while the first works, %s are prepared", got)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"way": "left"}`)
		},
		"shop/second": func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) },
		"shop/left":   func(http.ResponseWriter, *http.Request) {},
		"shop/right":  func(http.ResponseWriter, *http.Request) { t.Error("the right one is called") },
	})
	second := call("second", "second.shop")
	second.InputFrom = "{way}"
	which := &nodeapi.Task{Name: "which", Path: "/do/which", Kind: &nodeapi.Task_Switch{Switch: &nodeapi.Switch{Cases: []*nodeapi.Case{
		{Name: "right", When: `$context == "never"`, Then: "right"}, {Name: "left", Then: "left"}}}}}
	right := call("right", "right.shop")
	right.Then = "end"
	f := of(call("first", "first.shop"), second, which, right, call("left", "left.shop"))
	for _, wanted = range []string{"shop/second", "shop/left shop/second"} {
		if w, err := r.run(f, r.post("")); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		for len(r.prepared) > 0 {
			if got := <-r.prepared; got == "shop/checkout shop/right" {
				t.Error("the right one is prepared")
			}
		}
	}
}
