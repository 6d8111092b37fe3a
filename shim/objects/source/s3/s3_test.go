package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Store {
		store := &fakeStore{}
		s, end := serve(t, store)
		return sourcetest.Store{
			Source: s, Scheme: source.SchemeS3, Bucket: testBucket, Part: Part, Close: end,
			Put: func(ref source.Reference, contentType string, content []byte) error {
				store.set(ref, newObject(contentType, string(content)))
				return nil
			},
			Delete: func(ref source.Reference) error { store.set(ref, nil); return nil },
		}
	})
}

// A request is signed with the secret as it is now, also when its id stays.
func TestAChangedSecretSigns(t *testing.T) {
	s, end := serve(t, &fakeStore{})
	defer end()
	sign := func(secret string) string {
		r := httptest.NewRequest(http.MethodGet, "http://store.test/inputs/k", nil)
		c := aws.Credentials{AccessKeyID: testKeyID, SecretAccessKey: secret}
		if err := s.client.Options().HTTPSignerV4.SignHTTP(t.Context(), c, r, "", "s3", "eu-central-1", time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("Authorization")
	}
	first, other, again := sign(testSecret), sign("another"), sign(testSecret)
	if first == other || first != again {
		t.Errorf("signed with one secret, another and the first again:\n%s\n%s\n%s", first, other, again)
	}
}

// An object of one part costs one request; a large one is read in order by as many
// connections as are allowed, and no more.
func TestFetchAsksInOrderAndInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// No answer before everybody who is going to ask has asked.
		store := &fakeStore{before: func(http.ResponseWriter, *http.Request) bool { time.Sleep(time.Second); return false }}
		s, end := serve(t, store)
		defer end()
		small, large := store.put("small", "x"), store.put("large", strings.Repeat("x", 20*Part+1))
		for _, ref := range []source.Reference{small, large} {
			if err := s.Fetch(t.Context(), ref, "", (&sourcetest.Sink{}).Begin); err != nil {
				t.Fatal(err)
			}
		}
		if store.requests[0] != store.requests[1] {
			t.Errorf("the first two requests are %q", store.requests[:2])
		}
		var want []string
		for at := 0; at < 21; at++ {
			want = append(want, fmt.Sprintf("GET bytes=%d-%d", at*Part, min((at+1)*Part, 20*Part+1)-1))
		}
		if got := store.requests[1:]; !equalSets(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
		if store.most != ranged.Connections {
			t.Errorf("%d requests at the same time, want %d", store.most, ranged.Connections)
		}
	})
}

// What goes wrong once is asked for again, from the byte reached.
func TestFetchGoesOn(t *testing.T) {
	content := strings.Repeat("0123456789abcdef", 3*Part/16)
	for name, fault := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500": func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusInternalServerError, "InternalError")
		},
		"slow down":   func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusServiceUnavailable, "SlowDown") },
		"too many":    func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusTooManyRequests, "TooMany") },
		"reset":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"stall":       func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"stall later": func(w http.ResponseWriter, r *http.Request) { half(w, r, content); <-r.Context().Done() },
		"cut short":   func(w http.ResponseWriter, r *http.Request) { half(w, r, content); panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var faults atomic.Int32
				store := &fakeStore{before: func(w http.ResponseWriter, r *http.Request) bool {
					// Every other request fails, at most as often as a part may.
					if n := faults.Add(1); n%2 == 0 || n > 2*ranged.Breaks-1 {
						return false
					}
					fault(w, r)
					return true
				}}
				s, end := serve(t, store)
				defer end()
				sink := &sourcetest.Sink{}
				if err := s.Fetch(t.Context(), store.put("k", content), "", sink.Begin); err != nil {
					t.Fatal(err)
				}
				if string(sink.Content) != content {
					t.Error("the content is another")
				}
				if name == "cut short" && !slices.Contains(store.requests, fmt.Sprintf("GET bytes=%d-%d", Part/2, Part-1)) {
					t.Errorf("no request goes on in the middle of a part: %q", store.requests)
				}
			})
		})
	}
}

// half answers with the first half of the range that r asks for.
func half(w http.ResponseWriter, r *http.Request, content string) {
	var from, to int
	// The client is our own; a wrong range would fail the comparison of the content.
	_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
	whole := &fakeStore{objects: map[string]fakeObject{r.URL.Path: *newObject("text/plain", content)}}
	whole.ServeHTTP(&limited{w, (to - from + 1) / 2}, r)
	_ = http.NewResponseController(w).Flush()
}

type limited struct {
	http.ResponseWriter
	left int
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		p = p[:l.left]
	}
	n, err := l.ResponseWriter.Write(p)
	if l.left -= n; l.left == 0 && err == nil {
		err = errors.New("enough")
	}
	return n, err
}

// What stays wrong is told, within a bounded time.
func TestFetchFails(t *testing.T) {
	answer := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { refuse(w, status, code) }
	}
	with := func(status int, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
		}
	}
	const atOnce, retried, stalled = 0, ranged.Away, ranged.Patience
	for name, in := range map[string]struct {
		handler http.HandlerFunc
		title   string
		status  int
		says    string
		within  time.Duration
	}{
		"missing":           {answer(404, "NoSuchBucket"), "InputNotFound", 404, `no object "s3://inputs/k"`, atOnce},
		"forbidden":         {answer(403, "SignatureDoesNotMatch"), "StoreForbidden", 502, `403 "SignatureDoesNotMatch"`, atOnce},
		"expired":           {answer(400, "ExpiredToken"), "StoreForbidden", 502, `400 "ExpiredToken"`, atOnce},
		"unknown key":       {answer(404, "XAdminUserNotFound"), "StoreForbidden", 502, `404 "XAdminUserNotFound"`, atOnce},
		"bad request":       {answer(400, "InvalidRequest"), "StoreUnavailable", 502, `400 "InvalidRequest"`, atOnce},
		"redirect":          {with(307, "Location", "http://169.254.169.254/"), "StoreUnavailable", 502, "307", atOnce},
		"500":               {answer(500, "InternalError"), "StoreUnavailable", 502, `500 "InternalError"`, retried},
		"503":               {answer(503, "SlowDown"), "StoreUnavailable", 502, `503 "SlowDown"`, retried},
		"reset":             {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "StoreUnavailable", 502, "connection failed", retried},
		"stalled":           {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "StoreTimeout", 504, "in time", stalled},
		"endless error":     {endless, "StoreUnavailable", 502, "500", retried},
		"no entity tag":     {with(206, "Content-Range", "bytes 0-0/1", "Content-Length", "0"), "StoreUnavailable", 502, "entity tag", atOnce},
		"no range":          {with(200, "ETag", `"e"`, "Content-Length", fmt.Sprint(Part+1)), "StoreUnavailable", 502, "does not serve ranges", atOnce},
		"another range":     {with(206, "ETag", `"e"`, "Content-Range", "bytes 1-1/2"), "StoreUnavailable", 502, "answers range", atOnce},
		"unknown size":      {with(206, "ETag", `"e"`, "Content-Range", "bytes 0-0/*"), "StoreUnavailable", 502, "content range", atOnce},
		"negative size":     {with(206, "ETag", `"e"`, "Content-Range", "bytes 0--6/-5"), "StoreUnavailable", 502, "answers range", atOnce},
		"empty, then not":   {emptyThenNot, "InputChanged", 502, "changed", atOnce},
		"header of a giant": {with(200, "X-Large", strings.Repeat("x", 2*ranged.MaxHeader)), "StoreUnavailable", 502, "connection failed", retried},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{before: func(w http.ResponseWriter, r *http.Request) bool { in.handler(w, r); return true }}
				s, end := serve(t, store)
				defer end()
				begun := time.Now()
				err := s.Fetch(t.Context(), store.put("k", "content"), "", (&sourcetest.Sink{}).Begin)
				if took := time.Since(begun); took > in.within {
					t.Errorf("it took %v, want at most %v", took, in.within)
				}
				var p *problem.Problem
				if !errors.As(err, &p) || p.Title != in.title || p.Status != in.status || !strings.Contains(p.Detail, in.says) {
					t.Errorf("got %v", err)
				}
				if strings.Contains(err.Error(), testSecret) {
					t.Errorf("the error repeats what the store says: %v", err)
				}
			})
		})
	}
}

// endless answers with an error that never ends: only a reader that stops gets away.
func endless(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusInternalServerError)
	for err := error(nil); err == nil; {
		_, err = w.Write(make([]byte, 1<<10))
	}
}

func emptyThenNot(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
		return
	}
	w.Header().Set("Content-Length", "5")
}

// A store that does not know If-Match is found out by its entity tag.
func TestFetchComparesEntityTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{before: func(_ http.ResponseWriter, r *http.Request) bool { r.Header.Del("If-Match"); return false }}
		s, end := serve(t, store)
		defer end()
		ref := store.put("k", strings.Repeat("a", 20*Part))
		sink := &sourcetest.Sink{OnBegin: func() error { store.put("k", strings.Repeat("b", 20*Part)); return nil }}
		if err := s.Fetch(t.Context(), ref, "", sink.Begin); problem.Of(err).Title != "InputChanged" {
			t.Errorf("got %v", err)
		}
	})
}

// A stalled store does not hold up a caller who gives up.
func TestFetchReturnsWhenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{before: func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }}
		s, end := serve(t, store)
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		err := s.Fetch(ctx, store.put("k", "content"), "", (&sourcetest.Sink{}).Begin)
		if problem.Of(err).Title != "StoreTimeout" || !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

func TestFetchStaysInItsBuckets(t *testing.T) {
	s, end := serve(t, http.NotFoundHandler())
	defer end()
	for _, ref := range []source.Reference{{Scheme: "s3", Bucket: "other", Key: "k"}, {Scheme: "redis", Bucket: testBucket, Key: "k"}, {}} {
		p := problem.Of(s.Fetch(t.Context(), ref, "", (&sourcetest.Sink{}).Begin))
		if p.Title != "StoreNotAllowed" || p.Status != http.StatusForbidden || p.Field != "headstart.dev/input" {
			t.Errorf("%s: %v", ref, p)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no region":      func(c *Config) { c.Region = "" },
		"no credentials": func(c *Config) { c.Credentials = nil },
		"file":           func(c *Config) { c.Endpoint = "file:///etc" },
		"no host":        func(c *Config) { c.Endpoint = "http:///x" },
		"user":           func(c *Config) { c.Endpoint = "http://user:" + testSecret + "@store.test" },
		"not a URL":      func(c *Config) { c.Endpoint = "http://user:" + testSecret + "@store.test:x" },
	} {
		cfg := config(sourcetest.Secrets(t, "edge", 0o600, ""))
		change(&cfg)
		if _, err := New(cfg); err == nil || strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func equalSets(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// That an object has not changed is believed of a store that was asked, and says it of the version that was asked for.
func TestNotModified(t *testing.T) {
	for name, in := range map[string]struct{ held, tag, want string }{
		"asked":                   {held: `"v1"`},
		"asked, with the tag":     {held: `"v1"`, tag: `"v1"`},
		"asked, with another tag": {held: `"v1"`, tag: `"v2"`, want: "content"},
		"not asked":               {want: "StoreUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			store := &fakeStore{}
			store.before = func(w http.ResponseWriter, r *http.Request) bool {
				if in.held != "" && r.Header.Get("If-None-Match") == "" {
					return false
				}
				if in.tag != "" {
					w.Header().Set("ETag", in.tag)
				}
				w.WriteHeader(http.StatusNotModified)
				return true
			}
			s, end := serve(t, store)
			defer end()
			sink := &sourcetest.Sink{}
			err := s.Fetch(t.Context(), store.put("k", "content"), in.held, sink.Begin)
			got := string(sink.Content)
			if _, unchanged := errors.AsType[*source.Unchanged](err); !unchanged && err != nil {
				got = problem.Of(err).Title
			}
			if got != in.want || err == nil && in.want == "" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
