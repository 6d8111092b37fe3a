package ingress

import (
	"net/http"
	"regexp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// refusedReasons are what a filter may refuse a request for, each with what the
// operator is told after the field. Nothing that a client wrote gets into an event.
var refusedReasons = map[string]string{
	filterapi.ReasonInputReferenceMalformed: " of a request does not make an input reference: it is missing, given twice, or not fit for a bucket name or object key; " +
		"send it as headstart.dev/input needs it",
}

// refusedField is what of a refused request is wrong.
var refusedField = regexp.MustCompile("^" + reference.FieldPattern() + "$")

// refusal tells the operator of a request that a filter answered by itself.
func (in *Ingress) refusal(f *nodeapi.Function, h http.Header) error {
	if !isRefusal(f, h) {
		return malformedRefusal()
	}
	reason, field := h.Get(filterapi.HeaderReason), h.Get(filterapi.HeaderField)
	in.config.Log.Debug("the filter refused a request", "function", f.GetName(), "reason", reason, "field", field)
	in.config.ControlPlane.Event(&nodeapi.Event{
		Function: f.GetName(), Reason: reason, Message: field + refusedReasons[reason], Field: field,
	})
	return nil
}

// isRefusal tells whether what a filter says is one.
func isRefusal(f *nodeapi.Function, h http.Header) bool {
	_, known := refusedReasons[h.Get(filterapi.HeaderReason)]
	field := h.Get(filterapi.HeaderField)
	return known && f.TakesInput() && len(field) <= reference.MaxTemplateBytes && refusedField.MatchString(field)
}

func malformedRefusal() *problem.Problem {
	return problem.New(http.StatusBadRequest, "RefusalMalformed", "",
		"a refusal names a function with an input, a known reason, and the header, parameter or path to fix")
}
