//go:build integration

package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// dial opens a connection to the gateway on which bytes are sent as they are.
func (b *bed) dial() (net.Conn, *bufio.Reader) {
	b.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		b.t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// send sends a request, and returns the answer and its protocol.
func (b *bed) send(c net.Conn, r *bufio.Reader, request string) (answer, string) {
	b.t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		b.t.Fatal(err)
	}
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		b.t.Fatalf("%.60q: %v", request, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatalf("%.60q: reading the answer: %v", request, err)
	}
	return answer{response.StatusCode, response.Header, string(text)}, response.Proto
}

// Whatever the gateway refuses by itself, its answer is a problem.
func TestRequestRefused(t *testing.T) {
	b := start(t, coldState(), nil)
	host := "Host: " + thumbs().Hosts[0] + "\r\n"
	for name, tt := range map[string]struct {
		request  string
		status   int
		function string
		says     string
	}{
		"not HTTP":                {"rubbish\r\n\r\n", 400, "", "codec_error"},
		"a header without colon":  {"GET / HTTP/1.1\r\n" + host + "nonsense\r\n\r\n", 400, "", "codec_error"},
		"no host":                 {"GET / HTTP/1.1\r\n\r\n", 400, "", "no Host header"},
		"no host, HTTP/1.0":       {"GET / HTTP/1.0\r\n\r\n", 400, "", "no Host header"},
		"a NUL in the path":       {"GET /%00 HTTP/1.1\r\n" + host + "\r\n", 400, "", "path_normalization_failed"},
		"a bad escape":            {"GET /a%zz HTTP/1.1\r\n" + host + "\r\n", 400, thumbs().Name, "hexadecimal digits"},
		"half an escape":          {"GET /a%a/b?c HTTP/1.1\r\n" + host + "\r\n", 400, thumbs().Name, "hexadecimal digits"},
		"a % at the end":          {"GET /%41% HTTP/1.1\r\n" + host + "\r\n", 400, thumbs().Name, "hexadecimal digits"},
		"an upgrade":              {"GET / HTTP/1.1\r\n" + host + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 403, thumbs().Name, "upgrade_failed"},
		"headers too large":       {"GET / HTTP/1.1\r\n" + host + "x: " + strings.Repeat("x", 2*maxRequestHeadersKB<<10) + "\r\n\r\n", 431, "", "headers_too_large"},
		"an encoding of transfer": {"GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n", 501, "", "invalid_transfer_encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			b := *b
			b.t = t
			c, r := b.dial()
			got, _ := b.send(c, r, tt.request)
			if want := (filterapi.Problem{
				Title: "RequestRefused", Status: tt.status, Function: tt.function,
			}); problemOf(t, got) != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if !strings.Contains(got.body, tt.says) {
				t.Errorf("%s does not say %s", got.body, tt.says)
			}
		})
	}
}

// What may look like a bad escape, and is none, comes to the function as it is.
func TestEscapesPass(t *testing.T) {
	b := start(t, coldState(), nil)
	daemon := b.listen("unix", b.gw.IngressSocket, "cold")
	for _, path := range []string{"/%20b", "/a%2Fb%aF", "/a?q=%zz", "/?%"} {
		c, r := b.dial()
		if got, _ := b.send(
			c, r, "GET "+path+" HTTP/1.1\r\nHost: "+thumbs().Hosts[0]+"\r\n\r\n",
		); got.status != http.StatusOK {
			t.Errorf("%s: %+v", path, got)
		}
		if _, last := daemon.requests(); last == nil || last.RequestURI != path {
			t.Errorf("the daemon got %+v, want %s", last, path)
		}
	}
}

// Clients of HTTP/1.0 are served: with a length on one connection for all their requests, and
// without, in no chunks, until the connection's end.
func TestHTTP10(t *testing.T) {
	b := start(t, coldState(), nil)
	b.handle("unix", b.gw.IngressSocket, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := "got " + string(body)
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		}
		_, _ = io.WriteString(w, text[:2])
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, text[2:])
	})
	ask := func(path, body string) string {
		return fmt.Sprintf(
			"POST %s HTTP/1.0\r\nHost: %s\r\nConnection: keep-alive\r\nContent-Length: %d\r\n\r\n%s", path,
			thumbs().Hosts[0], len(body), body,
		)
	}
	c, r := b.dial()
	for _, body := range []string{"one", "another"} {
		got, proto := b.send(c, r, ask("/length", body))
		if got.status != http.StatusOK || got.body != "got "+body || proto != "HTTP/1.0" || got.header.Get("Connection") != "keep-alive" {
			t.Errorf("got %+v by %s", got, proto)
		}
	}
	got, proto := b.send(c, r, ask("/", "a third"))
	if got.body != "got a third" || proto != "HTTP/1.0" || got.header.Get("Transfer-Encoding") != "" {
		t.Errorf("without a length got %+v by %s", got, proto)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after an answer without a length: %v, want the connection's end", err)
	}
}
