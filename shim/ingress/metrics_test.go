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
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
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
