package s3

import (
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/secret"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
)

const (
	testBucket = "inputs"
	testSecret = "wJalrXUtnFEMI-a-secret"
	testKeyID  = "AKIAIOSFODNN7EXAMPLE"
)

// fakeStore serves objects as S3 does: http.ServeContent knows ranges and If-Match.
type fakeStore struct {
	// before sees each request first; true means that it has answered.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	objects  map[string]fakeObject
	requests []string // method and range
	parallel int
	most     int // of parallel
}

type fakeObject struct{ contentType, content, tag string }

func newObject(contentType, content string) *fakeObject {
	return &fakeObject{contentType, content, fmt.Sprintf(`"%x"`, md5.Sum([]byte(content)))}
}

func (s *fakeStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.Header.Get("Range"))
	s.parallel++
	s.most = max(s.most, s.parallel)
	object, ok := s.objects[r.URL.Path]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.parallel--
	}()
	if s.before != nil && s.before(w, r) {
		return
	}
	if r.URL.Query().Get("list-type") == "2" {
		s.list(w, r)
		return
	}
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("Content-Type", object.contentType)
	w.Header().Set("ETag", object.tag)
	http.ServeContent(w, r, "", time.Time{}, strings.NewReader(object.content))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	// The client may have gone.
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>you sent %s</Message></Error>", code, testSecret)
}

func (s *fakeStore) put(key, content string) source.Reference {
	ref := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: key}
	s.set(ref, newObject("text/plain", content))
	return ref
}

// set replaces an object, or removes it when object is nil.
func (s *fakeStore) set(ref source.Reference, object *fakeObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := maps.Clone(s.objects)
	if objects == nil {
		objects = map[string]fakeObject{}
	}
	delete(objects, "/"+ref.Bucket+"/"+ref.Key)
	if object != nil {
		objects["/"+ref.Bucket+"/"+ref.Key] = *object
	}
	s.objects = objects
}

// pipes is a network in memory: inside a synctest bubble its time is the bubble's.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.closed:
		return nil, errors.New("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve returns a source whose store is handler, and a function that ends both.
func serve(t *testing.T, handler http.Handler) (*Source, func()) {
	t.Helper()
	s, err := New(config(sourcetest.Secrets(t, "edge", 0o600, testFile(testKeyID, testSecret))))
	if err != nil {
		t.Fatal(err)
	}
	network := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	s.transport.DialContext = network.dial
	server := &http.Server{Handler: handler}
	served := make(chan error, 1)
	go func() { served <- server.Serve(network) }()
	return s, func() {
		s.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		<-served
	}
}

// testFile is a secret's file.
func testFile(keyID, secret string) string {
	return "access_key_id=" + keyID + "\nsecret_access_key=" + secret
}

func config(secrets *os.Root) Config {
	return Config{
		Store: "edge", Endpoint: "http://store.test", Region: "eu-central-1", PathStyle: true, Buckets: []string{testBucket},
		Credentials: FromSecret(func(context.Context) (secret.Secret, error) { return LoadCredentials(secrets, "edge") }),
	}
}
