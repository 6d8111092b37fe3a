package ingress_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A request reaches the function as the gateway sent it.
func TestARequestPassesAsItIs(t *testing.T) {
	type line struct{ Method, Path, Query, Host string }
	var got line
	var header http.Header
	r := newRig(t, func(_ http.ResponseWriter, req *http.Request) {
		path, query, _ := strings.Cut(req.RequestURI, "?")
		got, header = line{req.Method, path, query, req.Host}, req.Header.Clone()
	})
	for _, want := range []line{
		{"GET", "/", "", "video.example"},
		{"DELETE", "/a%2Fb/%20c//d/", "", "video.example:8080"},
		{"PATCH", "//two/slashes", "x=1&x=2", "video.example"},
		{"PURGE", "/;p=1", "a;b&%zz", "video.example"}, // a query that net/url refuses
		{"OPTIONS", "/../up", "", "10.0.0.1"},
	} {
		req := request(t, want.Method, withoutInput, "", "", nil)
		req.URL.Opaque, req.URL.RawQuery, req.Host = want.Path, want.Query, want.Host
		if strings.HasPrefix(want.Path, "//") { // net/http's client would take it for a host
			req.URL.Opaque, req.URL.Path = "", want.Path
		}
		if resp := r.do(t, req); resp.StatusCode != http.StatusOK {
			t.Fatalf("%v: %d %s", want, resp.StatusCode, read(t, resp.Body))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	}

	req := request(t, "GET", withoutInput, "", "", nil)
	passing := map[string][]string{
		"X-Forwarded-For": {"192.0.2.1, 192.0.2.2"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"outside.example"}, "Forwarded": {"for=192.0.2.1"},
		"Accept": {"a", "b"}, "User-Agent": {"test"}, "Cookie": {"a=b"}, "Authorization": {"Bearer x"}, "Te": {"trailers"},
	}
	for name, values := range passing {
		req.Header[name] = values
	}
	stopping := []string{"Keep-Alive", "Proxy-Authorization", "X-Of-This-Hop"}
	for _, name := range stopping {
		req.Header.Set(name, "x")
	}
	req.Header.Set("Connection", "X-Of-This-Hop")
	r.do(t, req)
	for name, want := range passing {
		if d := cmp.Diff(want, header[name]); d != "" {
			t.Error(name, d)
		}
	}
	for _, name := range stopping {
		if header.Get(name) != "" {
			t.Errorf("%s passes, which is between client and gateway", name)
		}
	}
	if header.Get("Accept-Encoding") != "" {
		t.Error("an encoding is accepted that the client never heard of")
	}
}

func TestAnAnswerPassesAsItIs(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/early":
			w.Header().Set("Link", "</a>")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
		case "/gone":
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header()["Set-Cookie"] = []string{"a=1", "b=2"}
		w.Header().Set("X-Headstart-Request", "the function's own")
		w.Header().Set("Content-Length", "5")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "12345")
	})
	id := newID()
	get := func(method, path string) (*http.Response, []int) {
		var early []int
		req := request(t, method, withoutInput, id, "", nil)
		req.URL.Path = path
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				if h.Get("Link") != "" {
					early = append(early, code)
				}
				return nil
			}}))
		return r.do(t, req), early
	}
	for _, c := range []struct{ method, path, body string }{{"GET", "/", "12345"}, {"HEAD", "/", ""}, {"GET", "/early", "12345"}} {
		resp, early := get(c.method, c.path)
		if resp.StatusCode != http.StatusTeapot || resp.ContentLength != 5 || read(t, resp.Body) != c.body {
			t.Errorf("%v: %d, %d bytes", c, resp.StatusCode, resp.ContentLength)
		}
		if d := cmp.Diff([]string{"a=1", "b=2"}, resp.Header["Set-Cookie"]); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{id}, resp.Header["X-Headstart-Request"]); d != "" {
			t.Errorf("%v: %s", c, d)
		}
		if hinted := slices.Equal(early, []int{http.StatusEarlyHints}); hinted != (c.path == "/early") {
			t.Errorf("%v: before the answer came %v", c, early)
		}
	}
	if resp, _ := get("GET", "/gone"); resp.StatusCode != http.StatusNoContent || resp.ContentLength != 0 {
		t.Errorf("no content: %d, %d bytes", resp.StatusCode, resp.ContentLength)
	}
}

func TestTrailersPassBothWays(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.Copy(w, req.Body)
		w.Header().Set("X-Sum", "of "+req.Trailer.Get("X-Part"))
		w.Header().Set(http.TrailerPrefix+"X-Late", "unannounced")
	})
	req := request(t, "POST", withoutInput, "", "", io.MultiReader(strings.NewReader("body")))
	req.Trailer = http.Header{"X-Part": {"7"}}
	resp := r.do(t, req)
	if got := read(t, resp.Body); got != "body" || resp.Trailer.Get("X-Sum") != "of 7" || resp.Trailer.Get("X-Late") != "unannounced" {
		t.Errorf("%q, trailers %v", got, resp.Trailer)
	}
}

// A client names nothing of Headstart's after its body, either, whatever it announces.
func TestNoTrailerIsOurs(t *testing.T) {
	for name, head := range map[string]string{"announced": "Trailer: x-headstart-input-file, x-part\r\n", "not announced": "Trailer: x-part\r\n"} {
		t.Run(name, func(t *testing.T) {
			got := make(chan http.Header, 1)
			r := newRig(t, func(_ http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				got <- req.Trailer.Clone()
			})
			c, err := net.Dial("unix", serveUnix(t, r.Gateway()))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nx-headstart-function: "+withoutInput+"\r\nTransfer-Encoding: chunked\r\n"+head+
				"\r\n1\r\na\r\n0\r\nx-headstart-input-file: /etc/passwd\r\nx-part: 7\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if trailer := <-got; len(trailer) != 1 || trailer.Get("x-part") != "7" {
				t.Errorf("the function gets %v", trailer)
			}
		})
	}
}

// The body is asked for when the function wants it, and not when it does not.
func TestExpectContinue(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		_, _ = io.Copy(w, req.Body)
	})
	for path, want := range map[string]string{"/": "the body", "/refuse": ""} {
		body := &counted{Reader: strings.NewReader("the body")}
		req := request(t, "POST", withoutInput, "", "", body)
		req.URL.Path, req.ContentLength = path, 8
		req.Header.Set("Expect", "100-continue")
		resp := r.do(t, req)
		if got := read(t, resp.Body); got != want || body.read != len(want) {
			t.Errorf("%s: %d %q after %d bytes", path, resp.StatusCode, got, body.read)
		}
	}
}

type counted struct {
	io.Reader
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// Request and answer flow at the same time, byte by byte.
func TestBodiesStreamBothWays(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		c := http.NewResponseController(w)
		_ = c.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = c.Flush()
		b := make([]byte, 1)
		for {
			if _, err := req.Body.Read(b); err != nil {
				return
			}
			_, _ = w.Write(b)
			_ = c.Flush()
		}
	})
	body, write := io.Pipe()
	resp := r.do(t, request(t, "POST", withoutInput, "", "", body))
	for _, b := range []byte("echo") {
		if _, err := write.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || got[0] != b {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_ = write.Close()
	if rest := read(t, resp.Body); rest != "" {
		t.Errorf("%q at the end", rest)
	}
}

func TestAnUpgradedConnectionPasses(t *testing.T) {
	r := newRig(t, upgrade)
	resp := r.do(t, upgradeRequest(t, newID()))
	echoes(t, resp)
	// One that the function refuses has an ordinary answer.
	req := upgradeRequest(t, newID())
	req.URL.Path = "/refuse"
	if resp := r.do(t, req); resp.StatusCode != http.StatusForbidden || read(t, resp.Body) != "no\n" {
		t.Errorf("refused with %d", resp.StatusCode)
	}
	// One that the function answers with another protocol fails as a whole.
	req = upgradeRequest(t, newID())
	req.URL.Path = "/other"
	wantProblem(t, r.do(t, req), http.StatusBadGateway, "FunctionFailed", "")
}

// A request for any other protocol is an ordinary one: behind it, nobody would see what the function
// is asked.
func TestOnlyWebSocketsPass(t *testing.T) {
	for name, asked := range map[string][]string{
		"HTTP/2": {"h2c"}, "one of several": {"websocket, h2c"}, "several": {"websocket", "h2c"}, "nothing": {""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				if v := req.Header.Values("Upgrade"); len(v) != 0 {
					t.Errorf("the function is asked for %q", v)
				}
				_, _ = io.WriteString(w, "ordinary")
			})
			req := upgradeRequest(t, newID())
			req.Header["Upgrade"] = asked
			if resp := r.do(t, req); resp.StatusCode != http.StatusOK || read(t, resp.Body) != "ordinary" {
				t.Errorf("%d", resp.StatusCode)
			}
		})
	}
}

func upgradeRequest(t *testing.T, id string) *http.Request {
	t.Helper()
	req := request(t, "GET", withoutInput, id, "", nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "WebSocket")
	return req
}

// upgrade is a function that takes a connection and says what it hears.
func upgrade(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/refuse" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	if req.URL.Path == "/other" {
		w.Header().Set("Upgrade", "chat")
	}
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, buf)
}

func echoes(t *testing.T, resp *http.Response) {
	t.Helper()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "websocket" || !ok {
		t.Fatalf("%d, %v", resp.StatusCode, resp.Header)
	}
	for _, word := range []string{"ping", "pong"} {
		if _, err := io.WriteString(conn, word); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(word))
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_ = conn.Close()
}

// A function that closes its connection after each answer, whatever it said, costs no
// request: none is written to a connection that was used before.
func TestAFunctionMayCloseItsConnections(t *testing.T) {
	r := newRig(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if req, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok")
			}
			_ = conn.Close()
		}
	}()
	defer func() { _ = l.Close(); <-served }()
	r.instances.address = l.Addr().(*net.TCPAddr).AddrPort()
	ref := r.put("some", "", []byte("input"))
	for n := range 20 {
		resp := r.do(t, request(t, "POST", withInput, newID(), ref, nil))
		if got := read(t, resp.Body); got != "ok" {
			t.Fatalf("request %d: %s", n, got)
		}
	}
}
