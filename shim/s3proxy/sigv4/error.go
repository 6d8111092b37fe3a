package sigv4

import (
	"fmt"
	"net/http"
)

// Error is a refusal. Clients of S3 act on Code and Status (Amazon S3 API Reference, "Error responses"). Message
// names what to fix, and never holds a signature, a secret or a token.
type Error struct {
	Code    string
	Status  int
	Message string
}

// Error returns the code and the message.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// bad refuses a request that is malformed.
func bad(code, format string, args ...any) error {
	return &Error{Code: code, Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// forbidden refuses a request whose signer is not the one that it names, or not allowed to send it.
func forbidden(code, format string, args ...any) error {
	return &Error{Code: code, Status: http.StatusForbidden, Message: fmt.Sprintf(format, args...)}
}
