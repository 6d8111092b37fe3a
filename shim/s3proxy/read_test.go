package s3proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/byterange"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// A range that begins a large object has the node fetch all of it, and one that only looks at the beginning does not.
func TestBegins(t *testing.T) {
	for header, want := range map[string]bool{
		"bytes=0-": true, "bytes=0-1048575": true, "bytes=0-5242879": true, "bytes=0-99999999999999999999": true,
		"bytes=0-1048574": false, "bytes=0-0": false, "bytes=1-": false, "bytes=1-5242880": false,
		"bytes=-5242880": false, "bytes=-1": false, "bytes=5242880-10485759": false,
	} {
		r, ok := byterange.Parse(header)
		if got := begins(r); !ok || got != want {
			t.Errorf("%s: %v", header, got)
		}
	}
}

// reading is a request for an object, with a line of its header.
func reading(t *testing.T, target string, header ...string) *request {
	t.Helper()
	r := &request{Request: line("GET "+target, header...)}
	var err error
	if r.query, err = parameters(r.Request, false); err != nil {
		t.Fatal(err)
	}
	if r.Operation, err = parse(r.Request, r.query); err != nil {
		t.Fatal(err)
	}
	return r
}

// The node answers reads of an object as it is. What has a key of its own, or a condition that the node does not know,
// is for the store.
func TestPlain(t *testing.T) {
	for _, in := range []struct {
		target, header string
		want           bool
	}{
		{"/data/k", "", true},
		{"/data/k?x-id=GetObject", "", true},
		{"/data/a/b.c", "Range: bytes=0-1", true},
		{"/data/k", "If-Match: x", true},
		{"/data/k", "If-None-Match: x", true},
		{"/data/k", "x-amz-checksum-mode: ENABLED", true},
		{"/data/k?versionId=1", "", false},
		{"/data/k?partNumber=1", "", false},
		{"/data/k?response-content-type=x", "", false},
		{"/data/k", "If-Modified-Since: x", false},
		{"/data/k", "If-Unmodified-Since: x", false},
		{"/data/k", `If-Range: "x"`, false},
		{"/data/k", "x-amz-server-side-encryption-customer-algorithm: AES256", false},
		{"/data/k", "x-amz-expected-bucket-owner: 1", false},
		{"/data//k", "", false}, // the node has no name for it
		{"/data/a/./b", "", false},
		{"/data/a%20", "", false},
		{"/data/%FF", "", false},
		{"/data/" + strings.Repeat("k", 1025), "", false},
	} {
		if got := reading(t, in.target, in.header).plain(); got != in.want {
			t.Errorf("%.40s with %q: %v", in.target, in.header, got)
		}
	}
}

func TestTagIn(t *testing.T) {
	for _, in := range []struct {
		list, tag string
		want      bool
	}{
		{`"a"`, `"a"`, true}, {`a`, `"a"`, true}, {`"a"`, `a`, true}, {`"b", "a"`, `"a"`, true}, {`b,a`, `"a"`, true},
		{` "a" `, `"a"`, true}, {`"a-2"`, `"a-2"`, true},
		{`"b"`, `"a"`, false}, {`"A"`, `"a"`, false}, {`W/"a"`, `"a"`, false}, {``, `"a"`, false},
		{`"aa"`, `"a"`, false}, {`*`, `"a"`, false}, {`"a-2"`, `"a"`, false},
	} {
		if got := tagIn(in.list, in.tag); got != in.want {
			t.Errorf("%s in %s: %v", in.tag, in.list, got)
		}
	}
}

func TestConditions(t *testing.T) {
	about := source.Object{Version: `"a"`}
	for _, in := range []struct {
		header             string
		matches, unchanged bool
	}{
		{"", true, false},
		{`If-Match: "a"`, true, false},
		{`If-Match: *`, true, false},
		{`If-Match: "b"`, false, false},
		{`If-Match: "b", "a"`, true, false},
		{`If-None-Match: "a"`, true, true},
		{`If-None-Match: *`, true, true},
		{`If-None-Match: "b"`, true, false},
		{`If-None-Match: b, a`, true, true},
	} {
		r := reading(t, "/data/k", in.header)
		if m, u := r.matches(about), r.unchanged(about); m != in.matches || u != in.unchanged {
			t.Errorf("%q: matches %v, unchanged %v", in.header, m, u)
		}
	}
}

// What a neighbour says of an object is believed as far as it is of the object. It breaks neither the answer nor the
// connection, and sets nothing for the program.
func TestANeighbourSaysAHeader(t *testing.T) {
	var about source.Object
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		objectHeader(w, about, true)
		w.Header().Set("Content-Length", "7")
		_, _ = io.WriteString(w, "content")
	}))
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
	names := rapid.SampledFrom([]string{"Set-Cookie", "Transfer-Encoding", "Content-Length", "Connection", "Trailer",
		"Upgrade", "Location", "Content-Range", "Accept-Ranges", "Alt-Svc", "Access-Control-Allow-Origin",
		"Www-Authenticate", "set-cookie", "content-length", "X-Amz-Request-Id", "X-Amz-Meta-A",
		"X-Amz-Meta-\r\nSet-Cookie: a", "X-Amz-Meta-: a\r\n\r\n", "X-Amz-Meta-Content-Length", "Etag", "Content-Type",
		"Etag\r\nSet-Cookie", "Set-Cookie\x00", "X-Amz-Meta-\u00e4", ""})
	values := rapid.SampledFrom([]string{"a=b", "chunked", "0", "1000000", "close", "7", "", "a\r\nSet-Cookie: a=b",
		"\r\n\r\nHTTP/1.1 200 OK", "a\nTransfer-Encoding: chunked", "\x00", "\xff", strings.Repeat("x", 5000)})
	can := []string{"Etag", "Content-Type", "X-Amz-Meta-A", "X-Amz-Meta-Content-Length", "X-Amz-Request-Id",
		"Accept-Ranges", "Date", "Content-Length"}
	rapid.Check(t, func(t *rapid.T) {
		about = source.Object{Size: 7, Header: rapid.MapOf(names, rapid.SliceOfN(values, 0, 3)).Draw(t, "header")}
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || string(body) != "content" || res.StatusCode != http.StatusOK || res.Close {
			t.Fatalf("answered %d %q, %v", res.StatusCode, body, err)
		}
		for _, name := range can {
			res.Header.Del(name)
		}
		if len(res.Header) > 0 {
			t.Fatalf("the answer has %q", res.Header)
		}
	})
}

// A read is answered as the store would, whole and in ranges, and from the node once it has the object.
func TestReads(t *testing.T) {
	content := strings.Repeat("0123456789", 300_000)
	tag := tagOf([]byte(content))
	const whole, part, unchanged = http.StatusOK, http.StatusPartialContent, http.StatusNotModified
	const get, head = http.MethodGet, http.MethodHead
	for _, held := range []bool{false, true} {
		for name, in := range map[string]struct {
			method, header string
			status         int
			body, part     string // empty: whatever it is
			passed         bool   // to the store, even if the node has the object
			fetched        bool   // by the node, if it does not have the object
		}{
			"whole":               {method: get, status: whole, body: content, fetched: true},
			"a range":             {method: get, header: "Range: bytes=5-9", status: part, body: "56789", part: "5-9"},
			"its beginning":       {method: get, header: "Range: bytes=0-", status: part, body: content, fetched: true},
			"its first part":      {get, "Range: bytes=0-1048575", part, content[:1<<20], "0-1048575", false, true},
			"its first byte":      {method: get, header: "Range: bytes=0-0", status: part, body: "0", part: "0-0"},
			"its end":             {get, "Range: bytes=-3", part, "789", "2999997-2999999", false, false},
			"beyond":              {method: get, header: "Range: bytes=3000000-", status: 416, passed: true},
			"two ranges":          {method: get, header: "Range: bytes=0-0,2-2", status: part, passed: true},
			"the same":            {method: get, header: "If-None-Match: " + tag, status: unchanged, fetched: true},
			"another":             {get, `If-None-Match: "x"`, whole, content, "", false, true},
			"this one":            {get, "If-Match: " + tag, whole, content, "", false, true},
			"not this one":        {method: get, header: `If-Match: "x"`, status: 412, passed: true, fetched: true},
			"a range of this one": {get, "If-Range: " + tag, whole, content, "", true, false},
			"its header":          {method: head, status: whole},
			"its header, known":   {method: head, header: "If-None-Match: " + tag, status: unchanged},
		} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := start(t, nil)
					n.says(time.Hour)
					sb := n.box("a")
					n.store.put("data/k", []byte(content), http.Header{"X-Amz-Meta-Camera": {"7"}})
					if held {
						n.ask(sb, "GET", "/data/k", "", nil)
						n.store.takeAsked()
						n.store.takeFetched()
					}
					header := http.Header{}
					if key, value, has := strings.Cut(in.header, ": "); has {
						header.Set(key, value)
					}
					res, body := n.ask(sb, in.method, "/data/k", "", header)
					asked, fetched := n.store.takeAsked(), n.store.takeFetched()
					if res.StatusCode != in.status || in.body != "" && body != in.body {
						t.Errorf("answered %d with %d bytes", res.StatusCode, len(body))
					}
					if want := in.passed || !held && !in.fetched; (len(asked) > 0) != want {
						t.Errorf("the store is asked for %v", asked)
					}
					if (len(fetched) > 0) != (in.fetched && !held) {
						t.Errorf("the node fetches %v", fetched)
					}
					if in.part != "" && res.Header.Get("Content-Range") != "bytes "+in.part+"/3000000" {
						t.Errorf("it is the range %s", res.Header.Get("Content-Range"))
					}
					if in.status < http.StatusBadRequest && res.Header.Get("Etag") != tag {
						t.Errorf("its header is %v", res.Header)
					}
					if in.status == whole && res.Header.Get("X-Amz-Meta-Camera") != "7" {
						t.Errorf("its header is %v", res.Header)
					}
				})
			})
		}
	}
}

// What the node cannot take is the store's to answer.
func TestReadsThatTheNodeCannotTake(t *testing.T) {
	n := start(t, nil)
	sb := n.box("a")
	large := strings.Repeat("x", bufferLimit+1)
	n.store.put("data/large", []byte(large), nil)
	n.store.put("data//odd", []byte("odd"), nil)
	n.store.put("data/header", []byte("content"), http.Header{"X-Amz-Meta-A": {strings.Repeat("x", 5000)}})
	for key, want := range map[string]string{"large": large, "/odd": "odd", "header": "content"} {
		if res, body := n.ask(sb, "GET", "/data/"+key, "", nil); res.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %d with %d bytes", key, res.StatusCode, len(body))
		}
	}
	if res, _ := n.ask(sb, "GET", "/data/none", "", nil); res.StatusCode != http.StatusNotFound {
		t.Errorf("what there is not: %d", res.StatusCode)
	}
	if n.buffer.Used() != int64(len("content")) && n.buffer.Used() != 0 {
		t.Errorf("the buffer has %d bytes", n.buffer.Used())
	}
}

// An object goes on coming for a while after its first range was read, and no longer than the server is there.
func TestAnObjectGoesOnComing(t *testing.T) {
	for name, in := range map[string]struct {
		after  time.Duration
		closed bool // the server
		ended  bool
	}{
		"soon":                {lingerMost / 2, false, false},
		"later":               {2 * lingerMost, false, true},
		"the server is there": {0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, nil)
				ended := false
				n.store.halfway = func(ctx context.Context, _ source.Reference) error {
					<-ctx.Done()
					ended = true
					return ctx.Err()
				}
				n.store.put("data/k", []byte(strings.Repeat("0123456789", 300_000)), nil)
				header := http.Header{"Range": {"bytes=0-1048575"}}
				res, body := n.ask(n.box("a"), "GET", "/data/k", "", header)
				if res.StatusCode != http.StatusPartialContent || len(body) != 1<<20 {
					t.Fatalf("answered %d with %d bytes", res.StatusCode, len(body))
				}
				if in.closed {
					n.Server.Close()
				}
				time.Sleep(in.after)
				synctest.Wait()
				if ended != in.ended {
					t.Errorf("it has ended: %v", ended)
				}
			})
		})
	}
}

// A program that goes away while an object comes leaves nothing behind.
func TestAProgramThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		n.store.halfway = func(ctx context.Context, _ source.Reference) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		n.store.put("data/k", []byte("content"), nil)
		sb := n.box("a")
		r := incoming("GET", "/data/k", "", nil).WithContext(ctx)
		sb.sign(t, r)
		n.do(sb, r)
		synctest.Wait()
		if n.buffer.Used() != 0 {
			t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
		}
	})
}
