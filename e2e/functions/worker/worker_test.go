package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, workers int) http.Handler {
	t.Helper()
	p, err := newPool(workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return newHandler(p, "edge")
}

func call(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func stateOf(t *testing.T, h http.Handler) state {
	t.Helper()
	var s state
	if err := json.Unmarshal(call(h, http.MethodGet, "/state").Body.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// However many come, no more than its workers are held, and each has its time.
func TestRequestsWaitForAWorker(t *testing.T) {
	const workers, requests = 2, 10
	p, err := newPool(workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	h := newHandler(p, "edge")
	// No worker is free before all requests are in the queue: else what they wait for depends on
	// when each of them comes.
	first, second := <-p.free, <-p.free
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			w := call(h, http.MethodGet, "/?n=3")
			if w.Code != http.StatusOK || w.Header().Get("X-Worker") != "edge" {
				t.Errorf("%d by %q", w.Code, w.Header().Get("X-Worker"))
			}
		})
	}
	for p.current().Queued < requests {
		runtime.Gosched()
	}
	p.free <- first
	p.free <- second
	all.Wait()
	s := stateOf(t, h)
	want := state{Workers: workers, Served: requests}
	if d := cmp.Diff(want, s, cmpopts.IgnoreFields(state{}, "Service", "Sojourn")); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	each := duration(3).Seconds()
	// By two at a time: 1, 1, 2, 2 ... 5, 5 times as long.
	if s.Service < requests*each || s.Sojourn < 30*each {
		t.Errorf("service %g s, sojourn %g s, of %d requests of %g s by %d workers", s.Service, s.Sojourn, requests, each, workers)
	}
}

// What comes to a full queue is refused at once, and all else is served.
func TestTheQueueHasALimit(t *testing.T) {
	const over = 10
	p, err := newPool(1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	p.setSlow(0.001) // or the test takes 2 s
	worker := <-p.free
	results := make(chan error)
	for n := range uint64(queuePerWorker + over) {
		go func() {
			_, _, err := p.hold(duration(n))
			results <- err
		}()
	}
	for range over {
		if err := <-results; !errors.Is(err, errFull) {
			t.Errorf("without a worker: %v", err)
		}
	}
	p.free <- worker
	for range queuePerWorker {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

func TestARequestTakesTheSameEverywhere(t *testing.T) {
	seen := map[any]bool{}
	for n := range uint64(1000) {
		d := duration(n)
		if d < shortest || d > longest || d != duration(n) {
			t.Fatalf("request %d takes %v", n, d)
		}
		seen[d] = true
	}
	if len(seen) < 900 {
		t.Errorf("only %d different durations of 1000 requests", len(seen))
	}
}

func TestItSlowsDownWhenTold(t *testing.T) {
	h := serve(t, 1)
	if w := call(h, http.MethodPost, "/slow?factor=10"); w.Code != http.StatusOK {
		t.Fatal(w.Code)
	}
	call(h, http.MethodGet, "/?n=1")
	if s := stateOf(t, h); s.Service < 10*shortest.Seconds() {
		t.Errorf("it took %g s", s.Service)
	}
}

func TestItRefusesNonsense(t *testing.T) {
	h := serve(t, 1)
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, "/"}, {http.MethodGet, "/?n=-1"}, {http.MethodPost, "/slow"}, {http.MethodPost, "/slow?factor=0"},
		{http.MethodPost, "/slow?factor=NaN"}, {http.MethodPost, "/slow?factor=1e9"},
	} {
		if w := call(h, c.method, c.path); w.Code != http.StatusBadRequest {
			t.Errorf("%s %s: %d", c.method, c.path, w.Code)
		}
	}
	if s := stateOf(t, h); s.Served != 0 {
		t.Errorf("%d were served", s.Served)
	}
}

func TestTheLoadIsReportedAsORCADoes(t *testing.T) {
	got := state{Workers: 2, InFlight: 5, Queued: 3}.report(4200 * time.Microsecond)
	want := "TEXT application_utilization=2.500, named_metrics.in_flight=5, named_metrics.capacity=2, named_metrics.service_time=0.004200"
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if h := call(serve(t, 1), http.MethodGet, "/?n=1").Header().Get("endpoint-load-metrics"); h == "" {
		t.Error("an answer has no report")
	}
}
