package ingress

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// heldMost is how many requests a node has in its hands: as many as a gateway sends it of
	// one function on one machine. Each costs some 30 KiB while it waits, and twice as much while
	// its function works on it, so that they fit into the memory that the chart gives the daemon;
	// gateways of Istio set no bound themselves.
	heldMost = 8192
	// heldOfFunction is how many of them one function may have: three quarters, as of inputs.
	heldOfFunction = heldMost - heldMost/4
)

// held are the requests in the node's hands.
type held struct {
	mu    sync.Mutex
	ids   map[string]string // their functions
	of    map[string]int    // how many a function has
	share *fair.Share
}

func newHeld() *held {
	return &held{ids: map[string]string{}, of: map[string]int{}, share: fair.NewShare(heldMost)}
}

// take takes a request into the node's hands, if it may be there.
func (h *held) take(id, function string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch _, taken := h.ids[id]; {
	case taken:
		// Two requests under one id would share an input and its file, which goes with the
		// first of them that ends.
		return problem.New(
			http.StatusConflict, problem.ReasonDuplicateRequest, filterapi.HeaderRequest,
			"the node holds a request with this id already",
		)
	case h.of[function] == heldOfFunction:
		return tooMany(fmt.Sprintf("the node holds %d requests of the function already", heldOfFunction))
	case !h.share.Take(function, 1):
		return tooMany("the node holds " + h.share.Full(function, "requests"))
	}
	h.ids[id] = function
	h.of[function]++
	return nil
}

// tooMany is the error of a request that nobody got.
func tooMany(detail string) error {
	return undelivered{problem.New(http.StatusServiceUnavailable, "TooManyInFlight", "", detail)}
}

func (h *held) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	function := h.ids[id]
	delete(h.ids, id)
	h.share.Return(function, 1)
	if h.of[function]--; h.of[function] == 0 {
		delete(h.of, function)
	}
}
