package xdsscale

import (
	"bytes"
	"context"
	"encoding/json"
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

// What is measured is what the control plane sends: to each node all endpoints and expectations
// once, then those of one function of each change.
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
	// An endpoint is some 25 bytes, its weight some 5, what to expect of it some 40, and what is
	// around both some 150.
	if got := figures[Bytes]; got < 10*50 || got > 10*80+2*150 {
		t.Errorf("%v bytes for a function of 10 endpoints", got)
	}
}

// A client has a change when both of its streams have told of it.
func TestArrived(t *testing.T) {
	var out bytes.Buffer
	counted := &tally{versions: map[uint64]*arrival{}, wanted: map[uint64]int{}, out: json.NewEncoder(&out)}
	if err := counted.want(7, 2); err != nil {
		t.Fatal(err)
	}
	one, other := &node{}, &node{}
	for i, told := range []struct {
		by     *node
		stream int
	}{{one, 0}, {other, 0}, {other, 1}, {one, 1}} {
		if out.Len() > 0 {
			t.Errorf("after %d of 4: %s", i, &out)
		}
		if err := counted.arrived(told.by, told.stream, 7, time.Unix(0, int64(100+i)), 10); err != nil {
			t.Fatal(err)
		}
	}
	var got arrival
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if want := (arrival{Version: 7, Clients: 2, Last: 103, Bytes: 40}); got != want {
		t.Errorf("%+v, want %+v", got, want)
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
