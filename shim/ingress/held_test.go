package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// However many requests come for a function, it has three quarters of those that a node holds. However
// many functions a namespace has, it leaves others room; when one has ended there is room for another.
func TestAttackRequestsOfANamespaceLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		r.cp.activate = noPlacement
		plain := func(name string) *nodeapi.Function {
			return &nodeapi.Function{Name: name, RequestTimeout: durationpb.New(soon), ReadyTimeout: durationpb.New(soon)}
		}
		functions := []*nodeapi.Function{plain("small/one")}
		for n := range 100 {
			functions = append(functions, plain(fmt.Sprintf("flood/f%d", n)))
		}
		r.functions.Set(functions)
		gateway := r.Gateway()
		var waiting sync.WaitGroup
		park := func(n int64, function func(n int64) string) {
			for i := range n {
				waiting.Go(func() {
					wantProblem(t, call(gateway, request(t, "POST", function(i), newID(), "", nil)), http.StatusGatewayTimeout, "ActivationTimeout", "")
				})
			}
			synctest.Wait()
		}
		one := func(name string) func(int64) string { return func(int64) string { return name } }
		full := func(function, whose string) {
			t.Helper()
			resp := call(gateway, request(t, "POST", function, newID(), "", nil))
			if resp.Header.Get("x-headstart-undelivered") != "TooManyInFlight" {
				t.Errorf("another node is not told that nobody got it: %v", resp.Header)
			}
			wantProblem(t, resp, http.StatusServiceUnavailable, "TooManyInFlight", "")
			if log := r.logs.String(); !strings.Contains(log, whose) {
				t.Errorf("the log does not say whose limit it is: %s", log)
			}
		}
		park(ingress.HeldOfFunction, one("flood/f0"))
		full("flood/f0", "of the function")
		park(fair.Most(ingress.HeldMost)-ingress.HeldOfFunction, func(n int64) string { return fmt.Sprintf("flood/f%d", 1+n%99) })
		full("flood/f1", "of namespace flood")
		park(100, one("small/one"))
		waiting.Wait()
		park(1, one("flood/f0"))
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
