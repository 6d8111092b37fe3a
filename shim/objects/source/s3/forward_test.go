package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/s3proxy/sigv4"
)

// verifying is a store that takes requests only if they are signed by its own keys.
type verifying struct {
	mu    sync.Mutex
	asked []asked
}

// asked is a request as the store has got it.
type asked struct {
	host, target, path string
	header             http.Header
	body               string
	err                error // of its signature, or of its payload
}

func (v *verifying) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := asked{host: r.Host, target: r.RequestURI, path: r.URL.Path, header: r.Header}
	signed, err := sigv4.Verify(r, time.Now(), func(id string) (string, string, bool) {
		return testSecret, "", id == testKeyID
	})
	if a.err = err; err == nil {
		var body []byte
		body, a.err = io.ReadAll(signed.Body(r.Body))
		a.body = string(body)
	}
	v.mu.Lock()
	v.asked = append(v.asked, a)
	v.mu.Unlock()
	w.Header().Set("ETag", `"e"`)
	w.WriteHeader(http.StatusTeapot)
	_, _ = io.WriteString(w, "as it is")
}

// last is the last request.
func (v *verifying) last() asked {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked[len(v.asked)-1]
}

// forwarded is a request as the proxy has it: with the path as the client has escaped it.
func forwarded(t interface{ Fatal(...any) }, method, escaped, query, body string) *http.Request {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.URL = &url.URL{Path: path, RawPath: escaped, RawQuery: query}
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	return r
}

// Requests come to the store as they are, with its own signature, for each style of its addresses and however their
// keys are escaped.
func TestForward(t *testing.T) {
	for style, host := range map[bool]string{true: "store.test", false: testBucket + ".store.test"} {
		v := &verifying{}
		s, end := serveStyle(t, v, style)
		defer end()
		for name, in := range map[string]struct{ path, query, body string }{
			"a bucket":                   {path: "/inputs"},
			"a bucket with a slash":      {path: "/inputs/"},
			"a bucket's list":            {path: "/inputs", query: "list-type=2&prefix=a+b%2Fc%3B&delimiter=%2F"},
			"a key":                      {path: "/inputs/k", query: "versionId=1%2B1"},
			"a body":                     {path: "/inputs/k", body: "content"},
			"directories":                {path: "/inputs/a/b/c.jpg"},
			"empty segments":             {path: "/inputs//a//b/"},
			"a space":                    {path: "/inputs/a%20b"},
			"a plus":                     {path: "/inputs/a+b"},
			"an escaped plus":            {path: "/inputs/a%2Bb"},
			"a percent":                  {path: "/inputs/100%25"},
			"escaped twice":              {path: "/inputs/a%252Fb"},
			"an escaped slash":           {path: "/inputs/a%2Fb"},
			"question mark and hash":     {path: "/inputs/a%3Fb%23c"},
			"another alphabet":           {path: "/inputs/%C3%A4%E6%BC%A2"},
			"not text":                   {path: "/inputs/%FF%00%7F"},
			"as Go escapes it":           {path: "/inputs/a!b(c)'*,;:@&=$"},
			"as S3 escapes it":           {path: "/inputs/a%21b%28c%29%27%2A%2C%3B%3A%40%26%3D%24"},
			"what nobody has to escape":  {path: "/inputs/%61-_.~%7E"},
			"escapes in lower case":      {path: "/inputs/%c3%a4"},
			"the longest key":            {path: "/inputs/" + strings.Repeat("k", 1024)},
			"a key like a bucket's path": {path: "/inputs/inputs/k"},
		} {
			t.Run(name, func(t *testing.T) {
				r := forwarded(t, http.MethodPut, in.path, in.query, in.body)
				r.ContentLength = int64(len(in.body))
				res, err := s.Forward(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				said, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != http.StatusTeapot || string(said) != "as it is" {
					t.Errorf("answered %d %q, %v", res.StatusCode, said, err)
				}
				got, want := v.last(), r.URL.Path
				if !style {
					want = "/" + strings.TrimPrefix(strings.TrimPrefix(want, "/inputs"), "/")
				}
				if got.err != nil || got.host != host || got.path != want || got.body != in.body {
					t.Errorf("the store gets %s of %s with %q: %v", got.target, got.host, got.body, got.err)
				}
				_, query, _ := strings.Cut(got.target, "?")
				if a, b := values(t, query), values(t, in.query); a.Encode() != b.Encode() {
					t.Errorf("the store gets the query %q", query)
				}
			})
		}
	}
}

func values(t *testing.T, query string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func serveStyle(t *testing.T, handler http.Handler, path bool) (*Source, func()) {
	t.Helper()
	s, end := serve(t, handler)
	s.options.UsePathStyle = path
	return s, end
}

// Whatever a key has, and however a client escapes it, the store gets it, and finds the signature right.
func TestForwardTakesEachKey(t *testing.T) {
	v := &verifying{}
	s, end := serve(t, v)
	defer end()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "key")
		var escaped strings.Builder
		for _, c := range key {
			plain := c != '/' && url.PathEscape(string(rune(c))) == string(rune(c))
			switch {
			case c == '/' && rapid.Bool().Draw(t, "slash"), plain && rapid.Bool().Draw(t, "plain"):
				escaped.WriteByte(c)
			default:
				fmt.Fprintf(&escaped, "%%%02X", c)
			}
		}
		res, err := s.Forward(forwarded(t, http.MethodGet, "/inputs/"+escaped.String(), "", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got := v.last(); got.err != nil || got.path != "/inputs/"+string(key) {
			t.Fatalf("the store gets %q for %q: %v", got.path, key, got.err)
		}
	})
}

// What a client says of itself does not reach the store.
func TestForwardHidesTheClient(t *testing.T) {
	v := &verifying{}
	s, end := serve(t, v)
	defer end()
	r := forwarded(t, http.MethodGet, "/inputs/k", "", "")
	client := "of the client"
	for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
		r.Header.Set(name, client)
	}
	r.Host = "client.test"
	res, err := s.Forward(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	got := v.last()
	if got.err != nil || got.host != "store.test" {
		t.Errorf("the store gets a request for %s: %v", got.host, got.err)
	}
	for name, values := range got.header {
		if strings.Contains(strings.Join(values, ""), client) {
			t.Errorf("the store gets the client's %s", name)
		}
	}
	if r.Header.Get("Authorization") != client {
		t.Error("the caller's request was changed")
	}
}

// A store's redirect is for the client: the node goes to no other host than the operator's.
func TestForwardFollowsNoRedirect(t *testing.T) {
	for _, status := range []int{301, 302, 307, 308} {
		store := &fakeStore{before: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(status)
			return true
		}}
		s, end := serve(t, store)
		res, err := s.Forward(forwarded(t, http.MethodGet, "/inputs/k", "", ""))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != status || len(store.requests) != 1 {
			t.Errorf("answered %d, after %d requests", res.StatusCode, len(store.requests))
		}
		end()
	}
}

// Errors name the store, and nothing that is secret.
func TestForwardFails(t *testing.T) {
	lost := func(context.Context) (secret.Secret, error) { return secret.Secret{}, errors.New("no such file") }
	store := &fakeStore{before: func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }}
	for name, in := range map[string]struct {
		path string
		load func(context.Context) (secret.Secret, error)
		says string
	}{
		"no credentials": {"/inputs/k", lost, "no such file"},
		"no bucket":      {"/", nil, ""},
		"it breaks off":  {"/inputs/k", nil, "EOF"},
	} {
		cfg := config(sourcetest.Secrets(t, "edge", 0o600, testFile(testKeyID, testSecret)))
		if in.load != nil {
			cfg.Credentials = FromSecret(in.load)
		}
		dialling, end := serve(t, store)
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.transport.DialContext = dialling.transport.DialContext
		res, err := s.Forward(forwarded(t, http.MethodGet, in.path, "", ""))
		if err == nil {
			_ = res.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), `"edge"`) || !strings.Contains(err.Error(), in.says) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), testSecret) {
			t.Errorf("%s: the error has the secret: %v", name, err)
		}
		s.Close()
		end()
	}
}

func TestRegionAndBuckets(t *testing.T) {
	s, end := serve(t, http.NotFoundHandler())
	defer end()
	buckets := s.Buckets()
	buckets[0] = "another"
	if s.Region() != "eu-central-1" || len(s.Buckets()) != 1 || s.Buckets()[0] != testBucket {
		t.Errorf("region %q, buckets %q", s.Region(), s.Buckets())
	}
}
