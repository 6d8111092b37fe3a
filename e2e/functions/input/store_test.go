package input

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// s3Server serves one object, /bucket/key, in the way of S3.
type s3Server struct {
	content []byte
	// answer, if set, is called first; true: it has answered the request.
	answer func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string // range and condition of each
}

const etag = `"version-1"`

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Header.Get("Range")+" "+r.Header.Get("If-Match"))
	s.mu.Unlock()
	switch {
	case s.answer != nil && s.answer(w, r):
	case r.URL.Path != "/bucket/key":
		s3Error(w, http.StatusNotFound, "NoSuchKey")
	case len(s.content) == 0:
		s3Error(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
	default:
		w.Header().Set("Etag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content))
	}
}

func s3Error(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

func randomBytes(n int) []byte {
	content := make([]byte, n)
	rand.NewChaCha8([32]byte{}).Read(content)
	return content
}

const secret = "the-secret-access-key"

func startStore(t *testing.T, server *s3Server) *S3 {
	t.Helper()
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	return NewS3(s.URL, "us-east-1", "id", secret)
}

func TestGetReadsTheWholeObject(t *testing.T) {
	for _, size := range []int{0, 1, partSize - 1, partSize, partSize + 1, 3*partSize + 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			server := &s3Server{content: randomBytes(size)}
			got, err := startStore(t, server).Get(t.Context(), "bucket", "key", 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, server.content) {
				t.Errorf("%d bytes, not the %d of the object", len(got), size)
			}
		})
	}
}

func TestGetAsksForPartsOfOneVersion(t *testing.T) {
	server := &s3Server{content: randomBytes(2*partSize + 5)}
	if _, err := startStore(t, server).Get(t.Context(), "bucket", "key", 1<<30); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bytes=0-8388607 ",
		"bytes=16777216-25165823 " + etag,
		"bytes=8388608-16777215 " + etag,
	}
	slices.Sort(server.requests)
	if diff := cmp.Diff(want, server.requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestGetRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		key    string
		answer func(http.ResponseWriter, *http.Request) bool
		status int
		want   string
	}{
		{"no such object", "other", nil, http.StatusNotFound, `object "other" in bucket "bucket": the store answers 404 NoSuchKey`},
		{"forbidden", "key", func(w http.ResponseWriter, _ *http.Request) bool {
			s3Error(w, http.StatusForbidden, "SignatureDoesNotMatch")
			return true
		}, http.StatusForbidden, "the store answers 403 SignatureDoesNotMatch"},
		{"changed while reading", "key", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("If-Match") == "" {
				return false
			}
			s3Error(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return true
		}, http.StatusConflict, "the object changed while it was read"},
		{"no ranges", "key", func(w http.ResponseWriter, _ *http.Request) bool {
			w.Write([]byte("all of it"))
			return true
		}, http.StatusBadGateway, "the store does not answer requests for ranges"},
		{"broken off", "key", func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasPrefix(r.Header.Get("Range"), "bytes=8388608-") {
				return false
			}
			w.Header().Set("Content-Length", fmt.Sprint(partSize))
			w.WriteHeader(http.StatusPartialContent)
			w.Write([]byte("half of it"))
			return true
		}, http.StatusBadGateway, "the store cannot be reached or broke off"},
		{"another length", "key", func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("If-Match") == "" {
				return false
			}
			w.WriteHeader(http.StatusPartialContent)
			w.Write([]byte("less"))
			return true
		}, http.StatusBadGateway, "the store cannot be reached or broke off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := startStore(t, &s3Server{content: randomBytes(3 * partSize), answer: c.answer})
			_, err := store.Get(t.Context(), "bucket", c.key, 1<<30)
			refusal := new(Refusal)
			if !errors.As(err, &refusal) || refusal.Status != c.status || !strings.Contains(refusal.Message, c.want) {
				t.Errorf("error %v, want status %d and %q", err, c.status, c.want)
			}
			if strings.Contains(fmt.Sprint(err), secret) {
				t.Error("the error tells the secret")
			}
		})
	}
}

func TestGetRefusesLargeObjectUnread(t *testing.T) {
	server := &s3Server{content: randomBytes(2 * partSize)}
	_, err := startStore(t, server).Get(t.Context(), "bucket", "key", partSize)
	if refusal := new(Refusal); !errors.As(err, &refusal) || refusal.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("error %v, want status 413", err)
	}
	if len(server.requests) != 1 {
		t.Errorf("%d requests for an object that is too large, want 1", len(server.requests))
	}
}
