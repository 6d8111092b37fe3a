package functionapi

import (
	"net/http"
	"net/url"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// store makes a file in the directory of the sandbox's outputs an object.
func (h *handler) store(w http.ResponseWriter, r *http.Request, escaped string) {
	tag, err := h.stored(w, r, escaped)
	if err != nil {
		h.refuse(w, err, "")
		return
	}
	w.Header().Set("Etag", tag)
	w.WriteHeader(http.StatusNoContent)
}

func (h *handler) stored(w http.ResponseWriter, r *http.Request, escaped string) (tag string, err error) {
	if r.Method != http.MethodPost {
		return "", methodNotAllowed(w, http.MethodPost)
	}
	defer h.sandbox.calls.Add(-1)
	if h.sandbox.calls.Add(1) > CallsLimit {
		return "", errTooManyCalls
	}
	file, err := url.PathUnescape(escaped)
	to, failed := source.ParseReference(r.URL.Query().Get("to"))
	if err != nil || failed != nil || file == "" || to.Scheme != source.SchemeS3 {
		return "", problem.New(http.StatusBadRequest, "OutputMalformed", "",
			"an output is stored by "+outputPath+"<file>?to=s3://<bucket>/<key>, percent-encoded")
	}
	return h.server.config.Store(r.Context(), h.sandbox.id, file, to, r.Header)
}
