package learn

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Bounds of what is kept of a request. A part that is beyond them names nothing, as if the client had not sent it.
const (
	maxTarget     = 4096 // bytes: a key of S3 whose characters are all encoded, and a third of this for the rest
	maxSegments   = 16   // of the path
	maxParameters = 64
	// maxHeaders bounds the header's names before the refused ones are dropped. Browsers behind two proxies send 40.
	maxHeaders = 128
	// maxValue is a key of S3 whose characters are all encoded.
	maxValue       = 3 * reference.MaxKeyBytes
	maxHeaderName  = 64
	maxHeaderBytes = 16 << 10 // of all names and values
)

// refused are headers that describe the connection, the client or the hops, not an object.
var refused = []string{
	"b3", "baggage", "cache-control", "connection", "date", "expect", "forwarded", "from", "grpc-timeout", "host",
	"idempotency-key", "keep-alive", "max-forwards", "origin", "pragma", "priority", "range", "referer", "te",
	"traceparent", "tracestate", "trailer", "transfer-encoding", "upgrade", "upgrade-insecure-requests",
	"user-agent", "via", "x-correlation-id", "x-real-ip", "x-request-id", "x-request-start", "x-requested-with",
}

var refusedPrefixes = []string{
	reference.OwnHeaders, "accept", "access-control-", "content-", "if-", "proxy-", "sec-", "x-amz-", "x-b3-",
	"x-envoy-", "x-forwarded-", "x-k8s-",
}

// secrets are parts of the names of headers and parameters that hold credentials. References are in logs and traces.
var secrets = []string{
	"apikey", "api-key", "api_key", "authentic", "authoriz", "bearer", "cookie", "credential", "csrf", "jwt", "passw",
	"secret", "session", "signature", "token",
}

// Request is what a prediction may be made of. NewRequest keeps nothing else of a request.
type Request struct {
	target  string
	headers map[string][]string // by name in lower case, each with one value
}

// NewRequest copies the target (path and query as they came) and those headers that a template may name. A request
// takes 24 KiB at most. Credentials in headers are not copied.
func NewRequest(target string, header http.Header) Request {
	r := Request{headers: map[string][]string{}}
	path, query, _ := strings.Cut(target, "?")
	parameters := strings.Count(query, "&") + 1
	if len(target) <= maxTarget && strings.Count(path, "/") <= maxSegments && parameters <= maxParameters {
		r.target = strings.Clone(target)
	}
	if len(header) > maxHeaders {
		return r
	}
	bytes := 0
	for name, values := range header {
		if len(values) != 1 || values[0] == "" || len(values[0]) > maxValue || len(name) > maxHeaderName {
			continue
		}
		name := strings.ToLower(name)
		if !mayName(name) {
			continue
		}
		if bytes += len(name) + len(values[0]); bytes > maxHeaderBytes {
			clear(r.headers)
			break
		}
		r.headers[name] = []string{strings.Clone(values[0])} // a part would keep the whole header in memory
	}
	return r
}

// mayName tells whether a template may name the header.
func mayName(name string) bool {
	if slices.Contains(refused, name) || isSecret(name) {
		return false
	}
	return !slices.ContainsFunc(refusedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func isSecret(name string) bool {
	return slices.ContainsFunc(secrets, func(s string) bool { return strings.Contains(name, s) })
}

// expand returns the reference that the template makes of the request. There is none if the request lacks a field.
func (r Request) expand(t reference.Template) (string, bool) {
	ref, ok, err := t.Expand(reference.Request{
		Target: r.target,
		Header: func(name string) []string { return r.headers[name] },
	})
	return ref, ok && err == nil
}

// segments are those of the path; nil if the request has none.
func (r Request) segments() []string {
	path, _, _ := strings.Cut(r.target, "?")
	path, ok := strings.CutPrefix(path, "/")
	if !ok || path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
