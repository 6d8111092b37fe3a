package s3

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What is noted of an answer's header is of the object, and neither of the answer, the connection nor the client.
func TestHeader(t *testing.T) {
	of := http.Header{
		"Cache-Control": {"no-cache"}, "Content-Disposition": {"attachment"}, "Content-Encoding": {"gzip"},
		"Content-Language": {"de"}, "Content-Type": {"text/plain"}, "Etag": {`"e"`}, "Expires": {"never"},
		"Last-Modified": {"Fri, 24 May 2013 00:00:00 GMT"}, "X-Amz-Version-Id": {"v"}, "X-Amz-Tagging-Count": {"1"},
		"X-Amz-Storage-Class": {"STANDARD"}, "X-Amz-Server-Side-Encryption": {"AES256"},
		"X-Amz-Meta-Camera": {"7"}, "X-Amz-Meta-": {"no name"}, "X-Amz-Meta-Twice": {"a", "b"},
		"X-Amz-Meta-Empty": {""}, "X-Amz-Meta-Word": {"ä"},
		"X-Amz-Checksum-Crc32": {"AAAAAA=="}, "X-Amz-Checksum-Type": {"FULL_OBJECT"},
	}
	not := http.Header{
		"Accept-Ranges": {"bytes"}, "Connection": {"close"}, "Content-Length": {"5"}, "Content-Range": {"bytes 0-4/5"},
		"Date": {"now"}, "Server": {"x"}, "Set-Cookie": {"a=b"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"x"},
		"Vary": {"*"}, "X-Amz-Request-Id": {"1"}, "X-Amz-Id-2": {"2"}, "X-Amz-Delete-Marker": {"true"}, "X-Amz-Restore": {"x"},
		"X-Amz-Mp-Parts-Count": {"2"}, "X-Amz-Bucket-Region": {"x"}, "X-Amz-Metadata": {"x"}, "X-Amz-Metax": {"x"},
		"Access-Control-Allow-Origin": {"*"}, "Www-Authenticate": {"x"}, "Location": {"http://169.254.169.254"},
		"Alt-Svc": {"h3"}, "Strict-Transport-Security": {"x"}, "etag": {"not canonical"},
	}
	answer := of.Clone()
	for name, values := range not {
		answer[name] = values
	}
	if d := cmp.Diff(of, Header(answer)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := Header(not); got == nil || len(got) != 0 {
		t.Errorf("of an object of which nothing is said: %v", got)
	}
}

// Too much is not noted, nor what is no text: what is noted becomes JSON.
func TestHeaderHasLimits(t *testing.T) {
	const name = "X-Amz-Meta-A"
	half := strings.Repeat("x", headerMost/2)
	for what, in := range map[string]struct {
		header http.Header
		noted  bool
	}{
		"the most":              {http.Header{name: {strings.Repeat("x", headerMost-len(name))}}, true},
		"a byte more":           {http.Header{name: {strings.Repeat("x", headerMost-len(name)+1)}}, false},
		"many values":           {http.Header{name: make([]string, headerMost/len(name)+1)}, false},
		"several that are much": {http.Header{name: {half}, "Etag": {half}}, false},
		"much of the answer":    {http.Header{name: {"x"}, "Server": {strings.Repeat("x", headerMost)}}, true},
		"not UTF-8":             {http.Header{name: {"\xff"}}, false},
		"cut off":               {http.Header{name: {"ok", "\xc3"}}, false},
		"not UTF-8, the answer": {http.Header{name: {"x"}, "Server": {"\xff"}}, true},
		"a control character":   {http.Header{name: {"a\x00"}}, false},
		"a line break":          {http.Header{name: {"a\r\nSet-Cookie: b"}}, false},
		"a tab":                 {http.Header{name: {"a\tb"}}, true},
		"nothing":               {http.Header{}, true},
		"none":                  {nil, true},
	} {
		if got := Header(in.header); (got != nil) != in.noted {
			t.Errorf("%s: noted %v", what, got)
		}
	}
}

// What is noted is noted again as it is.
func TestHeaderIsStable(t *testing.T) {
	names := rapid.SampledFrom([]string{"Etag", "Set-Cookie", "X-Amz-Meta-A", "X-Amz-Meta-B", "Content-Length", "etag"})
	rapid.Check(t, func(t *rapid.T) {
		in := http.Header(rapid.MapOf(names, rapid.SliceOf(rapid.String())).Draw(t, "header"))
		first := Header(in)
		for name := range first {
			if !said[name] && !strings.HasPrefix(name, metadata) {
				t.Fatalf("notes %q", name)
			}
		}
		if d := cmp.Diff(first, Header(first)); first != nil && d != "" {
			t.Fatalf("(-first +second):\n%s", d)
		}
	})
}
