package ingress

import (
	"net/http"
	"regexp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// refusalPath is where filters post what they refused; all other paths are hints'.
	refusalPath = "/v1/refusal"
	// refusedFieldBytes bounds a refusal's field: a template of an input reference, which
	// has all of its header names, is no longer.
	refusedFieldBytes = 2048
)

// refusedReasons are what a filter may refuse a request for, each with what the
// operator is told after the field. Nothing that a client wrote gets into an event.
var refusedReasons = map[string]string{
	"InputReferenceMalformed": " of a request does not make an input reference: it is missing, given twice, or not fit for a bucket name or object key; " +
		"send it as headstart.dev/input needs it",
}

// refusedField is the header that a refused request is to mend, or those that only
// together are wrong, at most as many as a template may name.
var refusedField = regexp.MustCompile("^header [a-z0-9!#$%&'*+.^_`|~-]+(, [a-z0-9!#$%&'*+.^_`|~-]+){0,7}$")

// refusal tells the operator of a request that a filter answered by itself.
func (in *Ingress) refusal(f *nodeapi.Function, reason, field string) error {
	words, known := refusedReasons[reason]
	if !known || !f.GetHasInput() || len(field) > refusedFieldBytes || !refusedField.MatchString(field) {
		return problem.New(http.StatusBadRequest, "RefusalMalformed", "", "a refusal names a function with an input, a known reason, and the header to fix")
	}
	in.log.Debug("the filter refused a request", "function", f.GetName(), "reason", reason, "field", field)
	in.controlPlane.Event(&nodeapi.Event{Function: f.GetName(), Reason: reason, Message: field + words, Field: field})
	return nil
}
