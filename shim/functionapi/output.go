package functionapi

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// OutputsOfNode is how many outputs of all sandboxes of a node are being stored at a time, which namespaces share: further
// ones wait. Each is read from one end to the other by the daemon.
const OutputsOfNode = 64

// store makes a file in the directory of the sandbox's outputs an object. While another daemon ends, which had the socket
// before, it is that one's: the shim has handed the directory to it.
func (h *handler) store(w http.ResponseWriter, r *http.Request, escaped string) {
	own := func(w http.ResponseWriter) {
		tag, err := h.stored(w, r, escaped)
		reason := resultOK
		if err != nil {
			reason = h.refuse(w, err, "")
		} else {
			w.Header().Set("Etag", tag)
			w.WriteHeader(http.StatusNoContent)
		}
		h.server.config.Metrics.outputs.WithLabelValues(reason).Inc()
	}
	if h.sandbox.previous.Load() {
		h.askPrevious(w, r, own)
		return
	}
	own(w)
}

func (h *handler) stored(w http.ResponseWriter, r *http.Request, escaped string) (tag string, err error) {
	if r.Method != http.MethodPost {
		return "", methodNotAllowed(w, http.MethodPost)
	}
	malformed := func(why string) error {
		return problem.New(http.StatusBadRequest, "OutputMalformed", "", why+": an output is stored by POST "+outputPath+
			"<file>?to=s3://<bucket>/<key>, percent-encoded and without a body")
	}
	file, err := url.PathUnescape(escaped)
	to, failed := source.ParseReference(r.URL.Query().Get("to"))
	switch {
	case err != nil || file == "":
		return "", malformed("the path names no file")
	case failed != nil:
		return "", malformed("to: " + problem.Of(failed).Detail)
	case to.Scheme != source.SchemeS3:
		return "", malformed("to names no object of S3")
	case r.ContentLength != 0:
		return "", malformed("the request has a body")
	}
	defer h.sandbox.calls.Add(-1)
	if h.sandbox.calls.Add(1) > CallsLimit {
		return "", errTooManyCalls
	}
	leave, err := h.server.outputs.Wait(fair.For(r.Context(), h.sandbox.namespace))
	if err != nil {
		return "", fmt.Errorf("waiting to store an output: %w", err) // the program has gone
	}
	defer leave()
	return h.server.config.Store(r.Context(), h.sandbox.id, file, to, r.Header)
}
