package s3proxy

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Functions only read the bucket archive. The store has more buckets.
const (
	testStore, testRegion = "default", "eu-central-1"
	testFunction          = "media/thumbs"
	bufferLimit           = 4 << 20
)

// memory is a store in memory: with the S3 API for what is passed on, and as a source for the cache.
type memory struct {
	// before, if set, sees each request first, and answers it unless both results are nil. fetching, if set, is called
	// before each fetch, and halfway in the middle of one. Set them before the first request.
	before            func(*http.Request) (*http.Response, error)
	fetching, halfway func(ctx context.Context, ref source.Reference) error

	mu      sync.Mutex
	objects map[string]stored // by bucket/key
	asked   []passed
	fetched []string // references
}

// stored is an object. Its header has the entity tag.
type stored struct {
	content []byte
	header  http.Header
}

// passed is a request as the store gets it.
type passed struct {
	method, target string
	header         http.Header
	body           []byte
}

func (p passed) String() string { return p.method + " " + p.target }

func (m *memory) Region() string    { return testRegion }
func (m *memory) Buckets() []string { return []string{"data", "archive"} }

// Forward implements Store. It reads the body as a transport does.
func (m *memory) Forward(r *http.Request) (*http.Response, error) {
	if m.before != nil {
		if res, err := m.before(r); res != nil || err != nil {
			return res, err
		}
	}
	body, err := io.ReadAll(r.Body)
	if err == nil && int64(len(body)) != r.ContentLength {
		err = fmt.Errorf("the body has %d bytes, not %d", len(body), r.ContentLength)
	}
	if err != nil {
		return nil, fmt.Errorf("the connection breaks: %w", err)
	}
	m.mu.Lock()
	m.asked = append(m.asked, passed{r.Method, r.URL.RequestURI(), r.Header.Clone(), body})
	m.mu.Unlock()
	w := httptest.NewRecorder()
	m.serve(w, r, body)
	return w.Result(), nil
}

func (m *memory) serve(w http.ResponseWriter, r *http.Request, body []byte) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	object, has := m.get(name)
	switch {
	case r.Method == http.MethodPut:
		if r.Header.Get("X-Amz-Content-Sha256") == trailing {
			body, _, _ = dechunk(string(body))
		}
		w.Header().Set("Etag", m.put(name, body, r.Header).Get("Etag"))
	case r.Method == http.MethodDelete:
		m.mu.Lock()
		delete(m.objects, name)
		m.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost:
	case !has:
		w.WriteHeader(http.StatusNotFound)
	default:
		maps.Copy(w.Header(), object.header)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(object.content))
	}
}

func (m *memory) get(name string) (stored, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, has := m.objects[name]
	return o, has
}

// put stores an object, with the metadata of a request's header, and returns its header.
func (m *memory) put(name string, content []byte, from http.Header) http.Header {
	o := stored{bytes.Clone(content), http.Header{"Etag": {tagOf(content)}, "Content-Type": {"text/plain"}}}
	for name, values := range from {
		if strings.HasPrefix(name, "X-Amz-Meta-") || name == "Content-Type" {
			o.header[name] = values
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[string]stored{}
	}
	m.objects[name] = o
	return o.header
}

func tagOf(content []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(content)) }

// Fetch implements source.Source.
func (m *memory) Fetch(ctx context.Context, ref source.Reference, held string, begin source.Begin) error {
	m.mu.Lock()
	m.fetched = append(m.fetched, ref.String())
	m.mu.Unlock()
	if m.fetching != nil {
		if err := m.fetching(ctx, ref); err != nil {
			return err
		}
	}
	o, has := m.get(ref.Bucket + "/" + ref.Key)
	switch {
	case ctx.Err() != nil:
		return source.Ended(ctx, testStore, ref)
	case !has:
		return source.NotFound(testStore, ref)
	case held == o.header.Get("Etag"):
		return &source.Unchanged{}
	}
	w, err := begin(source.Object{Size: int64(len(o.content)), ContentType: o.header.Get("Content-Type"),
		Version: o.header.Get("Etag"), Header: o.header.Clone()})
	if err != nil {
		return err
	}
	half := len(o.content) / 2
	if _, err := w.WriteAt(o.content[:half], 0); err != nil {
		return err
	}
	if m.halfway != nil {
		if err := m.halfway(ctx, ref); err != nil {
			return err
		}
	}
	_, err = w.WriteAt(o.content[half:], int64(half))
	return err
}

// takeAsked returns the requests since it was called last.
func (m *memory) takeAsked() []passed {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.asked
	m.asked = nil
	return all
}

// takeFetched returns the references that were fetched since it was called last.
func (m *memory) takeFetched() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.fetched
	m.fetched = nil
	return all
}

// node is a server with a cache, and a store in memory.
type node struct {
	*Server
	t        *testing.T
	store    *memory
	cache    *objects.Cache
	buffer   *buffer.Buffer
	registry *prometheus.Registry

	mu     sync.Mutex
	fresh  time.Duration
	logged bytes.Buffer
	events []*nodeapi.Event
}

// Write is for the server's log.
func (n *node) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.logged.Write(p)
}

func (n *node) log() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.logged.String()
}

func (n *node) says(fresh time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fresh = fresh
}

func (n *node) rule(_, bucket string) objects.Rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	rule := objects.Rule{Fresh: n.fresh}
	if bucket == "data" {
		rule.Write = "through"
	}
	return rule
}

// start starts a node. change changes its configuration; nil: not at all.
func start(t *testing.T, change func(*Config)) *node {
	t.Helper()
	n := &node{t: t, store: &memory{}, registry: prometheus.NewRegistry()}
	var err error
	if n.buffer, err = buffer.Open(t.TempDir()+"/b", bufferLimit); err != nil {
		t.Fatal(err)
	}
	n.cache = objects.New(objects.Config{Rule: n.rule, Buffer: n.buffer, Age: time.Hour,
		Sources: func(_, store string) (source.Source, error) {
			if store != testStore {
				return nil, problem.New(http.StatusBadGateway, "StoreUnknown", "", "no such store")
			}
			return n.store, nil
		}})
	c := Config{
		Await: func(context.Context) {},
		Store: func(string, string) (Store, error) { return n.store, nil },
		Rule:  n.rule, Objects: n.cache,
		Function:    func(string) string { return testFunction },
		Adopt:       func(string) error { return errors.New("nobody knows it") },
		Traceparent: func(string) string { return "" },
		Event: func(e *nodeapi.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
		},
		Metrics: NewMetrics(n.registry),
		Log:     slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&c)
	}
	n.Server = New(c)
	t.Cleanup(func() {
		n.Server.Close()
		if err := errors.Join(n.cache.Close(context.Background()), n.buffer.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// box makes a sandbox.
func (n *node) box(id string) *sandbox {
	sb := &sandbox{id: id, namespace: "media", note: note{Store: testStore, Key: newKey()}}
	n.Server.mu.Lock()
	defer n.Server.mu.Unlock()
	n.sandboxes[id] = sb
	return sb
}

// do has the node answer a request. broken: it has broken the connection.
func (n *node) do(sb *sandbox, r *http.Request) (res *http.Response, body string, broken bool) {
	n.t.Helper()
	w := httptest.NewRecorder()
	func() {
		defer func() {
			switch e := recover(); e {
			case nil:
			case http.ErrAbortHandler:
				broken = true
			default:
				panic(e)
			}
		}()
		(&handler{n.Server, sb}).ServeHTTP(w, r)
	}()
	res = w.Result()
	spelled := http.Header{} // as a client of Go has them
	for name, values := range res.Header {
		spelled[http.CanonicalHeaderKey(name)] = values
	}
	res.Header = spelled
	return res, w.Body.String(), broken
}

// ask has the node answer a signed request with an unsigned payload. The header's values are added to the request's.
func (n *node) ask(sb *sandbox, method, target, body string, header http.Header) (*http.Response, string) {
	n.t.Helper()
	r := incoming(method, target, body, header)
	sb.sign(n.t, r)
	res, said, broken := n.do(sb, r)
	if broken {
		n.t.Errorf("the answer to %s %s is broken off", method, target)
	}
	return res, said
}

// incoming is a request as a server gets it, not signed yet.
func incoming(method, target, body string, header http.Header) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("X-Amz-Content-Sha256", unsigned)
	maps.Copy(r.Header, header)
	return r
}

// sign signs a request by the sandbox's credentials, whatever its path and query are.
func (sb *sandbox) sign(t interface{ Fatal(...any) }, r *http.Request) {
	sb.signAs(t, r, fmt.Sprintf("%s%010d", idPrefix, time.Now().Add(time.Hour).Unix()))
}

// signAs signs by the credentials with an id.
func (sb *sandbox) signAs(t interface{ Fatal(...any) }, r *http.Request, id string) {
	secret, token, _, _ := sb.secret(id, time.Now())
	like := r.Clone(r.Context())
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil {
			t.Fatal(err)
		}
		segments[i] = strings.ReplaceAll(url.QueryEscape(plain), "+", "%20")
	}
	like.URL = &url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawPath: strings.Join(segments, "/"),
		RawQuery: strings.ReplaceAll(r.URL.RawQuery, ";", "%3B")}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	credentials := aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: token}
	kind := r.Header.Get("X-Amz-Content-Sha256")
	if err := signer.SignHTTP(r.Context(), credentials, like, kind, "s3", testRegion, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.Header = like.Header
}

// codeOf is the code of an error's answer, empty for another one.
func codeOf(body string) string {
	_, rest, _ := strings.Cut(body, "<Code>")
	code, _, _ := strings.Cut(rest, "</Code>")
	return code
}
