package source

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Name returns the reference that a template makes of a request's headers, as the gateway's
// filter does; empty if the request names no input. A header that is there twice is refused: the
// function might read the other one. What it refuses is a problem.
func Name(template string, h http.Header) (string, error) {
	if template == "" {
		return "", nil
	}
	t, err := reference.ParseTemplate(template)
	if err != nil { // which the control plane took: of a kind that only a newer daemon knows
		return "", Because(problem.New(http.StatusBadGateway, filterapi.ReasonInputReferenceMalformed, filterapi.AnnotationInput,
			"the node's daemon does not know this kind of reference; it is older than the control plane"), err)
	}
	repeated := ""
	ref, _, err := t.Expand(func(name string) (string, bool) {
		values := h.Values(name)
		if len(values) > 1 {
			repeated = name
		}
		return strings.Join(values, ""), len(values) > 0
	})
	if repeated != "" {
		return "", Misnamed(repeated, "is given more than once")
	}
	if wrong, ok := errors.AsType[*reference.Error](err); ok {
		return "", Misnamed(wrong.Header, wrong.Problem)
	}
	return ref, err
}

// Misnamed is a request whose header keeps its input's reference from being made, or makes a
// wrong one.
func Misnamed(header, why string) *problem.Problem {
	return problem.New(http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, "header "+header, "header "+header+" "+why)
}
