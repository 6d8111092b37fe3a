package load_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/load"
)

func poisson(address string) load.Poisson {
	return load.Poisson{Address: address, Host: "function", Path: func(n int) string { return fmt.Sprintf("/?n=%d", n) },
		Rate: 1000, Seed: 7, Duration: 300 * time.Millisecond, Timeout: 10 * time.Second, By: "X-By"}
}

func TestAPoissonLoadComesAtRandomAndAlwaysTheSame(t *testing.T) {
	var mu sync.Mutex
	arrived := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		arrived[r.Host+r.URL.String()]++
		mu.Unlock()
		w.Header().Set("X-By", "edge")
	}))
	defer server.Close()
	p := poisson(server.Listener.Addr().String())
	first, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.Run(t.Context())
	if err != nil || len(second) != len(first) {
		t.Fatalf("%d requests and then %d: %v", len(first), len(second), err)
	}
	var gaps, squares float64
	for n, a := range first {
		if a.Lost != "" || a.By != "edge" || a.Took <= 0 || a.Due != second[n].Due {
			t.Fatalf("request %d: %+v, and then %+v", n, a, second[n])
		}
		if arrived[fmt.Sprintf("function/?n=%d", n)] != 2 {
			t.Fatalf("request %d came %d times", n, arrived[fmt.Sprintf("function/?n=%d", n)])
		}
		if n > 0 {
			gap := (a.Due - first[n-1].Due).Seconds() * p.Rate
			gaps, squares = gaps+gap, squares+gap*gap
		}
	}
	n := float64(len(first) - 1)
	// Both are 1 for exponentially distributed times; six times the error of 300 of them.
	if mean, deviation := gaps/n, math.Sqrt(squares/n-gaps*gaps/n/n); math.Abs(mean-1) > 0.35 || math.Abs(deviation-1) > 0.5 {
		t.Errorf("%d requests, %.2f of the time apart that they should be, by %.2f", len(first), mean, deviation)
	}
}

// A request that waits holds none of those behind it up, and one that waits too long is lost.
func TestAPoissonLoadDoesNotWait(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("n") {
		case "0":
			<-release
		case "1":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	defer close(release)
	p := poisson(server.Listener.Addr().String())
	p.Timeout = 2 * time.Second
	got, err := p.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for n, a := range got {
		if a.Lost != "" {
			lost++
		}
		if n < 2 && a.Lost == "" {
			t.Errorf("request %d: %+v", n, a)
		}
	}
	if lost != 2 || got[0].Took < p.Timeout {
		t.Errorf("%d of %d are lost, the first after %v", lost, len(got), got[0].Took)
	}
}

func TestAPoissonLoadEndsWithItsContext(t *testing.T) {
	if _, err := poisson("127.0.0.1:1").Run(t.Context()); err != nil {
		t.Errorf("nobody is there: %v", err) // its requests are lost
	}
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	p := poisson(server.Listener.Addr().String())
	p.Duration = time.Hour
	p.Rate = 0.001
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if got, err := p.Run(ctx); err == nil {
		t.Errorf("%d answers of a load that was ended", len(got))
	}
}
