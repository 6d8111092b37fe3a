package stores

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const accessKey = "access_key_id = AKIDEXAMPLE\nsecret_access_key = wJalrXUtnFEMI\n"

// newStores returns no stores yet, and the directory of the node's secrets.
func newStores(t *testing.T) (*Stores, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, dir
}

func edge(endpoint string) *nodeapi.Store {
	return &nodeapi.Store{
		Name: "edge", Endpoint: endpoint, Region: "us-east-1", PathStyle: true, Buckets: []string{"videos"},
		Secret: "edge",
	}
}

func TestStoresFollowTheOperatorsList(t *testing.T) {
	s, _ := newStores(t)
	s.Set([]*nodeapi.Store{edge("http://one.example:9000")})
	first, err := s.Source("default/fire", "edge")
	if err != nil {
		t.Fatal(err)
	}
	s.Set([]*nodeapi.Store{
		edge("http://one.example:9000"),
		{Name: "archive", Endpoint: "http://two.example", Region: "us-east-1", Buckets: []string{"old"}, Secret: "a"},
	})
	if same, err := s.Source("default/fire", "edge"); err != nil || same != first {
		t.Errorf("a store that stays as it was loses its connections: %v", err)
	}
	if other, err := s.Source("default/fire", "archive"); err != nil || other == first {
		t.Errorf("the second store is the first: %v", err)
	}
	s.Set([]*nodeapi.Store{edge("http://three.example:9000")})
	if changed, err := s.Source("default/fire", "edge"); err != nil || changed == first {
		t.Errorf("a store that has changed is still the old one: %v", err)
	}
	_, err = s.Source("default/fire", "archive")
	if p := problem.Of(err); p.Title != "StoreNotAllowed" || p.Status != http.StatusForbidden || !strings.Contains(p.Detail, "archive") {
		t.Errorf("a store that left the list: %v", err)
	}
}

// Before the first list has come no store is refused: who asks is told to come again, and a program waits for a while.
func TestBeforeTheFirstList(t *testing.T) {
	s, _ := newStores(t)
	own, _, _ := withList(t, "no list")
	for says, s := range map[string]*Stores{"the control plane": s, "its own cannot be read": own} {
		_, err := s.Source("default/fire", "edge")
		_, stream := s.client("default/fire", "edge", source.Reference{Scheme: source.SchemeRedis, Bucket: "jobs", Key: "k"})
		for _, err := range []error{err, stream} {
			if p := problem.Of(err); p.Title != "StoresUnknown" || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, says) {
				t.Errorf("%s: %v", says, err)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := Open("/nowhere", "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		waits := func(ctx context.Context, want time.Duration) {
			t.Helper()
			began := time.Now()
			if s.Await(ctx); time.Since(began) != want {
				t.Errorf("%v, want %v", time.Since(began), want)
			}
		}
		waits(t.Context(), listTimeout)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waits(ctx, time.Second)
		time.AfterFunc(2*time.Second, func() { s.Set([]*nodeapi.Store{edge("http://one.example:9000")}) })
		waits(t.Context(), 2*time.Second)
		waits(t.Context(), 0)
		if _, err := s.Source("default/fire", "edge"); err != nil {
			t.Error(err)
		}
	})
}

// Namespaces share those buckets only that the operator calls shared, and answers hold as long as he says. What is
// not on the list any more is asked for, which the store's source refuses.
func TestRules(t *testing.T) {
	s, _ := newStores(t)
	one := edge("http://one.example:9000")
	one.Buckets, one.Shared = []string{"videos", "models", "frames"}, []string{"models"}
	one.Fresh = map[string]*durationpb.Duration{"models": durationpb.New(listed.FreshAlways), "frames": durationpb.New(0), "gone": durationpb.New(time.Hour)}
	s.Set([]*nodeapi.Store{one})
	for bucket, want := range map[string]objects.Rule{
		"videos": {Fresh: objects.ByStore}, "models": {Shared: true, Fresh: listed.FreshAlways}, "frames": {Fresh: objects.Ask}, "gone": {Fresh: objects.Ask, Unlisted: true},
	} {
		if got := s.Rule("edge", bucket); got != want {
			t.Errorf("%s: %+v", bucket, got)
		}
	}
	if got := s.Rule("other", "models"); got != (objects.Rule{Unlisted: true}) {
		t.Errorf("of no store: %+v", got)
	}
}

// A store that cannot be used as it is configured says so when it is asked for; the
// others can be used.
func TestAStoreThatCannotBeUsedHarmsNoOther(t *testing.T) {
	s, _ := newStores(t)
	s.Set([]*nodeapi.Store{{Name: "bad", Endpoint: "http://bad.example"}, edge("http://one.example")})
	if _, err := s.Source("default/fire", "bad"); err == nil || !strings.Contains(err.Error(), `"bad"`) {
		t.Errorf("the bad one: %v", err)
	}
	if _, err := s.Source("default/fire", "edge"); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

// Each kind of store has its adapter; one that is of a newer kind harms no other.
func TestStoresHaveTheAdapterOfTheirKind(t *testing.T) {
	s, _ := newStores(t)
	s.Set([]*nodeapi.Store{
		edge("http://one.example:9000"),
		{Name: "jobs", Kind: "redis", Endpoint: "127.0.0.1:1", Buckets: []string{"jobs"}},
		{Name: "models", Kind: "http", Buckets: []string{"models.example.com"}, Secret: "models"},
		{Name: "newer", Kind: "ftp", Endpoint: "ftp.example.com"},
		{Name: "bad", Kind: "redis", Endpoint: "nowhere"},
	})
	for name, in := range map[string]struct{ ref, title string }{
		"edge":   {"redis://videos/k", "StoreNotAllowed"},
		"jobs":   {"redis://jobs/k", "StoreUnavailable"},
		"models": {"https://models.example.com/k", "StoreForbidden"}, // there is no secret
	} {
		from, err := s.Source("default/fire", name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		ref, err := source.ParseReference(in.ref)
		if err != nil {
			t.Fatal(err)
		}
		if l, is := from.(source.Lister); name == "jobs" && (!is || problem.Of(l.List(t.Context(), ref, nil)).Title != "StoreNotAllowed") {
			t.Errorf("%s: Redis lists its values", name)
		}
		if err := s.Allowed("default/fire", name, ref); (err == nil) != (in.title != "StoreNotAllowed") { // no server is asked
			t.Errorf("%s: allowed is %v", name, err)
		}
		begin := func(source.Object) (io.WriterAt, error) { return sink{}, nil }
		if err := from.Fetch(t.Context(), ref, "", begin); problem.Of(err).Title != in.title {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"newer", "bad"} {
		if _, err := s.Source("default/fire", name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Allowed("default/fire", "none", source.Reference{Scheme: "s3", Bucket: "videos", Key: "k"}); problem.Of(err).Title != "StoreNotAllowed" {
		t.Errorf("of no store: %v", err)
	}
	s.Set(nil)
}

// s3Server answers each request with the object, and keeps who signed the last.
func s3Server(t *testing.T) (url string, signed func() string) {
	t.Helper()
	authorization := make(chan string, 16)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization <- r.Header.Get("Authorization")
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Content-Range", "bytes 0-4/5")
		w.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(w, "input")
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string { return <-authorization }
}

type sink struct{}

func (sink) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func fetch(t *testing.T, s *Stores) error {
	t.Helper()
	from, err := s.Source("default/fire", "edge")
	if err != nil {
		t.Fatal(err)
	}
	return from.Fetch(
		t.Context(), source.Reference{Scheme: "s3", Bucket: "videos", Key: "k"}, "",
		func(source.Object) (io.WriterAt, error) { return sink{}, nil },
	)
}

// Secrets lie on the node and count from the next request on; without a good one the
// error names the store and tells nothing of the secret.
func TestSecretsComeFromTheNode(t *testing.T) {
	url, signed := s3Server(t)
	s, dir := newStores(t)
	s.Set([]*nodeapi.Store{edge(url)})
	for name, write := range map[string]func(path string) error{
		"missing":  func(string) error { return nil },
		"open":     func(path string) error { return os.WriteFile(path, []byte(accessKey), 0o644) },
		"nonsense": func(path string) error { return os.WriteFile(path, []byte("wJalrXUtnFEMI"), 0o600) },
	} {
		path := filepath.Join(dir, "edge")
		if err := write(path); err != nil {
			t.Fatal(err)
		}
		err := fetch(t, s)
		if p := problem.Of(err); p.Title != "StoreForbidden" || !strings.Contains(p.Detail, `"edge"`) || strings.Contains(err.Error(), "wJalrXUtnFEMI") {
			t.Errorf("%s: %v", name, err)
		}
		_ = os.Remove(path)
	}
	if err := os.WriteFile(filepath.Join(dir, "edge"), []byte(accessKey), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := fetch(t, s); err != nil {
		t.Fatal(err)
	}
	if a := signed(); !strings.Contains(a, "AKIDEXAMPLE") {
		t.Errorf("signed with %q", a)
	}
}

func TestANodeWithoutSecrets(t *testing.T) {
	url, _ := s3Server(t)
	s, err := Open(filepath.Join(t.TempDir(), "none"), "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Set([]*nodeapi.Store{edge(url)})
	if err := fetch(t, s); problem.Of(err).Title != "StoreForbidden" {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, ""); err == nil || !strings.Contains(err.Error(), "--secrets-dir") {
		t.Errorf("a file as directory: %v", err)
	}
}

// What an earlier process has kept of a store is that of another one, if it came by a way that the operator does not
// allow any more.
func TestIdentityOfAStore(t *testing.T) {
	known := map[string]string{}
	for name, change := range map[string]func(*nodeapi.Store){
		"as it was": func(*nodeapi.Store) {}, "endpoint": func(c *nodeapi.Store) { c.Endpoint += "1" },
		"kind": func(c *nodeapi.Store) { c.Kind = "redis" }, "secret": func(c *nodeapi.Store) { c.Secret += "1" },
		"credentials": func(c *nodeapi.Store) { c.Credentials = "workload" },
		"tls":         func(c *nodeapi.Store) { c.Tls = true }, "addresses": func(c *nodeapi.Store) { c.PublicAddresses = true },
	} {
		c := edge("http://one.example:900")
		change(c)
		if other, is := known[serverOf(c)]; is {
			t.Errorf("%s: the same as %s", name, other)
		}
		known[serverOf(c)] = name
	}
	// Nodes keep objects by it, and from one version to the next.
	if got, want := serverOf(edge("http://one.example:900")), ` "http://one.example:900" "us-east-1" "edge" 0 false false`; got != want {
		t.Errorf("a store of before is %s, not %s", got, want)
	}
}
