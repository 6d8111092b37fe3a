//go:build integration

package sdks_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/headstart-mesh/headstart/e2e/sdks"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// defect is what a broken proxy does to requests and answers, and the cases in which each SDK has to notice it.
type defect struct {
	request  func(*http.Request)
	response func(*http.Response) error
	handler  func(http.Handler) http.Handler
	capitals bool
	cases    []string
	except   []sdks.Client
}

var defects = map[string]defect{
	"ignores Range": {
		request: func(r *http.Request) { r.Header.Del("Range") },
		cases: []string{"range of the first bytes", "range after the end", "object of 20 MiB in parts",
			"presigned GET"},
	},
	"ignores If-None-Match": {
		request: func(r *http.Request) { r.Header.Del("If-None-Match") },
		cases:   []string{"conditional GET", "conditional PUT"},
	},
	"loses the delimiter": {
		request: func(r *http.Request) {
			query := r.URL.Query()
			query.Del("delimiter")
			r.URL.RawQuery = query.Encode()
		},
		cases: []string{"list"},
	},
	"decodes keys twice": {
		request: func(r *http.Request) {
			if path, err := url.PathUnescape(r.URL.Path); err == nil {
				r.URL.Path, r.URL.RawPath = path, ""
			}
		},
		cases: []string{"key of an escaped slash"},
	},
	"believes any signature": {request: func(*http.Request) {}, cases: []string{"presigned GET", "presigned PUT"}},
	"loses the ETag": {
		response: without("Etag"),
		cases:    []string{"object of 1 KiB", "multipart upload by hand", "presigned GET"},
	},
	"loses metadata":         {response: without("X-Amz-Meta-Camera"), cases: []string{"metadata"}},
	"loses Content-Encoding": {response: without("Content-Encoding"), cases: []string{"metadata"}},
	"loses the default sum":  {response: without("X-Amz-Checksum-Crc32"), cases: []string{"default checksum"}},
	// As Go's HTTP server spells all names of headers.
	"writes metadata's names in capitals": {
		capitals: true,
		cases:    []string{"metadata", "multipart upload by hand"},
		except:   []sdks.Client{sdks.JS, sdks.Go}, // they do not show how names are written
	},
	"changes a byte of bodies": {
		response: changeByte,
		cases:    []string{"object of 1 KiB", "object of 5 MiB", "presigned GET"},
	},
	"cuts bodies short": {
		response: func(r *http.Response) error {
			r.Body = io.NopCloser(io.LimitReader(r.Body, 500))
			return nil
		},
		cases: []string{"object of 1 KiB", "presigned GET"},
		// It waits indefinitely for a body that ends early.
		except: []sdks.Client{sdks.JS},
	},
	"has no codes for errors": {
		response: func(r *http.Response) error {
			if r.StatusCode == http.StatusNotFound {
				r.Body, r.ContentLength = http.NoBody, 0
				r.Header.Set("Content-Length", "0")
			}
			return nil
		},
		cases: []string{"no such key", "bucket that does not exist"},
	},
	"keeps an object that is overwritten": {
		handler: cached(false),
		cases:   []string{"read your writes", "delete"},
	},
	"keeps an object that another client has overwritten": {
		handler: cached(true),
		cases:   []string{"overwritten by another client"},
	},
}

func proxy(t *testing.T, s *testbed.S3, d defect) string {
	server := httptest.NewServer(handler(t, s, d))
	t.Cleanup(server.Close)
	return server.URL
}

// handler passes requests on to the store. It signs those again that a defect changes.
func handler(t *testing.T, s *testbed.S3, d defect) http.Handler {
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	var handler http.Handler = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", strings.TrimPrefix(s.Endpoint, "http://")
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			if d.request == nil {
				return
			}
			d.request(r.Out)
			query := r.Out.URL.Query()
			for name := range query {
				if strings.HasPrefix(name, "X-Amz-") {
					query.Del(name)
				}
			}
			r.Out.URL.RawQuery = query.Encode()
			r.Out.Host = r.Out.URL.Host
			hash := r.Out.Header.Get("X-Amz-Content-Sha256")
			if hash == "" {
				hash = "UNSIGNED-PAYLOAD"
				r.Out.Header.Set("X-Amz-Content-Sha256", hash)
			}
			key := aws.Credentials{AccessKeyID: s.Secret.Access, SecretAccessKey: s.Secret.Key}
			if err := signer.SignHTTP(r.Out.Context(), key, r.Out, hash, "s3", testbed.Region, time.Now()); err != nil {
				t.Error(err)
			}
		},
		ModifyResponse: d.response,
		// Not kept alive: versitygw does not read the end of a chunked body, and answers it as another request.
		Transport: &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	}
	if !d.capitals {
		handler = lowercase(handler)
	}
	if d.handler != nil {
		handler = d.handler(handler)
	}
	return handler
}

// lowercase writes metadata's names as the store does.
func lowercase(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(&lowercaseWriter{w}, r) })
}

type lowercaseWriter struct{ http.ResponseWriter }

func (w *lowercaseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *lowercaseWriter) WriteHeader(status int) {
	for name, values := range w.Header() {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			delete(w.Header(), name)
			w.Header()[strings.ToLower(name)] = values
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func without(header string) func(*http.Response) error {
	return func(r *http.Response) error {
		r.Header.Del(header)
		return nil
	}
}

func changeByte(r *http.Response) error {
	if r.Header.Get("Etag") == "" {
		return nil // no object
	}
	data, err := io.ReadAll(r.Body)
	if len(data) > 0 {
		data[len(data)/2]++
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	return err
}

// cached answers a GET as it answered the first one of that key. A key that was written is forgotten, if it forgets.
func cached(forgets bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		var mu sync.Mutex
		kept := map[string]*httptest.ResponseRecorder{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method != http.MethodGet || r.Header.Get("Range") != "" || r.URL.Path == "/"+testbed.Bucket {
				if forgets && r.Method != http.MethodGet && r.Method != http.MethodHead {
					delete(kept, r.URL.Path)
				}
				next.ServeHTTP(w, r)
				return
			}
			answer := kept[r.URL.Path]
			if answer == nil {
				answer = httptest.NewRecorder()
				next.ServeHTTP(answer, r)
				if answer.Code == http.StatusOK {
					kept[r.URL.Path] = answer
				}
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()) // the client may be gone
		})
	}
}
