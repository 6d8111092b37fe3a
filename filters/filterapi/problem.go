package filterapi

import (
	"strconv"
	"strings"
)

// ProblemContentType is the media type of RFC 9457.
const ProblemContentType = "application/problem+json"

// ReasonInputReferenceMalformed is the title of the answer to a request that names an input
// wrongly.
const ReasonInputReferenceMalformed = "InputReferenceMalformed"

// Problem is an error that a filter, or the node's daemon, answers with, for the function's
// caller (RFC 9457).
type Problem struct {
	// Type is a URI reference to the reason's description in docs/reference/errors.md.
	Type string `json:"type"`
	// Title is the reason, one CamelCase word, the same as in `headstart status`.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Function is namespace/name.
	Function string `json:"function,omitempty"`
	// Field is what to fix: "header <name>", "query <name>", "path", an annotation or a field of
	// the manifest.
	Field string `json:"field,omitempty"`
	// Request is the value of x-headstart-request, if the request got that far.
	Request string `json:"request,omitempty"`
}

func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// JSON is the problem as an answer's body.
func (p *Problem) JSON() []byte {
	b := strconv.AppendInt([]byte(`{"status":`), int64(p.Status), 10)
	for _, member := range []struct {
		name, value string
		always      bool
	}{
		{"type", p.Type, true}, {"title", p.Title, true}, {"detail", p.Detail, true},
		{"function", p.Function, false}, {"field", p.Field, false}, {"request", p.Request, false},
	} {
		if member.value != "" || member.always {
			b = append(quote(append(b, ','), member.name), ':')
			b = quote(b, member.value)
		}
	}
	return append(b, '}')
}

// quote appends a string of JSON (RFC 8259, section 7).
func quote(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, c := range []byte(strings.ToValidUTF8(s, "\uFFFD")) {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// NewProblem returns a problem; status is an HTTP status.
func NewProblem(status int, reason, field, detail string) *Problem {
	return &Problem{Type: "https://headstart.dev/errors#" + reason, Title: reason, Status: status, Field: field, Detail: detail}
}
