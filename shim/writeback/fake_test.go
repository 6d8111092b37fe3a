package writeback

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// fakeStore is a store with one bucket, as far as the package uses it.
type fakeStore struct {
	mu       sync.Mutex
	objects  map[string]fakeObject
	uploads  map[string]*fakeUpload
	last     int
	working  sync.WaitGroup // requests that are applied late
	requests map[string]int
}

type fakeObject struct {
	content []byte
	tag     string
	header  http.Header
	at      time.Time
}

type fakeUpload struct {
	key    string
	header http.Header
	part   []byte
}

func newFakeStore() *fakeStore {
	return &fakeStore{objects: map[string]fakeObject{}, uploads: map[string]*fakeUpload{}, requests: map[string]int{}}
}

func etag(b []byte) string { s := md5.Sum(b); return `"` + hex.EncodeToString(s[:]) + `"` }

// markers are the keys of what is pending.
func (s *fakeStore) markers() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		if strings.HasPrefix(key, markers) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *fakeStore) get(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.objects[key].content)
}

// apply carries out a request whose body has been read.
func (s *fakeStore) apply(r *http.Request, body []byte) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(status int, header http.Header, text string) *http.Response {
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: r}
	}
	fails := func(status int, code string) *http.Response {
		return answer(status, nil, "<Error><Code>"+code+"</Code></Error>")
	}
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q := r.URL.Query()
	s.requests[r.Method]++
	old, there := s.objects[key]
	if sum := r.Header.Get("Content-Md5"); sum != "" {
		if got := md5.Sum(body); base64.StdEncoding.EncodeToString(got[:]) != sum {
			return fails(400, "BadDigest")
		}
	}
	upload := s.uploads[q.Get("uploadId")]
	switch {
	case key == "":
		text := "<ListBucketResult>"
		for _, k := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(k, q.Get("prefix")) {
				text += "<Contents><Key>" + k + "</Key><ETag>" + html.EscapeString(s.objects[k].tag) + "</ETag><LastModified>" +
					s.objects[k].at.UTC().Format(time.RFC3339) + "</LastModified></Contents>"
			}
		}
		return answer(200, http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}, text+"</ListBucketResult>")
	case q.Has("uploads"):
		s.last++
		id := fmt.Sprint("u", s.last)
		s.uploads[id] = &fakeUpload{key: key, header: r.Header.Clone()}
		return answer(200, nil, "<InitiateMultipartUploadResult><UploadId>"+id+"</UploadId></InitiateMultipartUploadResult>")
	case q.Has("uploadId") && upload == nil:
		return fails(404, "NoSuchUpload")
	case q.Has("partNumber"):
		upload.part = body
		return answer(200, http.Header{"Etag": {etag(body)}}, "")
	case q.Has("uploadId") && r.Method == http.MethodDelete:
		delete(s.uploads, q.Get("uploadId"))
		return answer(204, nil, "")
	case q.Has("uploadId"):
		delete(s.uploads, q.Get("uploadId"))
		sum := md5.Sum(upload.part)
		tag := tagOf(sum[:])
		s.objects[key] = fakeObject{upload.part, tag, upload.header, time.Now()}
		return answer(200, nil, "<CompleteMultipartUploadResult><ETag>"+strings.Trim(tag, `"`)+"</ETag></CompleteMultipartUploadResult>")
	case r.Method != http.MethodGet && r.Method != http.MethodHead && (r.Header.Get("If-None-Match") == "*" && there ||
		r.Header.Get("If-Match") != "" && r.Header.Get("If-Match") != old.tag):
		return fails(412, "PreconditionFailed")
	case r.Method == http.MethodPut:
		s.objects[key] = fakeObject{body, etag(body), r.Header.Clone(), time.Now()}
		return answer(200, http.Header{"Etag": {etag(body)}}, "")
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		return answer(204, nil, "")
	case !there:
		return fails(404, "NoSuchKey")
	}
	header := http.Header{"Etag": {old.tag}}
	for name, values := range old.header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			header[name] = values
		}
	}
	return answer(200, header, string(old.content))
}

// fate is what happens to a request.
type fate struct {
	wait    time.Duration // before it is applied
	lost    bool          // its answer is lost, at once,
	later   time.Duration // and it is applied that much later; below 0: never
	refused int           // a status, and it is not applied
	code    string        // the error's, if it has one
}

// link is a node's way to the store.
type link struct {
	store *fakeStore
	fate  func(r *http.Request) fate
	cut   chan struct{} // closed: the node has crashed
}

var errLost = errors.New("the answer is lost")

func (l *link) Forward(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = b
	}
	f := l.fate(r)
	wait := time.NewTimer(f.wait)
	defer wait.Stop()
	select {
	case <-l.cut:
		return nil, errLost
	default:
	}
	late := func() {
		l.store.working.Go(func() {
			if f.later >= 0 {
				time.Sleep(f.later)
				l.store.apply(r, body)
			}
		})
	}
	if f.lost {
		late()
		return nil, errLost
	}
	select {
	case <-wait.C:
	case <-l.cut:
		late()
		return nil, errLost
	case <-r.Context().Done():
		late()
		return nil, r.Context().Err()
	}
	if f.refused != 0 {
		return &http.Response{StatusCode: f.refused, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(map[bool]string{true: "<Error><Code>" + f.code + "</Code></Error>"}[f.code != ""]))}, nil
	}
	return l.store.apply(r, body), nil
}
