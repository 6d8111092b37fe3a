//go:build integration

package smuggling

import (
	"fmt"
	"strings"

	"pgregory.net/rapid"
)

// odd makes some of the choices odd ones.
func odd(t *rapid.T, what string, usual string, others ...string) string {
	if rapid.IntRange(0, 7).Draw(t, what) > 0 {
		return usual
	}
	return rapid.SampledFrom(others).Draw(t, "odd "+what)
}

// oddRequest is one that is well formed in most of its parts.
func oddRequest(t *rapid.T) string {
	eol := odd(t, "end of line", "\r\n", "\n", "\r", "\r\r\n", " \r\n")
	colon := odd(t, "colon", ": ", ":", " : ", ":\t", ":\r\n ", ":\x0b", "\x00: ")
	body := rapid.SampledFrom([]string{"", "a", strings.Repeat("b", 70_000), strings.ReplaceAll(hidden, "HOST", "raw.example"), "0\r\n\r\n"}).Draw(t, "body")
	head := []string{
		odd(t, "method", "POST", "GET", "HEAD", "PUT", "OPTIONS", "CONNECT", "post", "P@ST") +
			odd(t, "space", " ", "  ", "\t") + odd(t, "target", "/a", "/a?b=c%00", "http://HOST/a", "*", "//a", "/a/../b", "/%2e%2e/a", "/\x7f") +
			odd(t, "version", " HTTP/1.1", " HTTP/1.0", " HTTP/2.0", " http/1.1", ""),
		"Host" + colon + odd(t, "host", "HOST", "HOST:80", "HOST.", "raw.example", "", "a@HOST"),
	}
	chunked := rapid.Bool().Draw(t, "chunked")
	if chunked {
		head = append(head, "Transfer-Encoding"+colon+odd(t, "coding", "chunked", "Chunked", "chunked ", "xchunked", "chunked, chunked", "identity, chunked", "\"chunked\""))
	}
	if !chunked || odd(t, "both", "", "and a length") != "" {
		head = append(head, "Content-Length"+colon+odd(t, "length", fmt.Sprint(len(body)), "0", "1", fmt.Sprint(len(body)+1), "00", "+1", fmt.Sprintf("%d, %d", len(body), len(body))))
	}
	head = append(head, odd(t, "more", "x-own: a", "Expect: 100-continue", "Connection: close", "Connection: Upgrade\r\nUpgrade: websocket", "Trailer: x-own",
		"x-headstart-input-file: /etc/passwd", "x_headstart_function: default/go", "Content_Length: 1", "x-a: b\r\n c", "Connection: content-length", "Upgrade: h2c\r\nConnection: upgrade", "TE: trailers, chunked"))
	if chunked {
		body = oddChunks(t, body, eol)
	}
	return strings.Join(head, eol) + eol + eol + body
}

// oddChunks has a body in chunks.
func oddChunks(t *rapid.T, body, eol string) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), rapid.SampledFrom([]int{1, 2, 15, 4096, 65536}).Draw(t, "size"))
		size := odd(t, "form of size", fmt.Sprintf("%x", n), fmt.Sprintf("%X", n), fmt.Sprintf("%08x", n), fmt.Sprintf("0x%x", n), fmt.Sprintf(" %x", n), fmt.Sprintf("%x", n+1), "ffffffffffffffff1")
		b.WriteString(size + odd(t, "extension", "", ";a=b", ";a=\"\r\n\"", " ; a", ";\n", ";"+strings.Repeat("x", 5000)) + eol + body[:n] + odd(t, "end of chunk", "\r\n", "", "\n", "x\r\n"))
		body = body[n:]
	}
	b.WriteString(odd(t, "last", "0", "00", "0;a", "-0", "") + eol)
	return b.String() + odd(t, "trailers", "", "x-own: a\r\n", "x-headstart-function: default/go\r\n", "Content-Length: 5\r\n") + odd(t, "end", "\r\n", "\n", "")
}
