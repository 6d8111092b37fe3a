package sigv4_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
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
	transfer                    bool // with a Transfer-Encoding
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
	s := inHeader().change("UNSIGNED-PAYLOAD", kind).header("X-Amz-Decoded-Content-Length", strconv.Itoa(decoded))
	s.method = "PUT"
	if len(trailers) > 0 {
		s.header("X-Amz-Trailer", strings.Join(trailers, ","))
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

// send adds headers that are not signed.
func (s *signing) send(headers ...string) *signing {
	s.sent = append(slices.Clone(s.sent), headers...)
	return s
}

// change changes what is sent and signed.
func (s *signing) change(old, by string) *signing {
	for i := range s.sent {
		s.sent[i] = strings.Replace(s.sent[i], old, by, 1)
	}
	s.headers, s.payload = strings.Replace(s.headers, old, by, 1), strings.Replace(s.payload, old, by, 1)
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

// pad gives the Authorization header a length.
func (s *signing) pad(length int) {
	_, authorization, _ := strings.Cut(s.raw(), "Authorization: ")
	authorization, _, _ = strings.Cut(authorization, "\r\n")
	s.fields = strings.Replace(s.fields, " ", strings.Repeat(" ", length-len(authorization)+1), 1)
}

// raw is the request as it is sent.
func (s *signing) raw() string {
	all := append([]string{s.method + " " + s.target + " HTTP/1.1"}, s.sent...)
	if s.scheme != "" {
		fields := fmt.Sprintf(s.fields+"%.0[1]s%.0[2]s%.0[3]s", exampleID+"/"+s.scope, s.names, s.signature())
		all = append(all, "Authorization: "+s.scheme+" "+fields)
	}
	switch {
	case s.transfer:
		all = append(all, "Transfer-Encoding: chunked")
		return lines(all...) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s.body), s.body)
	case s.body != "":
		all = append(all, fmt.Sprintf("Content-Length: %d", len(s.body)))
	}
	return lines(all...) + s.body
}

// presigned is a URL that is right but for the parameters: "name=value" replaces one, "name" removes it, and
// "+name=value" adds one.
func presigned(params ...string) *signing {
	s := &signing{
		method: "GET", path: "/b/k", sent: []string{"Host: h"}, headers: "host:h\n", names: "host",
		payload: "UNSIGNED-PAYLOAD", date: "20130524T000000Z", scope: "20130524/us-east-1/s3/aws4_request",
	}
	return s.presign(params...)
}

func (s *signing) presign(params ...string) *signing {
	values := map[string]string{
		"X-Amz-Algorithm":  "AWS4-HMAC-SHA256",
		"X-Amz-Credential": strings.ReplaceAll(exampleID+"/"+s.scope, "/", "%2F"),
		"X-Amz-Date":       s.date, "X-Amz-Expires": "60",
		"X-Amz-SignedHeaders": strings.ReplaceAll(s.names, ";", "%3B"),
	}
	var all []string
	for _, p := range params {
		name, value, whole := strings.Cut(p, "=")
		if added, ok := strings.CutPrefix(p, "+"); ok {
			all = append(all, added)
		} else if values[name] = value; !whole {
			delete(values, name)
		}
	}
	for name, value := range values {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
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
