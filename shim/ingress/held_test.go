package ingress_test

import (
	"context"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/headstart-mesh/headstart/shim/ingress"
)

// However many requests come, a node holds so many at a time, and of one function three
// quarters of them; when one has ended there is room for another.
func TestAsManyRequestsAsTheNodeHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		r.cp.activate = noPlacement
		gateway := r.Gateway()
		var waiting sync.WaitGroup
		park := func(function string, n int) {
			for range n {
				waiting.Go(func() {
					wantProblem(t, call(gateway, request(t, "POST", function, newID(), "", nil)), http.StatusGatewayTimeout, "ActivationTimeout", "")
				})
			}
			synctest.Wait()
		}
		full := func(function string) {
			t.Helper()
			resp := call(gateway, request(t, "POST", function, newID(), "", nil))
			if resp.Header.Get("x-headstart-undelivered") != "TooManyInFlight" {
				t.Errorf("another node is not told that nobody got it: %v", resp.Header)
			}
			wantProblem(t, resp, http.StatusServiceUnavailable, "TooManyInFlight", "")
		}
		park(withoutInput, ingress.HeldOfFunction)
		full(withoutInput)
		park(withInput, ingress.HeldMost-ingress.HeldOfFunction)
		full(withBody)
		waiting.Wait()
		park(withoutInput, 1)
		waiting.Wait()
	})
}

// What a request takes of memory: as many as a node may hold must not be its end when their
// function is ready and has them all at once. The test's own ends of the connections, and the
// function, count with it.
func TestARequestInHandIsSmall(t *testing.T) {
	const many, most = 200, 160 << 10
	var working atomic.Int32
	ready, over := make(chan struct{}), make(chan struct{})
	r := newRig(t, func(http.ResponseWriter, *http.Request) { working.Add(1); <-over })
	r.instances.ready = func(context.Context, string) (netip.AddrPort, error) { <-ready; return r.instances.address, nil }
	inUse := func() int {
		runtime.GC()
		runtime.GC() // what pools keep goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := inUse()
	var sent sync.WaitGroup
	for range many {
		sent.Go(func() {
			resp, err := r.gateway.Do(request(t, "GET", withoutInput, newID(), "", nil))
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
	}
	eventually(t, "all wait", func() bool { return r.cp.holds(withoutInput) == many })
	waiting := (inUse() - before) / many
	close(ready)
	eventually(t, "all are worked on", func() bool { return working.Load() == many })
	worked := (inUse() - before) / many
	close(over)
	sent.Wait()
	t.Logf("each takes %d KiB while it waits, and %d KiB while it is worked on", waiting>>10, worked>>10)
	if worked > most {
		t.Error("which is too much")
	}
}
