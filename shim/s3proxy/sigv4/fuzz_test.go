package sigv4_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// A client without a secret is refused whatever it sends, with words that a client can show.
func FuzzVerify(f *testing.F) {
	for _, raw := range []string{exampleGet, examplePut, examplePresigned, exampleTrailer} {
		r, err := parse(raw)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(r.Header.Get("Authorization"), r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Get("X-Amz-Content-Sha256"),
			r.Header.Get("X-Amz-Date"), "")
	}
	f.Add("AWS4-HMAC-SHA256 Credential=a/20130524/r/s3/aws4_request,SignedHeaders=host;expect,Signature=x",
		"/%2f/..//*", "a=b;&&=&%20", ofNothing, "20130524T000000Z", "-1")
	f.Fuzz(func(t *testing.T, authorization, path, query, payload, date, length string) {
		u, err := url.ParseRequestURI("/" + path)
		if err != nil {
			return
		}
		u.RawQuery = query
		r := &http.Request{Method: "PUT", URL: u, Host: "h", Header: http.Header{
			"Authorization": {authorization}, "X-Amz-Content-Sha256": {payload}, "X-Amz-Date": {date},
			"X-Amz-Decoded-Content-Length": {length}, "X-Amz-Trailer": {path},
		}}
		for name, v := range r.Header {
			if v[0] == "" {
				delete(r.Header, name)
			}
		}
		s, err := sigv4.Verify(r, exampleTime, func(string) (string, string, bool) { return "a secret", "", true })
		var e *sigv4.Error
		if !errors.As(err, &e) || statuses[e.Code] != e.Status || len(err.Error()) > 1000 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Whatever comes as a body, it is read to the same end however it is read, and never are there more bytes than its
// length says, or other ones than were sent.
func FuzzBody(f *testing.F) {
	signed, plain := streaming(signedTrailer, 5, crc), streaming(unsignedTrailer, 5, crc)
	chunks := streaming(signedChunks, 5)
	for _, c := range []*chunker{signed.chunker(), plain.chunker()} {
		f.Add(uint8(0), c.chunk("he").chunk("llo").chunk("").end(crc+":NhCmhg=="))
	}
	f.Add(uint8(1), plain.chunker().chunk("hello").chunk("").endOfMinio(crc+":NhCmhg=="))
	f.Add(uint8(1), "5\r\nhello\r\n0\r\n"+crc+":a\r\n\r\n")
	f.Add(uint8(2), chunks.chunker().chunk("hello").chunk("").end())
	f.Add(uint8(3), "hello")
	kinds := []*signing{signed, plain, chunks, inHeader().send("Content-Length: 5")}
	f.Fuzz(func(t *testing.T, kind uint8, body string) {
		s := kinds[int(kind)%len(kinds)]
		p := opened(t, s, strings.NewReader(body))
		got, err := io.ReadAll(p)
		slow := opened(t, s, iotest.OneByteReader(strings.NewReader(body)))
		same, err2 := io.ReadAll(iotest.OneByteReader(slow))
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("%q and %v, or slowly %q and %v", got, err, same, err2)
		}
		var e *sigv4.Error
		if err != nil && (!errors.As(err, &e) || statuses[e.Code] != e.Status || len(got) > 4) {
			t.Errorf("%q and %v", got, err)
		}
		if err == nil && (len(got) != 5 || string(got) != string(same)) {
			t.Errorf("%q, or slowly %q", got, same)
		}
		if s == signed && err == nil && (string(got) != "hello" || p.Trailer().Get(crc) != "NhCmhg==") {
			t.Errorf("a chunk that nobody has signed is read: %q", got)
		}
	})
}
