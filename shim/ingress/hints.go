package ingress

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// hintLife is how long a hint's fetch goes on without its request, which is a
	// millisecond behind unless its client went away.
	hintLife = 5 * time.Second
	// hintsOpen bounds the hints that no request has followed yet. It is half of what
	// the node takes: requests must find room beside them.
	hintsOpen = 512
)

// hints are the inputs that were asked for ahead of their requests.
type hints struct {
	mu     sync.Mutex
	open   map[string]*hint
	share  *fair.Share
	closed bool
}

type hint struct {
	function string
	inputs   []*objects.Input
	timer    *time.Timer
}

func newHints() *hints {
	return &hints{open: map[string]*hint{}, share: fair.NewShare(hintsOpen)}
}

// Hints serves what filters tell, headers without a body: hints, and the requests that
// they refused. The fetch of a hint's input starts, unless the function is only observed; the
// request itself, which follows, starts everything else.
func (in *Ingress) Hints() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, name := r.Header.Get(filterapi.HeaderRequest), r.Header.Get(filterapi.HeaderFunction)
		f, err := in.config.Functions.get(r.Context(), name, "")
		switch refusal := r.URL.Path == filterapi.RefusalPath; {
		case err == nil && (r.URL.Path == filterapi.ObservationPath || len(f.GetObserved()) > 0):
			err = in.observe(f, r.Header)
		case err != nil && r.URL.Path == filterapi.HintPath:
			in.config.Metrics.hint(hintRefused)
		case err == nil && refusal:
			err = in.refusal(f, r.Header)
		case err == nil:
			var refs reference.Inputs
			if refs, err = taken(r.Header, f); err != nil {
				in.config.Metrics.hint(hintRefused)
			} else if !made(f, refs) {
				in.config.Metrics.hint(hintRefused)
				err = malformedHint()
			} else {
				err = in.hint(r.Context(), id, f, refs)
			}
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
	in.announced.add(m, time.Now())
	if m.GetCapability() != "" && m.GetInput() == "" && len(m.GetInputs()) == 0 {
		return // there is no more to it
	}
	var err error = unknown()
	if f := in.config.Functions.Lookup(m.GetFunction()); f != nil {
		refs := f.Taken(reference.NewInputs(m.GetInput(), m.GetInputs()))
		err = in.hint(context.Background(), m.GetRequest(), f, refs)
	} else {
		in.config.Metrics.hint(hintRefused)
	}
	if err != nil { // the request itself will be told
		in.config.Log.Warn(
			"an announced input is not fetched ahead", "function", m.GetFunction(), "request", m.GetRequest(), "error",
			err,
		)
	}
}

func (in *Ingress) hint(ctx context.Context, id string, f *nodeapi.Function, refs reference.Inputs) error {
	if !nodeapi.IsRequestID(id) || len(refs) == 0 {
		in.config.Metrics.hint(hintRefused)
		return malformedHint()
	}
	fetch := func() (inputs []*objects.Input) {
		for _, name := range refs.Names() {
			inputs = append(inputs, in.config.Objects.Fetch(ctx, fetchRequest(id, f, name, refs[name])))
		}
		return inputs
	}
	if !in.hints.add(id, f.GetName(), fetch) {
		in.config.Metrics.hint(hintDropped)
		in.config.Log.Debug(
			"a hint is dropped: too many are open, or the daemon is being stopped", "function", f.GetName(), "request",
			id,
		)
		return nil
	}
	in.config.Metrics.hint(hintAccepted)
	return nil
}

func malformedHint() *problem.Problem {
	return problem.New(http.StatusBadRequest, "HintMalformed", "",
		"a hint names a request, a function with an input, and an input that the function's annotation makes")
}

// add returns false for a hint that is not followed: the request itself will fetch.
func (h *hints) add(id, function string, fetch func() []*objects.Input) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open[id] != nil {
		return true
	}
	if h.closed || !h.share.Take(function, 1) {
		return false
	}
	h.open[id] = &hint{function: function, inputs: fetch(), timer: time.AfterFunc(hintLife, func() { h.drop(id) })}
	return true
}

// drop ends the hint's own claim on the input.
func (h *hints) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release(id)
}

// release is drop; the caller holds mu.
func (h *hints) release(id string) {
	o, ok := h.open[id]
	if !ok {
		return
	}
	delete(h.open, id)
	h.share.Return(o.function, 1)
	o.timer.Stop()
	for _, input := range o.inputs {
		input.Release()
	}
}

func (h *hints) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for id := range h.open {
		h.release(id)
	}
}
