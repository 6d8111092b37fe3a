// Package problem is the one form in which the node tells a caller what went wrong:
// problem details for HTTP (RFC 9457).
package problem

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Problem is an error with words for the operator and the function's owner. It never holds a secret
// or a path of the node. Write tells a caller less.
type Problem = filterapi.Problem

// New returns a problem; status is an HTTP status, field may be empty.
func New(status int, reason Reason, field, detail string) *Problem {
	return filterapi.NewProblem(status, string(reason), field, detail)
}

// TooLate is why an instance ended, told to a request that came to it afterwards. Another
// instance can be had for that one: whoever bound it had not heard of the end yet.
type TooLate struct{ *Problem }

// Unwrap returns the problem, for Of.
func (l TooLate) Unwrap() error { return l.Problem }

// InstanceGone is the problem of a request whose instance is no more, or is not known.
func InstanceGone() *Problem {
	return New(http.StatusServiceUnavailable, ReasonInstanceGone, "", "the instance that was to answer is gone; try again")
}

// Of returns the problem in err's chain, or an Internal one that says nothing of err:
// its text may name paths of the node.
func Of(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return New(http.StatusInternalServerError, "Internal", "", "the node could not handle the request; its log says why")
}

// titleMost is longer than any title, in bytes.
const titleMost = 64

// IsTitle tells whether a text that somebody else calls a title can be one: a word in CamelCase,
// which metrics and URLs can have.
func IsTitle(s string) bool {
	for i, c := range []byte(s) {
		if upper := 'A' <= c && c <= 'Z'; !upper && (i == 0 || c < 'a' || c > 'z') {
			return false
		}
	}
	return s != "" && len(s) <= titleMost
}

// open are the titles whose details a caller gets: those of what the caller itself has sent, and of what
// may simply be sent again. All others may speak of stores, objects, nodes, other callers and the
// function's program, and any stranger may be the caller.
var open = map[Reason]bool{
	ReasonDaemonStopping: true, ReasonInstanceGone: true,
	ReasonDuplicateRequest: true, filterapi.ReasonInputReferenceMalformed: true, "RequestIDMalformed": true,
	"HintMalformed": true, "RefusalMalformed": true,
	// of the function's own socket
	"EndpointUnknown": true, "MethodNotAllowed": true, "RequestUnknown": true, "NoInput": true,
	"RangeNotSatisfiable": true,
	"CallMalformed":       true, "CallNotAllowed": true, "InputNotTaken": true, "CallDepthExceeded": true,
	"TooManyReads": true, "TooManyCalls": true,
	// of a server outside, whose name the workflow has
	"DestinationFailed": true,
	// of a workflow's request with a key
	"RunInProgress": true, "RunTakenOver": true, "IdempotencyKeyReused": true, "IdempotencyKeyMalformed": true,
	"OutputMalformed": true, "NoOutput": true, "OutputUnknown": true, "OutputNotStored": true,
}

// ForCaller is as much of a problem as a caller gets, for one function and request. The rest is in the
// function's event, the log and the trace.
func ForCaller(err error, function, request string) *Problem {
	p := *Of(err)
	p.Function, p.Request = function, request
	if !open[Reason(p.Title)] {
		p.Detail = "the details are for the operator, in `headstart status` and the node's log"
		if request != "" {
			p.Detail += ", by this request's id"
		}
	}
	return &p
}

// Write answers with err as problem details, for one function and request.
func Write(w http.ResponseWriter, err error, function, request string) {
	p := ForCaller(err, function, request)
	w.Header().Set("Content-Type", filterapi.ProblemContentType)
	w.WriteHeader(p.Status)
	// The caller is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(p)
}
