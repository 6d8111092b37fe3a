package sigv4_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// signing is a client that signs whatever a test tells it, and sends it. Unlike SDKs it can be wrong in one thing.
type signing struct {
	method, target, path, query string // target is sent, path and query are signed
	sent                        []string
	headers, names              string // signed
	payload                     string // signed
	date, scope                 string
	scheme, fields              string // of the Authorization header; fields has a verb for each of them
	body                        string
}

// inHeader is a request that is right.
func inHeader() *signing {
	return &signing{
		method: "GET", target: "/b/k", path: "/b/k",
		sent:    []string{"Host: h", "X-Amz-Date: 20130524T000000Z", "X-Amz-Content-Sha256: UNSIGNED-PAYLOAD"},
		headers: "host:h\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:20130524T000000Z\n",
		names:   "host;x-amz-content-sha256;x-amz-date", payload: "UNSIGNED-PAYLOAD",
		date: "20130524T000000Z", scope: "20130524/us-east-1/s3/aws4_request",
		scheme: "AWS4-HMAC-SHA256", fields: "Credential=%[1]s, SignedHeaders=%[2]s, Signature=%[3]s",
	}
}

// streaming is a request that is right, of a kind and with a body of so many bytes.
func streaming(kind string, decoded int, trailers ...string) *signing {
	s := inHeader()
	s.method, s.payload = "PUT", kind
	s.sent = append(s.sent[:2], "X-Amz-Content-Sha256: "+kind, fmt.Sprintf("X-Amz-Decoded-Content-Length: %d", decoded))
	s.headers = strings.Replace(s.headers, "UNSIGNED-PAYLOAD", kind, 1) +
		fmt.Sprintf("x-amz-decoded-content-length:%d\n", decoded)
	s.names += ";x-amz-decoded-content-length"
	if len(trailers) > 0 {
		s.sent = append(s.sent, "X-Amz-Trailer: "+strings.Join(trailers, ","))
		s.headers += "x-amz-trailer:" + strings.Join(trailers, ",") + "\n"
		s.names += ";x-amz-trailer"
	}
	return s
}

// header adds a header, which has to be sorted behind all others.
func (s *signing) header(name, value string) *signing {
	s.sent = append(s.sent, name+": "+value)
	s.headers += strings.ToLower(name) + ":" + value + "\n"
	s.names += ";" + strings.ToLower(name)
	return s
}

func (s *signing) signature() string {
	canonical := strings.Join([]string{s.method, s.path, s.query, s.headers, s.names, s.payload}, "\n")
	return hex.EncodeToString(hmacOf(s.key(), "AWS4-HMAC-SHA256\n"+s.date+"\n"+s.scope+"\n"+hashOf(canonical)))
}

func (s *signing) key() []byte {
	key := []byte("AWS4" + exampleSecret)
	for part := range strings.SplitSeq(s.scope, "/") {
		key = hmacOf(key, part)
	}
	return key
}

// raw is the request as it is sent.
func (s *signing) raw() string {
	all := append([]string{s.method + " " + s.target + " HTTP/1.1"}, s.sent...)
	if s.scheme != "" {
		fields := fmt.Sprintf(s.fields+"%.0[1]s%.0[2]s%.0[3]s", exampleID+"/"+s.scope, s.names, s.signature())
		all = append(all, "Authorization: "+s.scheme+" "+fields)
	}
	if s.body != "" {
		all = append(all, fmt.Sprintf("Content-Length: %d", len(s.body)))
	}
	return lines(all...) + s.body
}

// presigned is a URL that is right. The parameters are added to those that it needs, or take their place.
func presigned(params ...string) *signing {
	s := &signing{
		method: "GET", path: "/b/k", sent: []string{"Host: h"}, headers: "host:h\n", names: "host", payload: "UNSIGNED-PAYLOAD",
		date: "20130524T000000Z", scope: "20130524/us-east-1/s3/aws4_request",
	}
	return s.presign(params...)
}

func (s *signing) presign(params ...string) *signing {
	credential := strings.ReplaceAll(exampleID+"/"+s.scope, "/", "%2F")
	var all []string
	for _, p := range []string{
		"X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Credential=" + credential, "X-Amz-Date=" + s.date, "X-Amz-Expires=60",
		"X-Amz-SignedHeaders=" + strings.ReplaceAll(s.names, ";", "%3B"),
	} {
		name, _, _ := strings.Cut(p, "=")
		replaced := false
		for _, other := range params {
			if strings.HasPrefix(other, name+"=") {
				replaced = true
				all = append(all, other)
			}
		}
		if !replaced {
			all = append(all, p)
		}
	}
	for _, p := range params {
		if !strings.Contains(strings.Join(all, "&"), p) {
			all = append(all, p)
		}
	}
	s.query = strings.Join(all, "&")
	s.target = s.path + "?" + s.query + "&X-Amz-Signature=" + s.signature()
	return s
}

func hmacOf(key []byte, s string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(s))
	return h.Sum(nil)
}

func hashOf(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}
