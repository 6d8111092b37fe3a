package ingress_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

var discard = slog.New(slog.DiscardHandler)

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// metrics returns the exposition of the node's metrics.
func metrics(t *testing.T, r *rig) string {
	t.Helper()
	return read(t, call(promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{}), httptest.NewRequest("GET", "/metrics", nil)).Body)
}

// call calls a handler without a connection.
func call(h http.Handler, req *http.Request) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Result()
}

func readResponse(t *testing.T, r io.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(r), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// A request waits until its instance has it, which works on it.
func TestARequestIsCountedWhileItWaits(t *testing.T) {
	var r *rig
	count := func(at, want string) {
		t.Helper()
		want = `headstart_ingress_requests_waiting{function="` + withoutInput + `"} ` + want
		if got := metrics(t, r); !strings.Contains(got, want+"\n") || !strings.Contains(got, `headstart_ingress_requests_in_flight{function="`+withoutInput+`"} 1`) {
			t.Errorf("%s: %s is missing in\n%s", at, want, got)
		}
	}
	r = newRig(t, func(http.ResponseWriter, *http.Request) { count("at work", "0") })
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		count("without an instance", "1")
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1", Cold: true}, nil
	}
	if got := r.do(t, request(t, "GET", withoutInput, newID(), "", nil)); got.StatusCode != http.StatusOK {
		t.Errorf("answered with %s", got.Status)
	}
}

// What a cold request waits for is told by phase, and how much of it it waited for at the same time. A hot one waits for none of it.
func TestAColdStartIsToldByPhase(t *testing.T) {
	const long = 50 * time.Millisecond
	r := newRig(t, func(http.ResponseWriter, *http.Request) {})
	fetches, starts := make(chan struct{}), make(chan struct{})
	fetch, start := sync.OnceFunc(func() { close(fetches) }), sync.OnceFunc(func() { close(starts) })
	r.store.Before = func(context.Context, source.Reference, int64) error {
		fetch()
		<-starts
		<-time.After(long)
		return nil
	}
	cold := true
	r.cp.activate = func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1", Cold: cold}, nil
	}
	r.instances.ready = func(context.Context, string) (netip.AddrPort, error) {
		if start(); cold {
			<-fetches
			<-time.After(long)
		}
		return r.instances.address, nil
	}
	ref := r.put("k", "", []byte("content"))
	for range 2 {
		if got := r.do(t, request(t, "GET", withInput, newID(), ref, nil)); got.StatusCode != http.StatusOK {
			t.Fatalf("answered with %s", got.Status)
		}
		cold = false
	}
	got := metrics(t, r)
	for _, phase := range []string{"schedule", "start", "input"} {
		if want := `headstart_cold_start_seconds_count{function="default/video",phase="` + phase + `"} 1`; !strings.Contains(got, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	_, saved, _ := strings.Cut(got, "\n"+`headstart_cold_start_saved_seconds_total{function="default/video"} `)
	saved, _, _ = strings.Cut(saved, "\n")
	if s, err := strconv.ParseFloat(saved, 64); err != nil || s <= 0 || s > soon.Seconds() {
		t.Errorf("saved %q, %v", saved, err)
	}
	answer := httptest.NewRequest("GET", "/metrics", nil)
	answer.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	if text := read(t, call(serve.Metrics(r.registry), answer).Body); !strings.Contains(text, `# {trace_id="`) {
		t.Error("no duration has a trace as its exemplar")
	}
}

// A body that still comes when the function is ready has come beside its start, too.
func TestAColdStartIsToldBesideABodyThatStillComes(t *testing.T) {
	const size = 1 << 20
	gateway, there := nodes(t, false)
	got := make(chan struct{})
	there.instances.run(t, func(w http.ResponseWriter, req *http.Request) { close(got); digests(w, req) })
	ready := starting(there)
	u := newUpload(size)
	answer := answered(gateway.gateway, request(t, "POST", withBody, newID(), "", u))
	u.send(0, size/2)
	eventually(t, "a part of it is there", func() bool { return there.buffer.Used() >= size/4 })
	ready()
	<-got
	u.rest(size / 2)
	if a := <-answer; !strings.HasPrefix(a, u.digest()) {
		t.Fatal(a)
	}
	text := metrics(t, there)
	if !strings.Contains(text, `headstart_cold_start_saved_seconds_total{function="`+withBody+`"} `) || strings.Contains(text, `phase="input"`) {
		t.Errorf("its time beside the start is told, and how long it took is not:\n%s", text)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Method == "PUT" {
			abort(w, req)
		}
	})
	ref := r.put("some", "", []byte("input"))
	for _, method := range []string{"POST", "POST", "PUT"} {
		r.do(t, request(t, method, withInput, newID(), ref, nil))
	}
	// Names that are no function's grow nothing.
	for n := range 20 {
		r.do(t, request(t, "GET", fmt.Sprint("default/made-up-", n), "", "", nil))
	}
	got := metrics(t, r)
	for _, want := range []string{
		`headstart_ingress_requests_total{function="default/video",reason="OK"} 2`,
		`headstart_ingress_requests_total{function="default/video",reason="FunctionFailed"} 1`,
		`headstart_ingress_requests_total{function="",reason="FunctionUnknown"} 20`,
		`headstart_ingress_requests_in_flight{function="default/video"} 0`,
		`headstart_ingress_request_duration_seconds_count{function="default/video"} 3`,
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("%s is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "made-up") {
		t.Errorf("names of no function are labels:\n%s", got)
	}
}

// While a request is in the node's hands it counts, for the platform and the operator.
func TestARequestInHandCounts(t *testing.T) {
	r := newRig(t, abort)
	at := make(chan string, 1)
	r.instances.ready = func(context.Context, string) (netip.AddrPort, error) {
		at <- fmt.Sprint(r.cp.holds(withInput), strings.Contains(metrics(t, r), `in_flight{function="default/video"} 1`))
		return r.instances.address, nil
	}
	r.do(t, request(t, "GET", withInput, "", "", nil))
	if got := <-at; got != "1 true" {
		t.Errorf("held, in the gauge: %s", got)
	}
}
