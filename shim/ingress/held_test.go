package ingress_test

import (
	"net/http"
	"sync"
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
