// Package problem is the one form in which the node tells a caller what went wrong:
// problem details for HTTP (RFC 9457).
package problem

import (
	"encoding/json"
	"errors"
	"net/http"
)

// ContentType is the media type of RFC 9457.
const ContentType = "application/problem+json"

// Problem is an error with words for the function's owner. It never holds a secret
// or a path of the node.
type Problem struct {
	// Type is a URI reference to the reason's description in docs/reference/errors.md.
	Type string `json:"type"`
	// Title is the reason, one CamelCase word, the same as in `headstart status`.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Function is namespace/name.
	Function string `json:"function,omitempty"`
	// Field is the annotation, header or manifest field to mend.
	Field string `json:"field,omitempty"`
	// Request is the value of x-headstart-request.
	Request string `json:"request,omitempty"`
}

// New returns a problem; status is an HTTP status, field may be empty.
func New(status int, reason, field, detail string) *Problem {
	return &Problem{Type: "https://headstart.dev/errors#" + reason, Title: reason, Status: status, Field: field, Detail: detail}
}

// Reasons that say that an instance ended before it got a request, and nothing against
// sending that to another.
const (
	ReasonInstanceGone    = "InstanceGone"
	ReasonInstanceStopped = "InstanceStopped"
)

// TooLate is why an instance ended, told to a request that came to it afterwards. Another
// instance can be had for that one: whoever bound it had not heard of the end yet.
type TooLate struct{ *Problem }

// Unwrap returns the problem, for Of.
func (l TooLate) Unwrap() error { return l.Problem }

// InstanceGone is the problem of a request whose instance is no more, or is not known.
func InstanceGone() *Problem {
	return New(http.StatusServiceUnavailable, ReasonInstanceGone, "", "the instance that was to answer is gone; try again")
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// Of returns the problem in err's chain, or an Internal one that says nothing of err:
// its text may name paths of the node.
func Of(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	return New(http.StatusInternalServerError, "Internal", "", "the node could not handle the request; its log says why")
}

// Write answers with err as problem details, for one function and request.
func Write(w http.ResponseWriter, err error, function, request string) {
	p := *Of(err)
	p.Function, p.Request = function, request
	w.Header().Set("Content-Type", ContentType)
	w.WriteHeader(p.Status)
	// The caller is gone if this fails; there is nobody left to tell.
	_ = json.NewEncoder(w).Encode(&p)
}
