package s3proxy

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// Each kind of error is told in the words of S3, and what is of the node alone is not told.
func TestRefusals(t *testing.T) {
	const secret = "open /var/lib/headstart: no such file"
	wrong := &sigv4.Error{Code: "SignatureDoesNotMatch", Status: 403, Message: "no"}
	short := &sigv4.Error{Code: "IncompleteBody", Status: 400, Message: "short"}
	refuses := problem.New(502, "StoreForbidden", "", "it refuses")
	for name, in := range map[string]struct {
		err    error
		status int
		code   string
		says   string
	}{
		"a refusal":          {refuse(418, "Teapot", "it is one"), 418, "Teapot", "it is one"},
		"wrapped":            {fmt.Errorf("%w: %s", refuse(418, "Teapot", "one"), secret), 418, "Teapot", "one"},
		"midway":             {midway{refuse(418, "Teapot", "it is one")}, 418, "Teapot", "it is one"},
		"a signature":        {wrong, 403, "SignatureDoesNotMatch", "no"},
		"a payload":          {fmt.Errorf("reading: %w", short), 400, "IncompleteBody", "short"},
		"a store forbidden":  {source.NotAllowed("edge", source.Reference{Bucket: "b"}), 403, "AccessDenied", `"b"`},
		"an unknown store":   {problem.New(502, "StoreUnknown", "", "none"), 503, "ServiceUnavailable", "none"},
		"a full buffer":      {problem.New(507, "BufferFull", "", "full"), 503, "ServiceUnavailable", "full"},
		"a problem wrapped":  {source.Because(refuses, errors.New(secret)), 503, "ServiceUnavailable", "refuses"},
		"the node's own":     {errors.New(secret), 502, "InternalError", "log"},
		"none that is known": {problem.New(500, "Internal", "", secret), 502, "InternalError", "log"},
	} {
		e := refusalOf(in.err)
		if e.status != in.status || e.code != in.code || !strings.Contains(e.message, in.says) {
			t.Errorf("%s: %d %s", name, e.status, e)
		}
		if strings.Contains(e.message, secret) {
			t.Errorf("%s: it says %q", name, e.message)
		}
	}
}

// told is an answer's body.
type told struct {
	XMLName                            xml.Name `xml:"Error"`
	Code, Message, Resource, RequestId string
}

// Whatever the path and the message have, the answer is XML, and says how long it is. A HEAD has none.
func TestRefusalIsXML(t *testing.T) {
	paths := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"/data/k", "/data/<k>&\"'", "/data/\x00\x01",
		"/data/\xff\xfe", "/data/\ufffe", "/data/\r\n", "/]]>", "/data/\U0001F600", "\x1b"}),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		e := &refusal{rapid.IntRange(400, 599).Draw(t, "status"), "AccessDenied", paths.Draw(t, "message")}
		method := rapid.SampledFrom([]string{"GET", "PUT", "HEAD"}).Draw(t, "method")
		w := httptest.NewRecorder()
		e.write(w, &http.Request{Method: method, URL: &url.URL{Path: paths.Draw(t, "path")}})
		res := w.Result()
		if res.StatusCode != e.status || res.Header.Get("Content-Type") != "application/xml" {
			t.Fatalf("answered %d as %s", res.StatusCode, res.Header.Get("Content-Type"))
		}
		if method == http.MethodHead {
			if w.Body.Len() > 0 {
				t.Fatalf("a HEAD is answered with %q", w.Body)
			}
			return
		}
		var got told
		if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%q: %v", w.Body, err)
		}
		if got.Code != e.code || got.RequestId == "" || got.RequestId != res.Header.Get("X-Amz-Request-Id") {
			t.Fatalf("answered %+v with %v", got, res.Header)
		}
		if res.Header.Get("Content-Length") != strconv.Itoa(w.Body.Len()) {
			t.Fatalf("%d bytes as %s", w.Body.Len(), res.Header.Get("Content-Length"))
		}
	})
}

// What a program hears that has no credentials, or others than it gets.
func TestRequestsThatAreNotSigned(t *testing.T) {
	n := start(t, nil)
	a, b := n.box("a"), n.box("b")
	for name, in := range map[string]struct {
		sign func(*http.Request)
		code string
	}{
		"not":            {func(*http.Request) {}, "AccessDenied"},
		"by another one": {func(r *http.Request) { b.sign(t, r) }, "SignatureDoesNotMatch"},
		"something else": {func(r *http.Request) { a.sign(t, r); r.URL.Path = "/data/other" }, "SignatureDoesNotMatch"},
		"without a token": {func(r *http.Request) {
			a.sign(t, r)
			r.Header.Del("X-Amz-Security-Token")
		}, "SignatureDoesNotMatch"},
		"an old version": {func(r *http.Request) {
			r.Header.Set("Authorization", "AWS id:signature")
		}, "InvalidRequest"},
	} {
		r := incoming("GET", "/data/k", "", nil)
		in.sign(r)
		if _, body, _ := n.do(a, r); codeOf(body) != in.code {
			t.Errorf("%s: %s", name, body)
		}
	}
	if asked, fetched := n.store.takeAsked(), n.store.takeFetched(); len(asked)+len(fetched) > 0 {
		t.Errorf("the store is asked for %v and %v", asked, fetched)
	}
}
