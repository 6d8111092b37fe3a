package source

import (
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Name returns the reference that a template makes of a request, as the gateway's filter does;
// empty if the request names no input. target is the request's path and query as they came. What
// it refuses is a problem.
func Name(template, target string, h http.Header) (string, error) {
	if template == "" {
		return "", nil
	}
	t, err := reference.ParseTemplate(template)
	if err != nil { // which the control plane took: of a kind that only a newer daemon knows
		return "", Because(problem.New(http.StatusBadGateway, filterapi.ReasonInputReferenceMalformed, filterapi.AnnotationInput,
			"the node's daemon does not know this kind of reference; it is older than the control plane"), err)
	}
	ref, _, err := t.Expand(reference.Request{Header: h.Values, Target: target})
	if wrong, ok := errors.AsType[*reference.Error](err); ok {
		return "", Misnamed(wrong.Field, wrong.Problem)
	}
	return ref, err
}

// Misnamed is a request of which a field, such as "header x-key", keeps its input's reference from
// being made, or makes a wrong one.
func Misnamed(field, why string) *problem.Problem {
	return problem.New(http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, field, field+" "+why)
}
