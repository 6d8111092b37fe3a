package functionapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

// reference is the stored input of a call: what the caller names, or else what the
// function's template makes of the headers, as the gateway's filter does. Whether the
// function's store allows it is seen when it is fetched, as of all references.
func reference(h http.Header, f *nodeapi.Function) (string, error) {
	switch named := h.Values(headerInput); {
	case len(named) == 0:
		return expand(h, f)
	case !f.GetHasInput():
		return "", problem.New(http.StatusBadRequest, "InputNotTaken", headerInput, "the function takes no stored input: it has no annotation "+source.FieldInput)
	case len(named) > 1:
		return "", malformed(headerInput, "is given more than once")
	default:
		return checked(named[0])
	}
}

// checked returns a caller's reference if it is well-formed.
func checked(named string) (string, error) {
	if _, err := source.ParseReference(named); err != nil {
		p := *problem.Of(err)
		p.Field = headerInput
		return "", &p
	}
	return named, nil
}

func expand(h http.Header, f *nodeapi.Function) (string, error) {
	if f.GetInputTemplate() == "" {
		return "", nil
	}
	template, err := filterapi.ParseTemplate(f.GetInputTemplate())
	if err != nil {
		return "", nil // it is of a kind that only a newer node knows: as if nothing was named
	}
	repeated := ""
	ref, _, err := template.Expand(func(name string) (string, bool) {
		values := h.Values(name)
		if len(values) > 1 {
			repeated = name
		}
		return strings.Join(values, ""), len(values) > 0
	})
	if repeated != "" {
		return "", malformed(repeated, "is given more than once")
	}
	if wrong, ok := errors.AsType[*filterapi.ReferenceError](err); ok {
		return "", malformed(wrong.Header, wrong.Problem)
	}
	return ref, err
}

func malformed(header, why string) *problem.Problem {
	return problem.New(http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, "header "+header, "header "+header+" "+why)
}
