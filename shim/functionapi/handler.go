package functionapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// What a socket has.
const (
	inputPath  = "/input/"
	callPath   = "/call/"
	outputPath = "/output/"
)

// handler answers on one sandbox's socket.
type handler struct {
	server  *Server
	sandbox *sandbox
	calls   http.Handler
}

// ServeHTTP implements http.Handler. Paths are taken as they are: what follows a function's
// name is that function's.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if request, ok := strings.CutPrefix(path, inputPath); ok {
		h.read(w, r, request)
		return
	}
	target, calls := strings.CutPrefix(path, callPath)
	file, stores := strings.CutPrefix(path, outputPath)
	if calls || stores {
		if err := h.turn(r); err != nil {
			h.refuse(w, err, "")
			return
		}
	}
	switch {
	case calls:
		h.call(w, r, target)
		return
	case stores:
		h.store(w, r, file)
		return
	}
	h.refuse(w, problem.New(http.StatusNotFound, "EndpointUnknown", "",
		"the socket has "+inputPath+"<request>[/<name>], "+callPath+"<function> and "+outputPath+"<file> only"), "")
}

// turn waits until what the sandbox does may have effects. So many may wait as may be called.
func (h *handler) turn(r *http.Request) error {
	defer h.sandbox.calls.Add(-1)
	if h.sandbox.calls.Add(1) > CallsLimit {
		return errTooManyCalls
	}
	h.server.Works(h.sandbox.id)
	return h.server.deliveries.turn(r.Context(), h.sandbox.id, nil)
}

// refuse answers with what is wrong with a request, and returns its reason.
func (h *handler) refuse(w http.ResponseWriter, err error, function string) (reason string) {
	p := problem.Of(err)
	log := h.server.config.Log.With("instance", h.sandbox.id, "reason", p.Title)
	if p.Status == http.StatusInternalServerError {
		log.Error("a function's request to its socket failed", "error", err)
	} else {
		log.Debug("a function's request to its socket is refused", "error", err)
	}
	problem.Write(w, p, function, "")
	return p.Title
}

func methodNotAllowed(w http.ResponseWriter, allowed ...string) error {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return problem.New(http.StatusMethodNotAllowed, "MethodNotAllowed", "", fmt.Sprintf("use %s here", strings.Join(allowed, " or ")))
}
