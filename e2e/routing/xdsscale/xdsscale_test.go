package xdsscale

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asClients has this program be the clients' process.
const asClients = "XDSSCALE_CLIENTS"

func TestMain(m *testing.M) {
	if os.Getenv(asClients) != "" {
		if err := Clients(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// What is measured is what the control plane sends: to each node all endpoints once, then
// one function of each change.
func TestMeasure(t *testing.T) {
	o := Options{Clients: 20, Functions: 5, Endpoints: 10, Changes: 4, Seed: 1, Dir: t.TempDir(), Command: []string{"env", asClients + "=1", os.Args[0]}}
	figures, err := Measure(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{P50, P99, AddedP99, WeightP99, OneP99, CPU, First, FirstCPU, Heap, Resident} {
		if figures[name] <= 0 {
			t.Errorf("%s is %v", name, figures[name])
		}
	}
	if figures[P99] != max(figures[AddedP99], figures[WeightP99]) || figures[P50] > figures[P99] {
		t.Errorf("figures %v", figures)
	}
	// An endpoint is some 25 bytes, its weight some 5, and what is around them some 150.
	if got := figures[Bytes]; got < 10*20 || got > 10*30+150 {
		t.Errorf("%v bytes for a function of 10 endpoints", got)
	}
}

func TestQuantile(t *testing.T) {
	d := []time.Duration{3, 1, 2, 4}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 4, 1: 4} {
		if got := quantile(d, q); got != want {
			t.Errorf("%v: %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}
