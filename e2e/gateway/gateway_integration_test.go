//go:build integration

package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

func coldState() platform.State {
	return platform.State{Functions: []platform.Function{video(), thumbs()}}
}

// problemOf checks the form of a problem and returns it without its free text.
func problemOf(t *testing.T, a answer) filterapi.Problem {
	t.Helper()
	var p filterapi.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("body %q is not a problem: %v", a.body, err)
	}
	if got := a.header.Get("Content-Type"); got != filterapi.ProblemContentType {
		t.Errorf("content type %q, want %q", got, filterapi.ProblemContentType)
	}
	if p.Status != a.status || p.Type != "https://headstart.dev/errors#"+p.Title || p.Detail == "" {
		t.Errorf("problem %+v does not fit an answer of status %d", p, a.status)
	}
	p.Type, p.Detail = "", ""
	return p
}

func TestUnknownHost(t *testing.T) {
	b := start(t, coldState(), nil)
	got := b.get("nobody.example.com")
	if want := (filterapi.Problem{Title: "NoSuchFunction", Status: 404}); problemOf(t, got) != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !strings.Contains(got.body, "nobody.example.com") {
		t.Errorf("%q does not name the host", got.body)
	}
}

func TestDaemonAway(t *testing.T) {
	t.Parallel()
	b := start(t, coldState(), nil)
	want := filterapi.Problem{Title: "Unreachable", Status: 503, Function: "default/thumbs"}
	for name, body := range map[string]string{
		"small": "", "beyond the retry buffer": strings.Repeat("x", 4*retryBuffer),
	} {
		got, err := b.try(thumbs().Hosts[0], body)
		if err != nil {
			t.Fatal(err)
		}
		if p := problemOf(t, got); p != want {
			t.Errorf("%s: got %+v, want %+v", name, p, want)
		}
	}
}

// Requests that meet a daemon's restart are answered, not refused.
func TestDaemonRestart(t *testing.T) {
	t.Parallel()
	b := start(t, coldState(), nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := b.try(thumbs().Hosts[0], "a body"); err != nil || got.status != http.StatusOK {
				t.Errorf("got %+v, error %v", got, err)
			}
		})
	}
	b.eventually(
		"the gateway tries again", func() bool { return b.stat("cluster.default/thumbs.upstream_rq_retry") > 0 },
	)
	b.listen("unix", b.gw.IngressSocket, "cold")
	wg.Wait()
}

func TestConnectionLost(t *testing.T) {
	b := start(t, coldState(), nil)
	b.handle("unix", b.gw.IngressSocket, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	want := filterapi.Problem{Title: "ConnectionLost", Status: 502, Function: "default/thumbs"}
	if got := problemOf(t, b.get(thumbs().Hosts[0])); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestRequestTimeout(t *testing.T) {
	t.Parallel()
	f := thumbs()
	f.RequestTimeout, f.Policy.ReadyTimeout = 0, 0 // daemonFirst remains
	b := start(t, platform.State{Functions: []platform.Function{f}}, nil)
	b.handle("unix", b.gw.IngressSocket, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	want := filterapi.Problem{Title: "RequestTimeout", Status: 504, Function: "default/thumbs"}
	if got := problemOf(t, b.get(f.Hosts[0])); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestHeadersTooLarge(t *testing.T) {
	b := start(t, coldState(), nil)
	got := b.get(thumbs().Hosts[0], "x-large", strings.Repeat("x", 2*maxRequestHeadersKB<<10))
	if want := (filterapi.Problem{Title: "RequestRefused", Status: 431}); problemOf(t, got) != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A host is found with the dot of the root and with a port, as programs write it.
func TestHosts(t *testing.T) {
	b := start(t, coldState(), nil)
	b.listen("unix", b.gw.IngressSocket, "cold")
	host := thumbs().Hosts[0]
	for _, same := range []string{host, host + ".", host + ":8080", host + ".:8080", strings.ToUpper(host)} {
		if got := b.get(same); got.body != "cold" {
			t.Errorf("%s: got %+v", same, got)
		}
	}
}

// Only the gateway speaks for Headstart and for Envoy.
func TestClientHeaders(t *testing.T) {
	b := start(t, coldState(), nil)
	daemon := b.listen("unix", b.gw.IngressSocket, "cold")
	got := b.get(thumbs().Hosts[0]+":8080",
		filterapi.HeaderRequest, "spoofed", "X-Headstart-Input", "s3://videos/other", "x_headstart_input_file",
		"/etc/passwd",
		"X-HEADSTART-FUNCTION", "default/other", "X-Headstart-Later", "spoofed", "x-envoy-max-retries", "1000", "X-Own", "kept")
	if got.status != http.StatusOK {
		t.Fatalf("got %+v", got)
	}
	_, r := daemon.requests()
	if r.Host != thumbs().Hosts[0]+":8080" {
		t.Errorf("host became %q", r.Host)
	}
	seen := http.Header{}
	for name, values := range r.Header {
		lower := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
		if lower == "x-own" || strings.HasPrefix(lower, "x-headstart-") || lower == "x-envoy-max-retries" {
			seen[lower] = values
		}
	}
	want := http.Header{"x-own": {"kept"}, filterapi.HeaderFunction: {"default/thumbs"}}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("headers at the daemon (-want +got):\n%s", diff)
	}
}

func TestPrefetchFilter(t *testing.T) {
	f := video()
	hot := func(address string) platform.State {
		st := coldState()
		st.Instances = []platform.Instance{ready(f, "one", address)}
		return st
	}
	b := start(t, coldState(), func(c *gateway.Config) { c.Filters = programtest.Path(t, "filters.wasm") })
	daemon := b.listen("unix", b.gw.IngressSocket, "daemon")
	hints := b.listenForHints()
	instance := b.listen("tcp", "127.0.0.1:0", "instance")
	b.update(hot(instance.address))
	b.settle()

	if got := b.get(f.Hosts[0], "x-key", "cam1.mjpeg"); got.body != "daemon" {
		t.Errorf("a request with an input got %+v, want the daemon's answer although the function is hot", got)
	}
	_, r := daemon.requests()
	if got := r.Header.Get(filterapi.HeaderInput); got != "s3://videos/cam1.mjpeg" {
		t.Errorf("input reference %q", got)
	}
	if got := r.Header.Get(filterapi.HeaderFunction); got != f.Name {
		t.Errorf("function %q", got)
	}
	b.eventually("the hint arrives", func() bool { n, _ := hints.requests(); return n == 1 })
	_, h := hints.requests()
	if want, got := r.Header.Get(filterapi.HeaderRequest), h.Header.Get(filterapi.HeaderRequest); got != want || want == "" {
		t.Errorf("the hint is for request %q, the request is %q", got, want)
	}
	// The filter's own problems pass as it made them.
	want := filterapi.Problem{
		Title: filterapi.ReasonInputReferenceMalformed, Status: 400, Function: f.Name, Field: "header x-key",
	}
	got := problemOf(t, b.get(f.Hosts[0], "x-key", "../secret"))
	got.Request = ""
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// With and without the filter, what a path or a query names is the daemon's, and all else the
// instance's.
func TestPathAndQueryNameInputs(t *testing.T) {
	byPath, byQuery := video(), thumbs()
	byPath.Policy.Path, byPath.Policy.Input = "/videos/{camera}/{+frame}", "s3://videos/{path.camera}/{path.frame|urldecode}"
	byQuery.Policy.Input = "s3://videos/{query.key|urldecode}"
	for _, path := range []string{"", programtest.Path(t, "filters.wasm")} {
		st := platform.State{Functions: []platform.Function{byPath, byQuery}}
		b := start(t, st, func(c *gateway.Config) { c.Filters = path })
		daemon := b.listen("unix", b.gw.IngressSocket, "daemon")
		b.listenForHints()
		address := b.listen("tcp", "127.0.0.1:0", "instance").address
		st.Instances = []platform.Instance{ready(byPath, "one", address), ready(byQuery, "two", address)}
		b.update(st)
		b.settle()
		for _, c := range []struct{ host, target, reference string }{
			{byPath.Hosts[0], "/videos/c1/a%20b/7?x=y", "s3://videos/c1/a b/7"},
			{byPath.Hosts[0], "/healthz", ""},
			{byPath.Hosts[0], "/videos/c1", ""},
			{byQuery.Hosts[0], "/any?x=y&key=red+flower%2F1", "s3://videos/red flower/1"},
			{byQuery.Hosts[0], "/key?keys=1", ""},
		} {
			got, err := b.ask(c.host, c.target, "")
			want := map[bool]string{true: "daemon", false: "instance"}[c.reference != ""]
			if err != nil || got.body != want {
				t.Errorf("filter %q: %s got %+v, %v; want the %s", path, c.target, got, err, want)
				continue
			}
			if c.reference == "" {
				continue
			}
			_, r := daemon.requests()
			if reference := r.Header.Get(filterapi.HeaderInput); path != "" && reference != c.reference || r.RequestURI != c.target {
				t.Errorf(
					"filter %q: %s came as %s with %q, want %q", path, c.target, r.RequestURI, reference, c.reference,
				)
			}
		}
		if path == "" {
			continue // the daemon refuses
		}
		want := filterapi.Problem{
			Title: filterapi.ReasonInputReferenceMalformed, Status: 400, Function: byQuery.Name, Field: "query key",
		}
		refused, err := b.ask(byQuery.Hosts[0], "/?key=%2e%2e/a", "")
		if err != nil {
			t.Fatal(err)
		}
		got := problemOf(t, refused)
		got.Request = ""
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Envoy compiles a filter for seconds, in which it does nothing else on its main thread. A gateway
// that starts serves meanwhile, and each request goes where it belongs without the filter.
func TestAStartingGatewayDoesNotWaitForItsFilters(t *testing.T) {
	f := video()
	b := lay(t, coldState(), func(c *gateway.Config) {
		c.Filters = programtest.Path(t, "filters.wasm")
	})
	daemon, hints := b.listen("unix", b.gw.IngressSocket, "daemon"), b.listenForHints()
	b.launch()
	early, hinted := 0, 0
	b.eventually("the filter is at work", func() bool {
		switch a, err := b.try(f.Hosts[0], "", "x-key", "cam1.mjpeg"); {
		case err != nil:
			return false // it does not listen yet
		case a.status != http.StatusOK || a.body != "daemon":
			t.Fatalf("got %+v", a)
		}
		if _, r := daemon.requests(); r.Header.Get(filterapi.HeaderInput) == "" {
			early++
		}
		hinted, _ = hints.requests()
		return hinted > 0
	})
	if early == 0 {
		t.Error("no request was answered before the filter was there")
	}
}

// Without its filter a gateway serves, and says what is wrong.
func TestFilterMissing(t *testing.T) {
	b := prepare(
		t, coldState(), func(c *gateway.Config) { c.Filters = filepath.Join(t.TempDir(), "absent.wasm") },
	)
	b.eventually("the gateway says what it lacks", func() bool { return len(b.problems()) > 0 })
	if p := b.problems()[0]; !strings.HasSuffix(p.GetTypeUrl(), "TypedExtensionConfig") || !strings.Contains(
		p.GetWords(), "absent.wasm",
	) {
		t.Errorf("it says %v", p)
	}
	b.listen("unix", b.gw.IngressSocket, "daemon")
	instance := b.listen("tcp", "127.0.0.1:0", "instance")
	st := coldState()
	st.Instances = []platform.Instance{ready(video(), "one", instance.address)}
	b.update(st)
	b.eventually("the function is hot", func() bool { return b.get(video().Hosts[0]).body == "instance" })
	if got := b.get(video().Hosts[0], "x-key", "cam1.mjpeg"); got.body != "daemon" {
		t.Errorf("got %+v, want the daemon's answer: it names the input", got)
	}
}

func TestLargeBody(t *testing.T) {
	b := start(t, coldState(), nil)
	b.handle("unix", b.gw.IngressSocket, func(w http.ResponseWriter, r *http.Request) {
		var n int
		buffer := make([]byte, 64<<10)
		for {
			k, err := r.Body.Read(buffer)
			n += k
			if err != nil {
				break
			}
		}
		fmt.Fprint(w, n)
	})
	const size = 16 << 20
	if got, err := b.try(thumbs().Hosts[0], strings.Repeat("x", size)); err != nil || got.body != fmt.Sprint(size) {
		t.Errorf("got %+v, error %v", got, err)
	}
}

// activity is which functions are in use.
type activity struct {
	mu     sync.Mutex
	active map[string]bool
}

func (a *activity) Seen(function string, active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active[function] = active
}

func (a *activity) has(function string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active[function]
}

// A function is in use as long as it has a request, however long that takes, at the daemon or at an
// instance. Of those at instances it is known how many there are.
func TestRequestsAreReported(t *testing.T) {
	for _, program := range []string{"envoy", "envoy-oldest"} {
		t.Run(program, func(t *testing.T) { requestsAreReported(t, program) })
	}
}

func requestsAreReported(t *testing.T, program string) {
	a := &activity{active: map[string]bool{}}
	b := layFor(t, coldState(), nil, a)
	b.program = program
	b.launch()
	b.ready()
	release := make(chan struct{})
	held := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	b.handle("unix", b.gw.IngressSocket, held)
	hot := b.handle("tcp", "127.0.0.1:0", held)
	st := coldState()
	st.Instances = []platform.Instance{ready(video(), "one", hot.address)}
	b.update(st)
	b.settle()
	b.server.Signals(time.Now())
	var wg sync.WaitGroup
	for _, f := range []platform.Function{thumbs(), video()} {
		wg.Go(func() {
			if got, err := b.try(f.Hosts[0], ""); err != nil || got.status != http.StatusOK {
				t.Errorf("got %+v, error %v", got, err)
			}
		})
		b.eventually(f.Name+" is in use", func() bool { return a.has(f.Name) })
	}
	inFlight := 0.0
	b.eventually("the instance's request is counted", func() bool {
		for _, said := range b.server.Signals(time.Now()) {
			if e := said.GetEndpoints(); said.GetFunction() != video().Name || len(e) != 1 || e[0].GetAddress() != hot.address {
				t.Fatalf("got %v", said)
			} else {
				inFlight = e[0].GetNamedMetrics()["in_flight"]
			}
		}
		return inFlight > 0
	})
	b.eventually("both are in use as long as they have a request", func() bool { return a.has(thumbs().Name) && a.has(video().Name) })
	close(release)
	wg.Wait()
	b.eventually("nothing is in use", func() bool { return !a.has(thumbs().Name) && !a.has(video().Name) })
}
