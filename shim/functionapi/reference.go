package functionapi

import (
	"net/http"
	"net/url"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

// reference is the stored input of a call: what the caller names, or else what the
// function's template makes of the call, as the gateway's filter does. Whether the
// function's store allows it is seen when it is fetched, as of all references.
func reference(target *url.URL, h http.Header, f *nodeapi.Function) (string, error) {
	switch named := h.Values(filterapi.HeaderInput); {
	case len(named) == 0:
		return source.Name(f.GetInputTemplate(), target.RequestURI(), h)
	case !f.GetHasInput():
		return "", problem.New(http.StatusBadRequest, "InputNotTaken", filterapi.HeaderInput, "the function takes no stored input: it has no annotation "+filterapi.AnnotationInput)
	case len(named) > 1:
		return "", source.Misnamed("header "+filterapi.HeaderInput, "is given more than once")
	default:
		return checked(named[0])
	}
}

// checked returns a caller's reference if it is well-formed.
func checked(named string) (string, error) {
	if _, err := source.ParseReference(named); err != nil {
		p := *problem.Of(err)
		p.Field = filterapi.HeaderInput
		return "", &p
	}
	return named, nil
}
