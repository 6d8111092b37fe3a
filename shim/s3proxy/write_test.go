package s3proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ofOther is the SHA-256 of another payload, and checksumTrailer a trailer.
const (
	ofOther         = "0000000000000000000000000000000000000000000000000000000000000000"
	checksumTrailer = "x-amz-checksum-crc32"
)

// A payload goes on as it came, and is there for the next read, in each form in which SDKs send it.
func TestPut(t *testing.T) {
	const name = checksumTrailer
	content := strings.Repeat("0123456789", 10_000)
	encoded := http.Header{"Content-Encoding": {"gzip"}}
	for how, in := range map[string]struct {
		content, body string
		header        http.Header
		kind, trailer string // as the store gets it
	}{
		"unsigned": {content: content, body: content, kind: unsigned},
		"empty":    {kind: unsigned},
		"encoded":  {content: content, body: content, header: encoded, kind: unsigned},
		"a trailer": {content: content, body: chunkedBody([]byte(content), []int{3, 5000}, name+":"+checksums[name]),
			header: chunkedHeader(len(content), name), kind: trailing, trailer: name + ":" + checksums[name]},
		"empty, a trailer": {body: chunkedBody(nil, nil, name+":"+checksums[name]), header: chunkedHeader(0, name),
			kind: trailing, trailer: name + ":" + checksums[name]},
	} {
		t.Run(how, func(t *testing.T) {
			n := start(t, nil)
			sb := n.box("a")
			header := http.Header{"X-Amz-Meta-Camera": {"7"}, "Content-Type": {"image/jpeg"}}
			for name, values := range in.header {
				header[name] = values
			}
			res, said := n.ask(sb, "PUT", "/data/k", in.body, header)
			if res.StatusCode != http.StatusOK || res.Header.Get("Etag") == "" {
				t.Fatalf("answered %d %s", res.StatusCode, said)
			}
			put := n.store.takeAsked()[0]
			kind := put.header.Get("X-Amz-Content-Sha256")
			got, trailer := put.body, ""
			if in.trailer != "" {
				var all []string
				var err error
				if got, all, err = dechunk(string(put.body)); err != nil {
					t.Fatal(err)
				}
				trailer = strings.Join(all, "\n")
			}
			if string(got) != in.content || trailer != in.trailer || kind != in.kind {
				t.Errorf("the store gets %d bytes with %q as %s", len(got), trailer, kind)
			}
			for _, name := range []string{"Authorization", "X-Amz-Security-Token", "X-Amz-Date"} {
				if put.header[name] != nil {
					t.Errorf("the store gets the client's %s", name)
				}
			}
			if put.header.Get("Content-Encoding") != "gzip" && in.header.Get("Content-Encoding") == "gzip" {
				t.Errorf("it is encoded as %q", put.header.Get("Content-Encoding"))
			}
			n.store.takeFetched()
			n.says(time.Hour)
			res, said = n.ask(sb, "GET", "/data/k", "", nil)
			camera, kind := res.Header.Get("X-Amz-Meta-Camera"), res.Header.Get("Content-Type")
			if said != in.content || camera != "7" || kind != "image/jpeg" {
				t.Errorf("read as %d bytes with %v", len(said), res.Header)
			}
			if fetched := n.store.takeFetched(); len(fetched) > 0 && in.content != "" { // what is empty is not kept
				t.Errorf("the store is asked for %q", fetched)
			}
		})
	}
}

// What the program has not signed is nowhere, and it hears why.
func TestPutOfAnotherPayload(t *testing.T) {
	n := start(t, nil)
	n.says(time.Hour)
	sb := n.box("a")
	for name, in := range map[string]struct {
		body   string
		header http.Header
		code   string
	}{
		"another content": {"content", http.Header{"X-Amz-Content-Sha256": {ofOther}}, "XAmzContentSHA256Mismatch"},
		"it ends early":   {"5\r\nconte\r\n", chunkedHeader(7, checksumTrailer), "IncompleteBody"},
		"no chunks":       {"content\r\n", chunkedHeader(7, checksumTrailer), "InvalidRequest"},
		"no checksum":     {chunkedBody([]byte("content"), nil, checksumTrailer+":x"), chunkedHeader(7, checksumTrailer), "InvalidRequest"},
	} {
		if _, body := n.ask(sb, "PUT", "/data/k", in.body, in.header); codeOf(body) != in.code {
			t.Errorf("%s: %s", name, body)
		}
		if _, has := n.store.get("data/k"); has || n.buffer.Used() != 0 {
			t.Errorf("%s: the store has it: %v; the buffer has %d bytes", name, has, n.buffer.Used())
		}
	}
}

// remote has a node's requests go to a server.
func (n *node) remote(t *testing.T, h http.Handler) {
	t.Helper()
	s := httptest.NewServer(h)
	transport := &http.Transport{}
	n.store.before = func(r *http.Request) (*http.Response, error) {
		at, err := url.Parse(s.URL)
		if err != nil {
			return nil, err
		}
		out := r.Clone(r.Context())
		out.URL.Scheme, out.URL.Host = at.Scheme, at.Host
		return transport.RoundTrip(out)
	}
	t.Cleanup(func() { s.Close(); transport.CloseIdleConnections() })
}

// A payload that is not what was signed is told as such also when a connection breaks by it.
func TestPutOfAnotherPayloadByAConnection(t *testing.T) {
	n := start(t, nil)
	n.remote(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Etag", `"e"`)
	}))
	header := http.Header{"X-Amz-Content-Sha256": {ofOther}}
	_, body := n.ask(n.box("a"), "PUT", "/data/k", strings.Repeat("x", 100_000), header)
	if codeOf(body) != "XAmzContentSHA256Mismatch" {
		t.Errorf("answered %s", body)
	}
	if n.buffer.Used() != 0 {
		t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
	}
}

// slowBody comes as its writer writes, and is read by what passes it on.
type slowBody struct {
	*io.PipeReader
	closed chan struct{}
	once   sync.Once
}

func (b *slowBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.PipeReader.Close()
}

// A store can answer before it has the whole payload, as S3 does when it refuses. Its connection still reads the rest.
// The answer is passed on, and the node has no copy.
func TestAnEarlyAnswer(t *testing.T) {
	for _, method := range []string{"/data/k", "/data/k?uploadId=1&partNumber=1"} {
		for _, status := range []int{http.StatusForbidden, http.StatusOK} {
			n := start(t, nil)
			sb := n.box("a")
			const size = 1 << 20
			var reading sync.WaitGroup
			n.store.before = func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPut {
					return nil, errors.New("nothing else")
				}
				first := make([]byte, 10)
				if _, err := io.ReadFull(r.Body, first); err != nil {
					return nil, err
				}
				reading.Go(func() { _, _ = io.Copy(io.Discard, r.Body) })
				return &http.Response{StatusCode: status, Header: http.Header{"Etag": {`"e"`}}, Body: http.NoBody}, nil
			}
			r := incoming("PUT", method, strings.Repeat("x", size), nil)
			sb.sign(t, r)
			from, to := io.Pipe()
			r.Body = &slowBody{PipeReader: from, closed: make(chan struct{})}
			var writing sync.WaitGroup
			writing.Go(func() {
				for range size / 1024 {
					if _, err := to.Write(make([]byte, 1024)); err != nil {
						return
					}
				}
			})
			res, _, _ := n.do(sb, r)
			_ = r.Body.Close() // as the server does
			reading.Wait()
			writing.Wait()
			if res.StatusCode != status {
				t.Errorf("%s: answered %d", method, res.StatusCode)
			}
			if n.buffer.Used() != 0 {
				t.Errorf("%s with %d: %d bytes are left in the buffer", method, status, n.buffer.Used())
			}
		}
	}
}

// What the store says of its own keys, addresses and paths is for the operator.
func TestAnErrorOfTheNodeIsNotForTheProgram(t *testing.T) {
	n := start(t, nil)
	const secret = "open /etc/headstart/secrets/store: no such file"
	n.store.before = func(*http.Request) (*http.Response, error) { return nil, errors.New(secret) }
	for _, method := range []string{"HEAD", "PUT", "DELETE"} {
		res, body := n.ask(n.box("a"), method, "/data/k", "", nil)
		if res.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "/etc") {
			t.Errorf("%s: %d %s", method, res.StatusCode, body)
		}
		if log := n.log(); !strings.Contains(log, "level=WARN") || !strings.Contains(log, secret) {
			t.Errorf("%s: the log is %s", method, log)
		}
	}
}

// A store that breaks off its answer has the program's connection broken off, so that nobody takes it for whole.
func TestABrokenAnswer(t *testing.T) {
	n := start(t, nil)
	n.store.before = func(*http.Request) (*http.Response, error) {
		body := io.MultiReader(strings.NewReader("some"), &failing{io.ErrUnexpectedEOF})
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
	sb := n.box("a")
	r := incoming("GET", "/data?list-type=2", "", nil)
	sb.sign(t, r)
	if res, body, broken := n.do(sb, r); !broken || res.StatusCode != http.StatusOK || body != "some" {
		t.Errorf("broken off: %v, %d %s", broken, res.StatusCode, body)
	}
}

type failing struct{ error }

func (f *failing) Read([]byte) (int, error) { return 0, f.error }

// Headers of a connection stay on it, in both directions.
func TestHopsStay(t *testing.T) {
	n := start(t, nil)
	var got http.Header
	n.store.before = func(r *http.Request) (*http.Response, error) {
		got = r.Header
		h := http.Header{"X-Amz-Request-Id": {"1"}, "Date": {"now"}}
		for _, name := range hops {
			if name != "Date" {
				h[name] = []string{"x"}
			}
		}
		return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}, nil
	}
	header := http.Header{"Accept": {"x"}, "X-Amz-Expected-Bucket-Owner": {"1"}}
	for _, name := range hops {
		if name != "Authorization" && name != "Date" && !strings.HasPrefix(name, "X-Amz-") {
			header[name] = []string{"x"}
		}
	}
	res, _ := n.ask(n.box("a"), "GET", "/data?list-type=2", "", header)
	for _, name := range hops {
		if got[name] != nil {
			t.Errorf("the store gets %s %q", name, got[name])
		}
		if name != "Date" && res.Header[name] != nil {
			t.Errorf("the program gets %s %q", name, res.Header[name])
		}
	}
	owner, id := got.Get("X-Amz-Expected-Bucket-Owner"), res.Header.Get("X-Amz-Request-Id")
	if got.Get("Accept") != "x" || owner != "1" || id != "1" {
		t.Errorf("the store gets %v, the program %v", got, res.Header)
	}
}

// The header of what was stored is asked for in the background, which ends with the server.
func TestDescribeLaterEndsWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		asked := make(chan struct{})
		n.store.before = func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodHead {
				return nil, nil
			}
			close(asked)
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}
		if res, body := n.ask(n.box("a"), "PUT", "/data/k", "content", nil); res.StatusCode != http.StatusOK {
			t.Fatalf("answered %s", body)
		}
		<-asked
		n.Server.Close()
	})
}

func TestBeginning(t *testing.T) {
	w := httptest.NewRecorder()
	b := &beginning{ResponseWriter: w, most: 10}
	for _, part := range []string{"", "0123", "456789ab", "cd"} {
		if n, err := b.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if w.Body.String() != "0123456789abcd" || !bytes.Equal(b.start.Bytes(), []byte("0123456789")) {
		t.Errorf("%q of %q", b.start.String(), w.Body.String())
	}
}
