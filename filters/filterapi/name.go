package filterapi

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of S3 names, from the Amazon S3 User Guide ("General purpose bucket naming
// rules", "Creating object key names").
const (
	minBucketBytes = 3
	maxBucketBytes = 63
	// MaxKeyBytes is the longest object key.
	MaxKeyBytes = 1024
)

// Affixes that S3 reserves: some of these names stand for something else than a
// bucket, such as an access point, with rules of its own.
var (
	reservedBucketPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedBucketSuffixes = []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}
)

// bucketProblem completes "it ..." for a name that is no general purpose bucket's.
func bucketProblem(name string) string {
	if len(name) < minBucketBytes || len(name) > maxBucketBytes {
		return fmt.Sprintf("must be %d to %d characters long", minBucketBytes, maxBucketBytes)
	}
	for i := range len(name) {
		if c := name[i]; !isLowerAlphanumeric(c) && c != '.' && c != '-' {
			return "may only hold lower-case letters, digits, dots and hyphens"
		}
	}
	if !isLowerAlphanumeric(name[0]) || !isLowerAlphanumeric(name[len(name)-1]) {
		return "must begin and end with a letter or digit"
	}
	if strings.Contains(name, "..") {
		return "must not hold two dots in a row"
	}
	if strings.Count(name, ".") == 3 && strings.Trim(name, "0123456789.") == "" {
		return "must not look like an IP address"
	}
	for _, p := range reservedBucketPrefixes {
		if strings.HasPrefix(name, p) {
			return "must not begin with " + p + ", which S3 reserves"
		}
	}
	for _, s := range reservedBucketSuffixes {
		if strings.HasSuffix(name, s) {
			return "must not end with " + s + ", which S3 reserves"
		}
	}
	return ""
}

func isLowerAlphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// Lengths of the other stores' names.
const (
	// maxKeyspaceBytes is a bucket's: both are names that an operator lists.
	maxKeyspaceBytes = 63
	// maxPortDigits is enough for 65535.
	maxPortDigits = 5
)

// keyspaceProblem completes "it ..." for a name that is no keyspace's. It has no colon,
// which ends the keyspace in a key of Redis.
func keyspaceProblem(name string) string {
	if name == "" || len(name) > maxKeyspaceBytes {
		return fmt.Sprintf("must be 1 to %d characters long", maxKeyspaceBytes)
	}
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return "may only hold letters, digits, dots, hyphens and underscores"
		}
	}
	if !isAlphanumeric(name[0]) || !isAlphanumeric(name[len(name)-1]) {
		return "must begin and end with a letter or digit"
	}
	return ""
}

// hostProblem completes "it ..." for what is not host or host:port. Whether the host is one
// of the operator's is known where the list is; here it only must not be anything else.
func hostProblem(name string) string {
	host, port, hasPort := strings.Cut(name, ":")
	switch {
	case host == "" || len(host) > maxHostBytes:
		return fmt.Sprintf("must have a host of 1 to %d characters", maxHostBytes)
	case strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return "may only hold lower-case letters, digits, dots and hyphens, and a port"
	case !isLowerAlphanumeric(host[0]) || !isLowerAlphanumeric(host[len(host)-1]):
		return "must begin and end with a letter or digit"
	case strings.Contains(host, ".."):
		return "must not hold two dots in a row"
	case hasPort && (port == "" || len(port) > maxPortDigits || port[0] == '0' || strings.Trim(port, "0123456789") != ""):
		return "must have a port of 1 to 65535, or none"
	}
	return ""
}

func isAlphanumeric(c byte) bool { return isLowerAlphanumeric(c) || c >= 'A' && c <= 'Z' }

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

// keyProblem completes "it ..." for an object key that is not one, or that a client,
// a proxy or a file system on the way may take for another.
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
