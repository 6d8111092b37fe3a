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

// The schemes of references.
const (
	SchemeS3    = "s3"
	SchemeRedis = "redis"
	SchemeHTTP  = "http"
	SchemeHTTPS = "https"
)

// maxKey is S3's limit on the length of an object key, in bytes of UTF-8. It is enough for
// the keys and paths of other stores.
const maxKey = 1024

// Reference names one object in a store. Its zero value names none.
type Reference struct {
	Scheme string
	// Bucket is what the operator lists: a bucket, a keyspace, or a host with its port.
	Bucket string
	// Key is the rest: with Redis what follows "keyspace:" in the key, with HTTP what
	// follows the path's first slash.
	Key string
}

// String returns the form that ParseReference reads.
func (r Reference) String() string { return r.Scheme + "://" + r.Bucket + "/" + r.Key }

// place is what stands between a reference's scheme and its key.
type place struct {
	name string
	bad  func(string) string
	form string
}

var places = map[string]place{
	SchemeS3:    {"bucket", badBucket, "s3://bucket/key"},
	SchemeRedis: {"keyspace", badKeyspace, "redis://keyspace/key"},
	SchemeHTTP:  {"host", badHost, "http://host/path"},
	SchemeHTTPS: {"host", badHost, "https://host/path"},
}

// ParseReference reads s3://bucket/key, redis://keyspace/key, http://host/path or
// https://host/path. The key stands as it is: nothing in it is escaped, and a "?" or "#"
// belongs to it. What it refuses is a problem of status 400.
//
// A key is what the request's headers make it, and stores with a file system behind
// them exist: so a key with a "." or ".." segment is refused, although S3 has them.
func ParseReference(s string) (Reference, error) {
	scheme, rest, _ := strings.Cut(s, "://")
	p, ok := places[scheme]
	if !ok || rest == "" {
		return Reference{}, malformed("it must look like s3://bucket/key, redis://keyspace/key or https://host/path")
	}
	bucket, key, ok := strings.Cut(rest, "/")
	if !ok {
		return Reference{}, malformed("it has no key: it must look like " + p.form)
	}
	if why := p.bad(bucket); why != "" {
		return Reference{}, malformed(fmt.Sprintf("%s %.63q %s", p.name, bucket, why))
	}
	if why := badKey(key); why != "" {
		return Reference{}, malformed("the key " + why)
	}
	return Reference{Scheme: scheme, Bucket: bucket, Key: key}, nil
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

// keyspaceName has no colon: that is what ends the keyspace in a key of Redis, so that no
// keyspace is within another one.
var keyspaceName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// badKeyspace says what is wrong with a keyspace's name; "" is nothing.
func badKeyspace(name string) string {
	if !keyspaceName.MatchString(name) {
		return "must be 1 to 63 letters, digits, dots, hyphens and underscores, with a letter or digit at both ends"
	}
	return ""
}

// hostName is a name of the DNS or an IPv4 address, and a port if it is not the scheme's.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

// badHost says what is wrong with a host; "" is nothing.
func badHost(name string) string {
	if !hostName.MatchString(name) || strings.Contains(name, "..") {
		return "must be a host in lower case, with a port if it is not the scheme's own"
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
