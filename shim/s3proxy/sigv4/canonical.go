package sigv4

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// param is a parameter of the query, decoded.
type param struct{ name, value string }

// parseQuery reads what S3 does: unlike url.ParseQuery it takes a semicolon as a character like others.
func parseQuery(raw string) ([]param, error) {
	if len(raw) > queryMost {
		return nil, bad("InvalidURI", "the query may have %d bytes", queryMost)
	}
	var params []param
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		value, err2 := url.QueryUnescape(value)
		if cmp.Or(err, err2) != nil {
			return nil, bad("InvalidURI", "the query is not percent-encoded")
		}
		params = append(params, param{name, value})
	}
	return params, nil
}

// canonical is the canonical request, as in "Signature Calculations for the Authorization Header: Transferring Payload
// in a Single Chunk" and "Authenticating Requests: Using Query Parameters".
func (c *claim) canonical(r *http.Request, query []param) (string, error) {
	headers, err := c.canonicalHeaders(r)
	if err != nil {
		return "", err
	}
	return strings.Join([]string{
		r.Method, canonicalPath(r.URL.Path), canonicalQuery(query), headers, c.signedHeaders, c.payload,
	}, "\n"), nil
}

// canonicalPath encodes a decoded path as S3 does: nothing twice, and all segments stay. An encoded slash is like a
// slash. The AWS SDK for Java signs a//b, and sends a/%2Fb.
func canonicalPath(path string) string {
	segments := strings.Split(cmp.Or(path, "/"), "/")
	for i, s := range segments {
		segments[i] = encode(s)
	}
	return strings.Join(segments, "/")
}

// encode is UriEncode of these pages.
func encode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// canonicalQuery leaves out the signature, which only presigned URLs have.
func canonicalQuery(query []param) string {
	var encoded []param
	for _, p := range query {
		if p.name != "X-Amz-Signature" {
			encoded = append(encoded, param{encode(p.name), encode(p.value)})
		}
	}
	slices.SortFunc(encoded, func(a, b param) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.value, b.value))
	})
	pairs := make([]string, len(encoded))
	for i, p := range encoded {
		pairs[i] = p.name + "=" + p.value
	}
	return strings.Join(pairs, "&")
}

func (c *claim) canonicalHeaders(r *http.Request) (string, error) {
	names := strings.Split(c.signedHeaders, ";")
	if len(names) > signedHeadersMost {
		return "", c.malformed("SignedHeaders may name %d headers", signedHeadersMost)
	}
	var lines strings.Builder
	for i, name := range names {
		if name != strings.ToLower(name) || i > 0 && names[i-1] >= name {
			return "", c.malformed("SignedHeaders has to name each header once, in lower case and sorted")
		}
		values := valuesOf(r, name)
		if len(values) == 0 {
			return "", forbidden("SignatureDoesNotMatch", "SignedHeaders names %.64q, which the request does not "+
				"have; check whether something on the way removes it", name)
		}
		for j, v := range values {
			words := strings.FieldsFunc(v, func(c rune) bool { return c == ' ' || c == '\t' })
			values[j] = strings.Join(words, " ")
		}
		lines.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	needed := []string{"host"}
	for _, key := range slices.Sorted(maps.Keys(r.Header)) {
		name := strings.ToLower(key)
		// S3 lets x-amz-content-sha256 be missing: the signature covers its value in any case.
		if strings.HasPrefix(name, "x-amz-") && (name != "x-amz-content-sha256" || r.Header.Get(key) != c.payload) {
			needed = append(needed, name)
		}
	}
	for _, name := range needed {
		if _, found := slices.BinarySearch(names, name); !found {
			return "", forbidden("AccessDenied", "the header %.64q is not signed; have the client sign it", name)
		}
	}
	return lines.String(), nil
}

// valuesOf returns what the client has sent, also of the headers that net/http removes.
func valuesOf(r *http.Request, name string) []string {
	switch values := r.Header[http.CanonicalHeaderKey(name)]; {
	case name == "host":
		return []string{r.Host}
	case name == "content-length" && r.ContentLength >= 0:
		return []string{strconv.FormatInt(r.ContentLength, 10)}
	case name == "transfer-encoding":
		return slices.Clone(r.TransferEncoding)
	case name == "expect" && len(values) == 0: // HTTP/2 removes it, and it has no other value
		return []string{"100-continue"}
	default:
		return slices.Clone(values)
	}
}

// signingKey is derived as in "Signature Version 4 signing process".
func signingKey(secret, date, region string) []byte {
	key := []byte("AWS4" + secret)
	for _, s := range []string{date, region, "s3", "aws4_request"} {
		key = mac(key, s)
	}
	return key
}

// sign is the signature of a string to sign, whose last lines depend on the algorithm.
func (s *Signed) sign(algorithm string, lines ...string) string {
	scope := s.time.Format(day) + "/" + s.Region + "/s3/aws4_request"
	lines = append([]string{algorithm, s.time.Format(stamp), scope}, lines...)
	return hex.EncodeToString(mac(s.key, strings.Join(lines, "\n")))
}

func mac(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// equal takes the same time wherever two texts differ.
func equal(a, b string) bool { return hmac.Equal([]byte(a), []byte(b)) }
