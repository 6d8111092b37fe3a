package load_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/e2e/load"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every request counts: those that are answered, those that are refused, and those of
// which nothing is heard.
func TestWhatIsLostCounts(t *testing.T) {
	var n atomic.Int64
	enough := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch k := n.Add(1); {
		case k == 9:
			close(enough)
		case k%3 == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case k%3 == 2:
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	l := load.Start(t.Context(), load.Config{Rate: 1000, Timeout: 10 * time.Second, Request: func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	}})
	<-enough
	got := l.Stop()
	sent := int(n.Load())
	answered := sent / 3
	if got.Sent != sent || len(got.Took) != answered || got.Lost != sent-answered {
		t.Errorf("of %d requests %d were sent, %d answered, %d lost: %v", sent, got.Sent, len(got.Took), got.Lost, got.Reasons)
	}
	if got.Quantile(0.99) <= 0 || (load.Result{}).Quantile(0.5) != 0 {
		t.Error("quantiles are wrong")
	}
}

func TestAPacedLoadIsSentAtItsPace(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "function" || r.URL.Path != "/healthz" {
			w.WriteHeader(http.StatusNotFound)
		}
		n.Add(1)
	}))
	defer server.Close()
	p := load.Paced{Address: server.Listener.Addr().String(), Host: "function", Path: "/healthz", Rate: 1000, Connections: 7, Duration: 200 * time.Millisecond, Timeout: 10 * time.Second}
	got := p.Run(t.Context())
	if got.Sent != 200 || got.Lost != 0 || len(got.Took) != 200 || n.Load() != 200 || got.Quantile(0.99) <= 0 {
		t.Errorf("%d sent, %d lost, %d answered, %d arrived: %v", got.Sent, got.Lost, len(got.Took), n.Load(), got.Reasons)
	}
	p.Path = "/other"
	if got := p.Run(t.Context()); got.Lost == 0 {
		t.Error("refusals are no losses")
	}
	server.Close()
	if got := p.Run(t.Context()); got.Sent != 200 || got.Lost != 200 {
		t.Errorf("nobody is there, and of %d requests %d are lost", got.Sent, got.Lost)
	}
}
