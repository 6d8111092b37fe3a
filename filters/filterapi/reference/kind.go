// Package reference is the grammar of input references: scheme://bucket/key, the templates that
// make them of requests, and the names in them. The filter, the daemon and the control plane
// read references by it; the admission policies, the schema of the chart's values and the
// reference pages are made of it or held against it. It is part of the filters' module, so it
// imports little: regular expressions are text here.
package reference

import "strings"

// The schemes of references.
const (
	S3    = "s3"
	Redis = "redis"
	HTTP  = "http"
	HTTPS = "https"
)

// Kind is a kind of reference.
type Kind struct {
	// Scheme is what stands before "://".
	Scheme string
	// Bucket are the names that may follow: of buckets with S3, of keyspaces with Redis, hosts
	// with HTTP. The grammar calls all of them buckets: what the operator lists.
	Bucket Names
	// Form is how the reference page writes the kind, Store what kind of store has it, and Input what is
	// read, in Markdown.
	Form, Store, Input string
}

// The names of buckets. Hosts are as the DNS bounds them (RFC 1035, section 2.3.4). A keyspace
// is as long as a bucket: both are names that an operator lists. It has no colon, which ends the
// keyspace in a key of Redis, so no keyspace is within another one.
var (
	S3Buckets = Names{
		// "General purpose bucket naming rules" in the Amazon S3 User Guide. Names with a reserved
		// affix are other things than buckets, such as access points, with hosts of their own.
		Like: "videos", Shortest: 3, Longest: 63,
		inside: "a-z0-9.-", ends: "a-z0-9", words: "lower-case letters, digits, dots and hyphens",
		singleDots: true, noAddress: true,
		prefixes: []string{"xn--", "sthree-", "amzn-s3-demo-"},
		suffixes: []string{"-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"},
	}
	RedisBuckets = Names{
		Like: "jobs, what stands before the first colon of the keys", Shortest: 1, Longest: 63,
		inside: "A-Za-z0-9._-", ends: "A-Za-z0-9", words: "letters, digits, dots, hyphens and underscores",
	}
	HTTPBuckets = Names{
		Like: "models.example.com, or with a port like 10.0.0.7:8080", Shortest: 1, Longest: 253,
		inside: "a-z0-9.-", ends: "a-z0-9", words: "lower-case letters, digits, dots and hyphens, and a port",
		singleDots: true, port: true,
	}
)

const urlInput = "the URL's content. A `?` belongs to the path"

// kinds are all that references may be.
var kinds = []Kind{
	{S3, S3Buckets, "s3://bucket/key", S3, "an object"},
	{Redis, RedisBuckets, "redis://keyspace/key", Redis, "the string with the key `keyspace:key`"},
	{HTTP, HTTPBuckets, "http://host:port/path", HTTP, urlInput},
	{HTTPS, HTTPBuckets, "https://host/path", HTTP, urlInput},
}

// Kinds returns all kinds.
func Kinds() []Kind { return append([]Kind(nil), kinds...) }

// cutKind returns the kind of a reference or template, and what follows the scheme.
func cutKind(s string) (Kind, string, bool) {
	for _, k := range kinds {
		if rest, ok := strings.CutPrefix(s, k.Scheme+"://"); ok {
			return k, rest, true
		}
	}
	return Kind{}, "", false
}

// Beginning is a regular expression (RE2) of what all references begin with.
func Beginning() string {
	schemes := make([]string, len(kinds))
	for i, k := range kinds {
		schemes[i] = k.Scheme
	}
	return "(" + strings.Join(schemes, "|") + ")://"
}

// Userinfo is a regular expression (RE2) of the beginning of what has userinfo where a reference
// has its bucket, with or without a scheme.
func Userinfo() string { return "^(" + Beginning() + ")?[^/]*@" }

// NoKey is said of references that lack a key. CEL says the same.
const NoKey = "has no key: write it like scheme://bucket/key"

// OtherStore is said of references of no kind. CEL says the same.
func OtherStore() string {
	var schemes string
	for i, k := range kinds {
		switch {
		case i == len(kinds)-1:
			schemes += " or "
		case i > 0:
			schemes += ", "
		}
		schemes += k.Scheme + "://"
	}
	return "must start with " + schemes + ": no other store is supported"
}
