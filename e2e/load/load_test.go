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
