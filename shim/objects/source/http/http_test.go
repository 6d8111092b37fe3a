package http

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const testSecret = "hunter2-a-secret"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a web server. http.ServeContent knows ranges and conditions.
type fake struct {
	// before sees each request first; true means that it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool
	// dated has it tell dates of change in place of entity tags, bare neither.
	dated, bare bool

	mu       sync.Mutex
	changes  int
	objects  map[string]content // by path
	requests []string
}

type content struct {
	contentType, text, tag string
	changed                time.Time
	unsized                bool
}

func (f *fake) put(path, contentType string, text []byte, unsized bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects == nil {
		f.objects = map[string]content{}
	}
	f.changes++
	f.objects[path] = content{contentType, string(text), fmt.Sprintf(`"%x"`, md5.Sum(text)), time.Now().Add(time.Duration(f.changes-1000) * time.Hour), unsized}
}

func (f *fake) remove(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.objects, path)
}

func (f *fake) asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.Header.Get("Range"))
	c, ok := f.objects[r.URL.Path]
	f.mu.Unlock()
	if f.before != nil && f.before(w, r) {
		return
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", c.contentType)
	changed := time.Time{}
	switch {
	case f.dated:
		changed = c.changed
	case !f.bare:
		w.Header().Set("ETag", c.tag)
	}
	if c.unsized {
		// Flushed, so that the server cannot know the length either.
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, c.text) // the client may have gone
		return
	}
	http.ServeContent(w, r, "", changed, strings.NewReader(c.text))
}

func (f *fake) store(t *testing.T, host string) sourcetest.Store {
	t.Helper()
	s, err := New(Config{Store: "web", Buckets: []string{host}})
	if err != nil {
		t.Fatal(err)
	}
	put := func(unsized bool) func(source.Reference, string, []byte) error {
		return func(ref source.Reference, contentType string, text []byte) error {
			f.put("/"+ref.Key, contentType, text, unsized)
			return nil
		}
	}
	return sourcetest.Store{
		Source: s, Scheme: source.SchemeHTTP, Bucket: host, Part: Part, Close: s.Close, Put: put(false), PutUnsized: put(true),
		Delete: func(ref source.Reference) error { f.remove("/" + ref.Key); return nil },
	}
}

// serve returns the host of a server.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestConformance(t *testing.T) {
	for name, f := range map[string]*fake{"entity tags": {}, "dates": {dated: true}} {
		t.Run(name, func(t *testing.T) {
			host := serve(t, f)
			sourcetest.Run(t, func(t *testing.T) sourcetest.Store { return f.store(t, host) })
		})
	}
}

func TestConformanceOverTLS(t *testing.T) {
	f := &fake{before: func(w http.ResponseWriter, r *http.Request) bool {
		refused := r.Header.Get("Authorization") != "Bearer "+testSecret
		if refused {
			w.WriteHeader(http.StatusUnauthorized)
		}
		return refused
	}}
	server := httptest.NewTLSServer(f)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store {
		store := f.store(t, strings.TrimPrefix(server.URL, "https://"))
		store.Scheme = source.SchemeHTTPS
		secrets := sourcetest.Secrets(t, "web", 0o600, "token = "+testSecret)
		s := store.Source.(*Source)
		s.config.Credentials = func(context.Context) (secret.Secret, error) { return LoadCredentials(secrets, "web") }
		s.transport.TLSClientConfig.RootCAs = roots
		store.Secret = func(right bool) error {
			value := testSecret
			if !right {
				value = "another"
			}
			return secrets.WriteFile("web", []byte("token = "+value), 0o600)
		}
		return store
	})
}

// noRanges hides that a server has ranges.
type noRanges struct{ http.Handler }

func (h noRanges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Header.Del("Range")
	h.Handler.ServeHTTP(w, r)
}

func TestConformanceWithoutRanges(t *testing.T) {
	f := &fake{}
	host := serve(t, noRanges{f})
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store { return f.store(t, host) })
}

func TestBehindABadLine(t *testing.T) {
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"ranges":    func(h http.Handler) http.Handler { return h },
		"no ranges": func(h http.Handler) http.Handler { return noRanges{h} },
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			sourcetest.RunBehindABadLine(t, serve(t, wrap(f)), f.store)
		})
	}
}

func ref(scheme, host, key string) source.Reference {
	return source.Reference{Scheme: scheme, Bucket: host, Key: key}
}

// Without a version nobody could tell whether parts belong together: one stream it is.
func TestAnObjectWithoutAVersionIsOneStream(t *testing.T) {
	f := &fake{bare: true}
	host := serve(t, f)
	store := f.store(t, host)
	defer store.Close()
	for size, want := range map[int][]string{
		Part: {fmt.Sprintf("GET bytes=0-%d", Part-1)}, 3 * Part: {fmt.Sprintf("GET bytes=0-%d", Part-1), "GET "},
	} {
		text := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		f.put("/k", "text/plain", text, false)
		f.requests = nil
		s := &sourcetest.Sink{}
		if err := store.Source.Fetch(t.Context(), ref("http", host, "k"), "", s.Begin); err != nil {
			t.Fatal(err)
		}
		if s.Object.Version != "" || s.Object.Size != int64(size) || !bytes.Equal(s.Content, text) {
			t.Errorf("got %d bytes of %+v", len(s.Content), s.Object)
		}
		if got := f.asked(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("size %d: asked %q, want %q", size, got, want)
		}
	}
}

// What breaks off without a version cannot be gone on with: it might be another object.
func TestAStreamWithoutAVersionFailsWhenItBreaks(t *testing.T) {
	var asked atomic.Int32
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	store := (&fake{}).store(t, host)
	defer store.Close()
	s := &sourcetest.Sink{}
	err := store.Source.Fetch(t.Context(), ref("http", host, "k"), "", s.Begin)
	if p := problem.Of(err); p.Title != "StoreUnavailable" || s.Object.Size != -1 || asked.Load() != 1 {
		t.Errorf("got %v of %+v after %d requests", err, s.Object, asked.Load())
	}
}

// A date of change says nothing of changes within the same second.
func TestAYoungDateIsNoVersion(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := func(d time.Duration) http.Header {
		return http.Header{"Date": {now.UTC().Format(http.TimeFormat)}, "Last-Modified": {now.Add(d).UTC().Format(http.TimeFormat)}}
	}
	for _, in := range []struct {
		h    http.Header
		want bool
	}{{at(-time.Second), true}, {at(0), false}, {at(time.Second), false}, {http.Header{"Etag": {`W/"a"`}}, false}, {http.Header{"Etag": {`"a"`}}, true}, {http.Header{}, false}} {
		if got := version(in.h); (got != "") != in.want {
			t.Errorf("%v: version %q", in.h, got)
		}
	}
}

func TestFetchFails(t *testing.T) {
	status := func(code int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "you sent "+testSecret)
		}
	}
	for name, in := range map[string]struct {
		handler http.HandlerFunc
		title   string
		says    string
		again   bool // it is asked again
	}{
		"unauthorized":  {status(401), "StoreForbidden", "401", false},
		"forbidden":     {status(403), "StoreForbidden", "403", false},
		"missing":       {status(404), "InputNotFound", "no object", false},
		"gone":          {status(410), "InputNotFound", "no object", false},
		"timeout":       {status(408), "StoreUnavailable", "408", true},
		"too many":      {status(429), "StoreUnavailable", "429", true},
		"failed":        {status(500), "StoreUnavailable", "500", true},
		"unavailable":   {status(503), "StoreUnavailable", "503", true},
		"redirect":      {status(302, "Location", "http://169.254.169.254/"), "StoreUnavailable", "it answers 302, and redirects are not followed", false},
		"no content":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, "StoreUnavailable", "204", false},
		"teapot":        {status(418), "StoreUnavailable", "418", false},
		"encoded":       {status(200, "Content-Encoding", "gzip", "ETag", `"a"`), "StoreUnavailable", "encodes", false},
		"another range": {status(206, "ETag", `"a"`, "Content-Range", "bytes 1-1/2"), "StoreUnavailable", "answers range", false},
		"no range":      {status(206, "ETag", `"a"`), "StoreUnavailable", "content range", false},
		"endless header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2*ranged.MaxHeader))
		},
			"StoreUnavailable", "connection failed", true},
		"no length": {func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\nhalf")
				_ = rw.Flush()
				_ = conn.Close()
			}
		}, "StoreUnavailable", "length", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // pauses between tries are real
			var asked atomic.Int32
			host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); in.handler(w, r) }))
			store := (&fake{}).store(t, host)
			defer store.Close()
			err := store.Source.Fetch(t.Context(), ref("http", host, "k"), "", (&sourcetest.Sink{}).Begin)
			if p := problem.Of(err); p.Title != in.title || !strings.Contains(p.Detail, in.says) || strings.Contains(err.Error(), testSecret) {
				t.Errorf("got %v", err)
			}
			if n := asked.Load(); n < 1 || n > 1 != in.again {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// secrets returns credentials of the file's content.
func secrets(t *testing.T, text string) func(context.Context) (secret.Secret, error) {
	t.Helper()
	root := sourcetest.Secrets(t, "web", 0o600, text)
	return func(context.Context) (secret.Secret, error) { return LoadCredentials(root, "web") }
}

// Credentials go by https only, to a server that the system's authorities vouch for.
func TestCredentials(t *testing.T) {
	authorization := make(chan string, 16)
	f := &fake{before: func(_ http.ResponseWriter, r *http.Request) bool {
		authorization <- r.Header.Get("Authorization")
		return false
	}}
	f.put("/k", "text/plain", []byte("content"), false)
	server := httptest.NewTLSServer(f)
	server.Config.ErrorLog = nil
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for text, want := range map[string]string{
		"token = " + testSecret:                      "Bearer " + testSecret,
		"username = me\npassword = " + testSecret:    "Basic bWU6aHVudGVyMi1hLXNlY3JldA==",
		"username = me":                              "",
		"token = a\nusername = b\npassword = c":      "",
		"access_key_id = a\nsecret_access_key = b\n": "",
	} {
		s, err := New(Config{Store: "web", Buckets: []string{host}, Credentials: secrets(t, text)})
		if err != nil {
			t.Fatal(err)
		}
		fetch := func(scheme string) error {
			return s.Fetch(t.Context(), ref(scheme, host, "k"), "", (&sourcetest.Sink{}).Begin)
		}
		if p := problem.Of(fetch("http")); p.Title != "StoreNotAllowed" || !strings.Contains(p.Detail, "https://, as it has credentials") {
			t.Errorf("in the clear: %v", p)
		}
		if want != "" {
			if p := problem.Of(fetch("https")); p.Title != "StoreUnavailable" || !strings.Contains(p.Detail, "not trusted") {
				t.Errorf("a certificate of nobody's: %v", p)
			}
		}
		s.transport.TLSClientConfig.RootCAs = roots
		err = fetch("https")
		if want == "" {
			if p := problem.Of(err); p.Title != "StoreForbidden" {
				t.Errorf("%q: %v", text, err)
			}
		} else if got := <-authorization; err != nil || got != want {
			t.Errorf("sent %q, %v", got, err)
		}
		s.Close()
	}
}

func TestATLSReferenceToAPlainServer(t *testing.T) {
	host := serve(t, &fake{})
	store := (&fake{}).store(t, host)
	defer store.Close()
	err := store.Source.Fetch(t.Context(), ref("https", host, "k"), "", (&sourcetest.Sink{}).Begin)
	if p := problem.Of(err); p.Title != "StoreUnavailable" || !strings.Contains(p.Detail, "does not speak TLS") {
		t.Errorf("got %v", err)
	}
	if _, err := New(Config{Store: "web"}); err == nil {
		t.Error("a store without hosts")
	}
}
