package source

import (
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Name returns the references that templates make of a request, as the gateway's filter does: those
// of the inputs that the request names. target is the request's path and query as they came. What
// it refuses is a problem.
func Name(templates reference.Inputs, target string, h http.Header) (reference.Inputs, error) {
	t, err := reference.ParseTemplates(templates)
	if err != nil { // which the control plane took: of a kind that only a newer daemon knows
		return nil, Because(problem.New(http.StatusBadGateway, filterapi.ReasonInputReferenceMalformed, filterapi.AnnotationInput,
			"the node's daemon does not know this kind of reference; it is older than the control plane"), err)
	}
	refs, err := t.Expand(reference.Request{Header: h.Values, Target: target})
	if wrong, ok := errors.AsType[*reference.Error](err); ok {
		return nil, Misnamed(wrong.Field, wrong.Problem)
	}
	return refs, err
}

// ParseNamed reads the named references of a header, which a problem names.
func ParseNamed(header string) (reference.Inputs, error) {
	named, err := reference.ParseNamed(header)
	if err != nil {
		return nil, Misnamed("header "+filterapi.HeaderInputs, err.Error())
	}
	return named, nil
}

// Misnamed is a request of which a field, such as "header x-key", keeps its input's reference from
// being made, or makes a wrong one.
func Misnamed(field, why string) *problem.Problem {
	return problem.New(http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, field, field+" "+why)
}
