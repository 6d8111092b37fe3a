//go:build integration

package smuggling

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	get    = "GET /a HTTP/1.1\r\nHost: HOST\r\n\r\n"
	hidden = "GET /hidden HTTP/1.1\r\nHost: HOST\r\n\r\n"
	post   = "POST /a HTTP/1.1\r\nHost: HOST\r\n"
	te     = "Transfer-Encoding: chunked\r\n"
)

// inner is a request of fixed length, which is no part of the one around it.
const inner = "GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"

// cases are requests about whose end, or sense, programs have disagreed.
var cases = map[string]string{
	"one":                           get,
	"two at once":                   get + strings.Replace(get, "/a", "/b", 1),
	"three with bodies at once":     post + "Content-Length: 1\r\n\r\na" + post + te + "\r\n1\r\nb\r\n0\r\n\r\n" + get,
	"a body that is a request":      post + "Content-Length: 32\r\n\r\n" + inner + get,
	"a chunk that is a request":     post + te + "\r\n20\r\n" + inner + "\r\n0\r\n\r\n" + get,
	"both lengths, CL first":        post + "Content-Length: 4\r\n" + te + "\r\n0\r\n\r\n" + hidden,
	"both lengths, TE first":        post + te + "Content-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
	"two lengths":                   post + "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" + hidden,
	"two equal lengths":             post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na" + hidden,
	"a list of lengths":             post + "Content-Length: 1, 1\r\n\r\na" + hidden,
	"a length with a sign":          post + "Content-Length: +1\r\n\r\na" + hidden,
	"a length of hex":               post + "Content-Length: 0x1\r\n\r\na" + hidden,
	"a length with a space":         post + "Content-Length : 44\r\n\r\n" + hidden,
	"an endless length":             post + "Content-Length: 18446744073709551617\r\n\r\na" + hidden,
	"a negative length":             post + "Content-Length: -1\r\n\r\n" + hidden,
	"a length of a GET":             "GET /a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\n\r\na" + hidden,
	"TE, identity":                  post + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na" + hidden,
	"TE, twice":                     post + te + te + "\r\n0\r\n\r\n" + hidden,
	"TE, and identity":              post + te + "Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
	"TE, of gzip":                   post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE, not at the end":            post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + hidden,
	"TE, another case":              post + "tRANSFER-eNCODING: ChUnKeD\r\n\r\n0\r\n\r\n" + hidden,
	"TE, a tab before":              post + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n" + hidden,
	"TE, a space before the colon":  post + "Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
	"TE, folded":                    post + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
	"TE, a vertical tab":            post + "Transfer-Encoding: \x0bchunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
	"TE, by an underscore":          post + "Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + hidden,
	"TE, in HTTP/1.0":               "POST /a HTTP/1.0\r\nHost: HOST\r\nConnection: keep-alive\r\n" + te + "\r\n0\r\n\r\n" + hidden,
	"chunks, an extension":          post + te + "\r\n1;a=b\r\na\r\n0;c\r\n\r\n" + hidden,
	"chunks, an extension's quote":  post + te + "\r\n1;a=\"b\r\n\"\r\na\r\n0\r\n\r\n" + hidden,
	"chunks, an extension's LF":     post + te + "\r\n2;\nxx\r\n2a\r\n0\r\n\r\n" + hidden + "\r\n0\r\n\r\n",
	"chunks, leading zeros":         post + te + "\r\n0000000000000001\r\na\r\n000\r\n\r\n" + hidden,
	"chunks, 0x":                    post + te + "\r\n0x1\r\na\r\n0\r\n\r\n" + hidden,
	"chunks, too large a size":      post + te + "\r\n10000000000000001\r\na\r\n0\r\n\r\n" + hidden,
	"chunks, a minus":               post + te + "\r\n-1\r\na\r\n0\r\n\r\n" + hidden,
	"chunks, bare LF":               post + te + "\r\n1\na\n0\n\n" + hidden,
	"chunks, no CRLF after":         post + te + "\r\n1\r\nab\r\n0\r\n\r\n" + hidden,
	"chunks, a space":               post + te + "\r\n1 \r\na\r\n0\r\n\r\n" + hidden,
	"chunks, none":                  post + te + "\r\n" + hidden,
	"trailers":                      post + te + "Trailer: x-own\r\n\r\n1\r\na\r\n0\r\nx-own: a\r\n\r\n" + get,
	"trailers, of ours":             post + te + "Trailer: x-headstart-function\r\n\r\n1\r\na\r\n0\r\nx-headstart-function: default/raw\r\n\r\n",
	"trailers, that are lengths":    post + te + "Trailer: content-length\r\n\r\n0\r\nContent-Length: 44\r\nTransfer-Encoding: chunked\r\n\r\n" + hidden,
	"bare LF":                       "GET /a HTTP/1.1\nHost: HOST\n\n" + hidden,
	"a bare CR in a header":         "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: a\rx-headstart-input-file: /etc/passwd\r\n\r\n",
	"a bare CR at the end":          "GET /a HTTP/1.1\r\nHost: HOST\r\n\r" + hidden,
	"a NUL":                         "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: a\x00b\r\n\r\n",
	"a line separator":              "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: a\x85x-headstart-input-file: /etc/passwd\r\n\r\n",
	"a file separator":              "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: a\x1cx-headstart-input-file: /etc/passwd\r\n\r\n",
	"a folded header":               "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: a\r\n b\r\n\r\n" + hidden,
	"a fold before all":             "GET /a HTTP/1.1\r\n x-a: b\r\nHost: HOST\r\n\r\n",
	"a header without a name":       "GET /a HTTP/1.1\r\nHost: HOST\r\n: a\r\n\r\n",
	"a header without a colon":      "GET /a HTTP/1.1\r\nHost: HOST\r\nGET /hidden HTTP/1.1\r\n\r\n",
	"an empty line before":          "\r\n\r\n" + get,
	"two hosts":                     "GET /a HTTP/1.1\r\nHost: HOST\r\nHost: raw.example\r\n\r\n",
	"no host":                       "GET /a HTTP/1.1\r\n\r\n",
	"another host by an absolute":   "GET http://raw.example/a HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"absolute":                      "GET http://HOST/a?b HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"absolute, of another scheme":   "GET ftp://HOST/a HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a target with a space":         "GET /a b HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a target with a fragment":      "GET /a#b HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a target with two slashes":     "GET //raw.example/a HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a target that is an asterisk":  "OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a target of any bytes":         "GET /\xff\x80?\xfe HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"a version":                     "GET /a HTTP/1.2\r\nHost: HOST\r\n\r\n",
	"HTTP/0.9":                      "GET /a\r\n" + hidden,
	"CONNECT":                       "CONNECT HOST:80 HTTP/1.1\r\nHost: HOST\r\n\r\n" + hidden,
	"TRACE":                         "TRACE /a HTTP/1.1\r\nHost: HOST\r\n\r\n",
	"an unknown method":             "FOO /a HTTP/1.1\r\nHost: HOST\r\n\r\n" + hidden,
	"HEAD with a body":              "HEAD /a HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\n\r\na" + hidden,
	"an upgrade to h2c":             "GET /a HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + hidden,
	"an upgrade to WebSocket":       "GET /a HTTP/1.1\r\nHost: HOST\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + hidden,
	"HTTP/2, by prior knowledge":    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"Expect":                        post + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\na" + hidden,
	"Expect, of something else":     post + "Expect: a-miracle\r\nContent-Length: 1\r\n\r\na" + hidden,
	"half a body":                   post + "Content-Length: 1000\r\n\r\nhalf",
	"half a chunk":                  post + te + "\r\n10\r\nhalf",
	"half a head":                   "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a",
	"Connection names ours":         "GET /a HTTP/1.1\r\nHost: HOST\r\nConnection: close, x-headstart-request, x-headstart-function, content-length, host\r\n\r\n",
	"ours, in all manners":          "GET /a HTTP/1.1\r\nHost: HOST\r\nX-Headstart-Input-File: /etc/passwd\r\nx_headstart_input_file: /etc/passwd\r\nx-headstart-later: a\r\nx-headstart_key: a\r\n\r\n",
	"a body of 100 kB":              post + "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000) + get,
	"a body of many chunks":         post + te + "\r\n" + strings.Repeat("1\r\nx\r\n", 1000) + "0\r\n\r\n" + get,
	"a header that is named thrice": "GET /a HTTP/1.1\r\nHost: HOST\r\nx-a: 1\r\nX-A: 2\r\nx-a: \r\n\r\n",
}

// whole is how many requests functions get whole, where it is no matter of taste.
var whole = map[string]int{"one": 1, "two at once": 2, "three with bodies at once": 3, "a body that is a request": 2, "a chunk that is a request": 2, "trailers": 2,
	"a body of 100 kB": 2, "a body of many chunks": 2, "half a body": 0, "half a chunk": 0, "half a head": 0, "both lengths, CL first": 0,
	"both lengths, TE first": 0, "two lengths": 0, "chunks, 0x": 0, "chunks, a minus": 0, "two hosts": 0, "no host": 0, "a header without a colon": 0}

// addCases adds the cases for each function; by a client that stays, and one that leaves.
func addCases(f *testing.F) {
	for _, data := range cases {
		for i := range names {
			f.Add([]byte(data), byte(i), false)
		}
		f.Add([]byte(data), byte(0), true)
	}
}

func wholes(all []request) (n int) {
	for _, r := range all {
		if r.Whole {
			n++
		}
	}
	return n
}

// FuzzDaemon is of bytes that come to the daemon's socket as they are.
func FuzzDaemon(f *testing.F) {
	d := startDaemon(f, socketIn(f))
	addCases(f)
	f.Fuzz(func(t *testing.T, data []byte, function byte, leave bool) {
		answers := d.send(t, "unix", d.socket, fill(data, names[int(function)%len(names)]), 0, leave)
		d.check(t, answers)
	})
}

// socketIn is a socket's path, which must be short.
func socketIn(t testing.TB) string {
	dir, err := os.MkdirTemp("", "hs-smuggling-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
