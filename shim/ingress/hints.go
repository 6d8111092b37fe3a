package ingress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// hintLife is how long a hint's fetch goes on without its request, which is a
	// millisecond behind unless its client went away.
	hintLife = 5 * time.Second
	// hintsOpen bounds the hints that no request has followed yet. It is half of what
	// the engine takes: requests must find room beside them.
	hintsOpen = 512
)

// hints are the inputs that were asked for ahead of their requests.
type hints struct {
	mu     sync.Mutex
	open   map[string]*hint
	closed bool
}

type hint struct {
	input *engine.Input
	timer *time.Timer
}

// Hints serves what filters tell, headers without a body: hints, and the requests that
// they refused. The fetch of a hint's input starts; the request itself, which follows,
// starts everything else.
func (in *Ingress) Hints() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, name := r.Header.Get(filterapi.HeaderRequest), r.Header.Get(filterapi.HeaderFunction)
		f, err := in.functions.get(r.Context(), name, "")
		switch refusal := r.URL.Path == filterapi.RefusalPath; {
		case err != nil && !refusal:
			in.metrics.hint(hintRefused)
		case err == nil && refusal:
			err = in.refusal(f, r.Header.Get(filterapi.HeaderReason), r.Header.Get(filterapi.HeaderField))
		case err == nil:
			err = in.hint(r.Context(), id, f, r.Header.Get(filterapi.HeaderInput))
		}
		if err != nil {
			problem.Write(w, err, name, id)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	})
}

// Expect is a hint from the control plane: a request parked on another node is bound
// to an instance here, and its input may start to flow before it arrives.
func (in *Ingress) Expect(m *nodeapi.Expect) {
	f, err := in.functions.now(m.GetFunction())
	if err != nil {
		in.metrics.hint(hintRefused)
	} else {
		err = in.hint(context.Background(), m.GetRequest(), f, m.GetInput())
	}
	if err != nil { // the request itself will be told
		in.log.Warn("an announced input is not fetched ahead", "function", m.GetFunction(), "request", m.GetRequest(), "error", err)
	}
}

func (in *Ingress) hint(ctx context.Context, id string, f *nodeapi.Function, reference string) error {
	if !nodeapi.IsRequestID(id) || reference == "" || !f.GetHasInput() {
		in.metrics.hint(hintRefused)
		return problem.New(http.StatusBadRequest, "HintMalformed", "", "a hint names a request, a function with an input, and the input")
	}
	if !in.hints.add(id, func() *engine.Input { return in.engine.Fetch(ctx, fetchRequest(id, f, reference)) }) {
		in.metrics.hint(hintDropped)
		in.log.Debug("a hint is dropped: too many are open, or the daemon is being stopped", "function", f.GetName(), "request", id)
		return nil
	}
	in.metrics.hint(hintAccepted)
	return nil
}

// add returns false for a hint that is not followed: the request itself will fetch.
func (h *hints) add(id string, fetch func() *engine.Input) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[id] != nil {
		return true
	}
	if len(h.open) >= hintsOpen || h.closed {
		return false
	}
	h.open[id] = &hint{input: fetch(), timer: time.AfterFunc(hintLife, func() { h.drop(id) })}
	return true
}

// drop ends the hint's own claim on the input.
func (h *hints) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, ok := h.open[id]; ok {
		delete(h.open, id)
		o.timer.Stop()
		o.input.Release()
	}
}

func (h *hints) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for id, o := range h.open {
		delete(h.open, id)
		o.timer.Stop()
		o.input.Release()
	}
}
