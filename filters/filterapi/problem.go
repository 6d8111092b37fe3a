package filterapi

// ProblemContentType is the media type of RFC 9457.
const ProblemContentType = "application/problem+json"

// ReasonInputReferenceMalformed is the title of the answer to a request whose headers
// name no object.
const ReasonInputReferenceMalformed = "InputReferenceMalformed"

// Problem is an error that a filter answers with, for the function's caller (RFC
// 9457). The node's daemon answers with the same fields.
type Problem struct {
	// Type is a URI reference to the reason's description in docs/reference/errors.md.
	Type string `json:"type"`
	// Title is the reason, one CamelCase word.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Function is namespace/name.
	Function string `json:"function,omitempty"`
	// Field is the header to mend, as "header <name>".
	Field string `json:"field,omitempty"`
	// Request is the value of x-headstart-request, if the request got that far.
	Request string `json:"request,omitempty"`
}

// NewProblem returns a problem; status is an HTTP status.
func NewProblem(status int, reason, field, detail string) *Problem {
	return &Problem{Type: "https://headstart.dev/errors#" + reason, Title: reason, Status: status, Field: field, Detail: detail}
}
