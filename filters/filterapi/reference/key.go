package reference

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxKeyBytes is the longest object key of S3 (Amazon S3 User Guide, "Creating object key
// names"). It is enough for the keys and paths of other stores.
const MaxKeyBytes = 1024

// keyTextProblem completes "it ..." for text that may not be part of an object key.
func keyTextProblem(text string) string {
	switch {
	case text == "":
		return "is empty"
	case len(text) > MaxKeyBytes:
		return fmt.Sprintf("is longer than %d bytes", MaxKeyBytes)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	case strings.ContainsFunc(text, unicode.IsControl):
		return "has control characters"
	}
	return ""
}

// keyProblem completes "it ..." for an object key that is not one, or that a client, a proxy or
// a file system on the way may take for another: stores with a file system behind them exist,
// so a key with a "." or ".." segment is refused, although S3 has them.
func keyProblem(key string) string {
	if problem := keyTextProblem(key); problem != "" {
		return problem
	}
	if strings.HasPrefix(key, "/") {
		return "begins with a slash"
	}
	// A header's value loses the white space at its end on the way (RFC 9110, 5.5).
	if strings.HasSuffix(key, " ") {
		return "ends with a space"
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "." || segment == ".." {
			return fmt.Sprintf("has the path segment %q", segment)
		}
	}
	return ""
}
