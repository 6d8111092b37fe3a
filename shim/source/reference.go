package source

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// SchemeS3 is the scheme of objects behind the S3 API.
const SchemeS3 = "s3"

// maxKey is S3's limit on the length of an object key, in bytes of UTF-8.
const maxKey = 1024

// Reference names one object in a store. Its zero value names none.
type Reference struct {
	Scheme, Bucket, Key string
}

// String returns the form that ParseReference reads.
func (r Reference) String() string { return r.Scheme + "://" + r.Bucket + "/" + r.Key }

// ParseReference reads s3://bucket/key. The key stands as it is: nothing in it is
// escaped, and a "?" or "#" belongs to it. What it refuses is a problem of status 400.
//
// A key is what the request's headers make it, and stores with a file system behind
// them exist: so a key with a "." or ".." segment is refused, although S3 has them.
func ParseReference(s string) (Reference, error) {
	rest, ok := strings.CutPrefix(s, SchemeS3+"://")
	if !ok {
		return Reference{}, malformed("it must look like s3://bucket/key")
	}
	bucket, key, ok := strings.Cut(rest, "/")
	if !ok {
		return Reference{}, malformed("it has no key: it must look like s3://bucket/key")
	}
	if why := badBucket(bucket); why != "" {
		return Reference{}, malformed(fmt.Sprintf("bucket %.63q %s", bucket, why))
	}
	if why := badKey(key); why != "" {
		return Reference{}, malformed("the key " + why)
	}
	return Reference{Scheme: SchemeS3, Bucket: bucket, Key: key}, nil
}

// The rules of "General purpose bucket naming rules" in the Amazon S3 user guide.
// Names with a reserved prefix or suffix are other things than buckets (access points,
// directory buckets), which clients reach at other hosts than the operator named.
var (
	bucketName       = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	reservedPrefixes = []string{"xn--", "sthree-", "amzn-s3-demo-"}
	reservedSuffixes = []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"}
)

// badBucket says what is wrong with a bucket's name; "" is nothing.
func badBucket(name string) string {
	if !bucketName.MatchString(name) {
		return "must be 3 to 63 lower-case letters, digits, dots and hyphens, with a letter or digit at both ends"
	}
	if strings.Contains(name, "..") {
		return "must not have two dots in a row"
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return "must not be an IP address"
	}
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return "has the reserved prefix " + prefix
		}
	}
	for _, suffix := range reservedSuffixes {
		if strings.HasSuffix(name, suffix) {
			return "has the reserved suffix " + suffix
		}
	}
	return ""
}

// badKey says what is wrong with an object's key; "" is nothing.
func badKey(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return fmt.Sprintf("is longer than %d bytes", maxKey)
	case !utf8.ValidString(key):
		return "is not UTF-8"
	case strings.ContainsFunc(key, unicode.IsControl):
		return "has a control character"
	case key[0] == '/':
		return "begins with a slash"
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "." || segment == ".." {
			return fmt.Sprintf("has the path segment %q", segment)
		}
	}
	return ""
}

func malformed(why string) error {
	return problem.New(http.StatusBadRequest, "InputReferenceMalformed", FieldInput, "the input reference is malformed: "+why)
}
