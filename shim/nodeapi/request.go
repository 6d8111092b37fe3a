package nodeapi

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
)

// requestID is what the id of a request looks like, as filters/filterapi has it.
var requestID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// NewRequestID returns an id for a request that no filter has given one: like a filter's it is
// nobody else's, and nobody guesses it.
func NewRequestID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// IsRequestID tells whether s looks like the id of a request.
func IsRequestID(s string) bool { return requestID.MatchString(s) }
