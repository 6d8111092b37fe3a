//go:build integration

package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// picking is a bed with the route filter, and a function that is ready in some places.
type picking struct {
	*bed
	f        platform.Function
	st       platform.State
	m        *routing.Matrix
	backends []*backend
	// slow is how long each place takes for a request, in nanoseconds.
	slow []*atomic.Int64
}

// pickFrom starts it. The gateway expects what each place is given; weights have the last
// one only get requests.
func pickFrom(t *testing.T, expected ...filterapi.Expected) *picking {
	t.Helper()
	f := thumbs()
	p := &picking{f: f, st: platform.State{Functions: []platform.Function{f}}, m: &routing.Matrix{}}
	p.bed = start(t, p.st, func(c *gateway.Config) { c.Filters = programtest.Path(t, "filters.wasm") })
	row := routing.Row{Expected: expected}
	for i := range expected {
		slow := &atomic.Int64{}
		s := p.handle("tcp", "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(time.Duration(slow.Load())):
			case <-r.Context().Done():
			}
			_, _ = io.WriteString(w, fmt.Sprint(i))
		})
		p.slow, p.backends = append(p.slow, slow), append(p.backends, s)
		p.m.Endpoints = append(p.m.Endpoints, netip.MustParseAddrPort(s.address))
		row.Weights = append(row.Weights, 1)
		p.st.Instances = append(p.st.Instances, ready(f, fmt.Sprint(i), s.address))
	}
	row.Weights[len(expected)-1] = 1000
	p.m.Rows = map[string]routing.Row{p.gw.Node: row}
	p.weights = routing.Weights{f.Name: p.m}
	p.bed.update(p.st)
	p.settle()
	p.picks(0)
	return p
}

// picks waits until the filter knows what to expect, and has requests go to a place: one that would have hardly
// any by weight.
func (p *picking) picks(place int) {
	p.t.Helper()
	p.eventually("the filter picks", func() bool { return p.ask(10)[fmt.Sprint(place)] == 10 })
}

// ask sends requests one after the other, and returns how many each place has answered.
func (p *picking) ask(requests int) map[string]int {
	p.t.Helper()
	heard := map[string]int{}
	for range requests {
		a := p.get(p.f.Hosts[0])
		if a.status != http.StatusOK {
			p.t.Errorf("got %+v", a)
		}
		heard[a.body]++
	}
	return heard
}

// What is expected is far more than what a busy machine takes for a request.
var (
	nearby  = filterapi.Expected{Service: 20 * time.Millisecond, Workers: 2}
	next    = filterapi.Expected{RTT: 20 * time.Millisecond, Service: 20 * time.Millisecond, Workers: 2}
	faraway = filterapi.Expected{RTT: 500 * time.Millisecond, Service: 20 * time.Millisecond, Workers: 2}
)

// Whatever weights say in the long run, a request goes where it is answered first.
func TestTheFilterPicksPerRequest(t *testing.T) {
	p := pickFrom(t, nearby, faraway)
	if heard := p.ask(100); heard["0"] != 100 {
		t.Errorf("one by one, %v were answered near and far", heard)
	}
	// All at once: the near one has two workers. That no weight is there says that it is full, so
	// that hardly anybody waits for them.
	p.slow[0].Store(int64(100 * time.Millisecond))
	p.slow[1].Store(int64(100 * time.Millisecond))
	var far atomic.Int64
	var wg sync.WaitGroup
	for range 400 {
		wg.Go(func() {
			a, err := p.try(p.f.Hosts[0], "")
			if err != nil || a.status != http.StatusOK {
				t.Errorf("got %+v, error %v", a, err)
			}
			if a.body == "1" {
				far.Add(1)
			}
		})
	}
	wg.Wait()
	if n := far.Load(); n < 200 || n > 398 {
		t.Errorf("of 400 at once, %d were answered far away", n)
	}
}

// What becomes slow, or is gone, is left alone, and no request fails for it.
func TestTheFilterLeavesWhatIsSlowOrGone(t *testing.T) {
	p := pickFrom(t, nearby, next, faraway)
	if heard := p.ask(50); heard["0"] != 50 {
		t.Fatalf("%v were answered by the three", heard)
	}
	p.slow[0].Store(int64(200 * time.Millisecond))
	p.ask(20) // to see it
	if heard := p.ask(20); heard["1"] < 15 {
		t.Errorf("with the nearest slow, %v", heard)
	}
	p.backends[1].stop()
	if heard := p.ask(20); heard["1"] != 0 {
		t.Errorf("with the second nearest gone, %v", heard)
	}
}

// With one place there is nothing to pick, and with none the daemon has the requests.
func TestTheFilterStandsAside(t *testing.T) {
	p := pickFrom(t, nearby, faraway)
	p.st.Instances = p.st.Instances[1:]
	p.bed.update(p.st)
	p.settle()
	if heard := p.ask(20); heard["1"] != 20 {
		t.Errorf("with one place, %v", heard)
	}
	p.listen("unix", p.gw.IngressSocket, "cold")
	p.st.Instances = nil
	p.bed.update(p.st)
	p.settle()
	if heard := p.ask(5); heard["cold"] != 5 {
		t.Errorf("with none, %v", heard)
	}
}

// An instance that is withdrawn gets no request once gateways have settled, though it was the
// nearest, and the filter may hear of it later: what is no endpoint of the cluster, no name leads to.
func TestTheFilterLeavesWhatIsWithdrawn(t *testing.T) {
	p := pickFrom(t, nearby, next, faraway)
	if heard := p.ask(20); heard["0"] != 20 {
		t.Fatalf("%v were answered by the three", heard)
	}
	p.st.Instances[0].Phase = platform.Stopping
	p.bed.update(p.st)
	p.settle()
	if heard := p.ask(50); heard["0"] != 0 {
		t.Errorf("with the nearest withdrawn, %v", heard)
	}
	p.picks(1)
}

// While expectations change, every request is answered, and the last ones rule.
func TestExpectationsChangeUnderLoad(t *testing.T) {
	p := pickFrom(t, nearby, faraway)
	rebuilds := func() int {
		c := "cluster." + p.f.Name + "."
		return p.stat(c+"update_success") - p.stat(c+"update_no_rebuild")
	}
	before := rebuilds()
	for k := range 20 {
		row := p.m.Rows[p.gw.Node]
		there, back := nearby, faraway
		there.RTT += time.Duration(k) * time.Microsecond
		if k%2 == 0 {
			there, back = back, there
		}
		row.Expected = []filterapi.Expected{there, back}
		p.m = &routing.Matrix{Endpoints: p.m.Endpoints, Rows: map[string]routing.Row{p.gw.Node: row}}
		p.weights = routing.Weights{p.f.Name: p.m}
		p.bed.update(p.st)
		p.ask(20)
	}
	p.settle()
	p.eventually("the last expectations rule", func() bool { return p.ask(10)["0"] == 10 })
	if n := rebuilds() - before; n != 0 {
		t.Errorf("the cluster was built anew %d times", n)
	}
}

// Without their module, weights rule.
func TestTheFiltersAreMissing(t *testing.T) {
	f := thumbs()
	st := platform.State{Functions: []platform.Function{f}}
	b := prepare(t, st, func(c *gateway.Config) { c.Filters = "/nonexistent/filters.wasm" })
	row := routing.Row{Weights: []uint32{0, 1}, Expected: []filterapi.Expected{nearby, faraway}}
	m := &routing.Matrix{Rows: map[string]routing.Row{b.gw.Node: row}}
	for i := range 2 {
		s := b.listen("tcp", "127.0.0.1:0", fmt.Sprint(i))
		m.Endpoints = append(m.Endpoints, netip.MustParseAddrPort(s.address))
		st.Instances = append(st.Instances, ready(f, fmt.Sprint(i), s.address))
	}
	b.weights = routing.Weights{f.Name: m}
	b.update(st)
	b.eventually("the instances are there", func() bool { return b.get(f.Hosts[0]).body == "1" })
	b.eventually("the gateway says what it lacks", func() bool { return len(b.problems()) > 0 })
	for range 20 {
		if got := b.get(f.Hosts[0]); got.body != "1" {
			t.Errorf("got %+v", got)
		}
	}
}
