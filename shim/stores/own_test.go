package stores

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// withList returns the stores of a node with a list of its own, and what writes that: as Kubernetes does, which
// puts another file in its place.
func withList(t *testing.T, list string) (s *Stores, secrets string, write func(list string)) {
	t.Helper()
	secrets, path := t.TempDir(), filepath.Join(t.TempDir(), "stores.yaml")
	write = func(list string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(list), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(list)
	s, err := Open(secrets, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, secrets, write
}

// hears is a server that says what its clients say first, after its name.
func hears(t *testing.T, name string, said chan<- string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := make([]byte, 256)
			n, _ := io.ReadAtLeast(c, first, 1)
			_ = c.Close()
			select {
			case said <- name + " hears " + string(first[:n]):
			default:
			}
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// The attacker is the control plane: it says that the operator's store is at an address of its choice, or has a
// store of its own with the operator's secret.
func TestAttackControlPlaneHasCredentialsSentElsewhere(t *testing.T) {
	said := make(chan string, 1)
	operators, attackers := hears(t, "the operator's server", said), hears(t, "the attacker's server", said)
	s, secrets, _ := withList(t, fmt.Sprintf(
		"[{name: jobs, redis: {address: %q, keyspaces: [jobs], credentialsSecret: jobs}}]", operators))
	if err := os.WriteFile(filepath.Join(secrets, "jobs"), []byte("password = hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Set([]*nodeapi.Store{
		{Name: "jobs", Kind: "redis", Endpoint: attackers, Buckets: []string{"jobs"}, Secret: "jobs"},
		{Name: "new", Kind: "redis", Endpoint: attackers, Buckets: []string{"jobs"}, Secret: "jobs"},
	})
	if _, err := s.Source("default/fire", "new"); problem.Of(err).Title != "StoreNotAllowed" {
		t.Errorf("the attacker's own store: %v", err)
	}
	jobs, err := s.Source("default/fire", "jobs")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ref := source.Reference{Scheme: "redis", Bucket: "jobs", Key: "1"}
		ended <- jobs.Fetch(ctx, ref, "", func(source.Object) (io.WriterAt, error) { return sink{}, nil })
	}()
	if got := <-said; !strings.Contains(got, "the operator's server hears") || !strings.Contains(got, "hunter2") {
		t.Errorf("%q", got)
	}
	stop()
	<-ended
	frames := source.Reference{Scheme: "redis", Bucket: "jobs", Key: "frames"}
	if client, err := s.client("default/fire", "jobs", frames); err != nil || client.Options().Addr != operators {
		t.Errorf("a stream's server: %v", err)
	}
}

// The attacker is the control plane: it says that a function of its namespace has another's store.
func TestAttackControlPlaneGivesAStoreToAnotherNamespace(t *testing.T) {
	s, _, _ := withList(t, "[{name: jobs, namespaces: [video], redis: {address: '127.0.0.1:1', keyspaces: [jobs]}}]")
	s.Set([]*nodeapi.Store{{Name: "jobs", Kind: "redis", Endpoint: "127.0.0.1:1", Buckets: []string{"jobs"}}})
	frames := source.Reference{Scheme: "redis", Bucket: "jobs", Key: "frames"}
	for function, allowed := range map[string]bool{
		"video/scene": true, "video/(jobs)": true, "other/scene": false, "video2/scene": false, "": false,
	} {
		_, err := s.Source(function, "jobs")
		if (err == nil) != allowed || !allowed && problem.Of(err).Title != "StoreNotAllowed" {
			t.Errorf("an input of %q: %v", function, err)
		}
		if _, err := s.client(function, "jobs", frames); (err == nil) != allowed {
			t.Errorf("a stream of %q: %v", function, err)
		}
	}
}

// A change of the node's own list counts without a restart; one that cannot be read leaves what there is.
func TestTheNodesOwnList(t *testing.T) {
	const archive = "[{name: archive, redis: {address: '127.0.0.1:1', keyspaces: [old]}}]"
	s, _, write := withList(t, archive)
	has := func(want string, problems ...string) {
		t.Helper()
		var said []string
		for _, p := range s.problems(t.Context()).GetProblems() {
			said = append(said, p.GetStore()+"|"+p.GetMessage())
		}
		for _, name := range []string{"archive", "jobs"} {
			_, err := s.Source("default/fire", name)
			if (err == nil) != (name == want) {
				t.Errorf("%s: %v", name, err)
			}
			if err != nil && !strings.Contains(err.Error(), "two minutes") {
				t.Errorf("it is not said that a change takes time: %v", err)
			}
		}
		if len(said) != len(problems) || len(said) > 0 && (said[0][0] != '|' || !strings.Contains(said[0], problems[0])) {
			t.Errorf("problems %q, want %q", said, problems)
		}
	}
	has("archive")
	before, _ := s.Source("default/fire", "archive")
	write("[{name: archive}]")
	has("archive", "[0].s3: is missing")
	has("archive", "[0].s3: is missing")
	write(archive)
	has("archive")
	if same, _ := s.Source("default/fire", "archive"); same != before {
		t.Error("a store that stays as it was loses its connections")
	}
	write("[{name: jobs, redis: {address: '127.0.0.1:1', keyspaces: [jobs]}}]")
	has("jobs")
	if err := os.Remove(s.own.Path); err != nil {
		t.Fatal(err)
	}
	has("jobs", "no such file")
	write("[]")
	has("")
}
