package stores

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

var frames = source.Reference{Scheme: "redis", Bucket: "jobs", Key: "frames"}

func queues(address string) *nodeapi.Store {
	return &nodeapi.Store{
		Name: "queues", Kind: "redis", Endpoint: address, Database: 2, Buckets: []string{"jobs"}, Secret: "queues",
	}
}

func TestStreamsFollowTheOperatorsList(t *testing.T) {
	s, dir := newStores(t)
	if err := os.WriteFile(
		filepath.Join(dir, "queues"), []byte("username = headstart\npassword = hunter2\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	refused := func(what, store string, ref source.Reference) {
		t.Helper()
		if _, err := s.client("default/fire", store, ref); problem.Of(err).Title != "StoreNotAllowed" {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Set([]*nodeapi.Store{queues("one.example:6379"), edge("http://two.example:9000")})
	first, err := s.client("default/fire", "queues", frames)
	if err != nil {
		t.Fatal(err)
	}
	o := first.Options()
	if o.Addr != "one.example:6379" || o.DB != 2 || o.TLSConfig != nil {
		t.Errorf("options %+v", o)
	}
	if user, password, err := o.CredentialsProviderContext(t.Context()); user != "headstart" || password != "hunter2" || err != nil {
		t.Errorf("%s, %s, %v", user, password, err)
	}
	refused("another keyspace", "queues", source.Reference{Scheme: "redis", Bucket: "private", Key: "frames"})
	refused("no redis", "edge", source.Reference{Scheme: "redis", Bucket: "videos", Key: "frames"})
	refused("no stream", "queues", source.Reference{Scheme: "s3", Bucket: "jobs", Key: "frames"})
	s.Set([]*nodeapi.Store{queues("one.example:6379")})
	if same, err := s.client("default/fire", "queues", frames); err != nil || same != first {
		t.Errorf("a store that stays as it was loses its connections: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "queues")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.CredentialsProviderContext(t.Context()); err == nil {
		t.Error("a secret that is gone is not missed")
	}
	changed := queues("three.example:6379")
	changed.Tls = true
	s.Set([]*nodeapi.Store{changed})
	third, err := s.client("default/fire", "queues", frames)
	if err != nil || third == first {
		t.Fatalf("a store that has changed: %v", err)
	}
	if o := third.Options(); o.TLSConfig == nil || o.Addr != "three.example:6379" { // whose name TLS asks for
		t.Errorf("options %+v", o)
	}
	if first.Ping(t.Context()).Err() == nil {
		t.Error("the old connections are still open")
	}
	s.Set(nil)
	refused("a store that left the list", "queues", frames)
}

// The connections of streams end before those of inputs, and none begins again.
func TestStreamsEndBeforeTheStores(t *testing.T) {
	s, _ := newStores(t)
	s.Set([]*nodeapi.Store{queues("one.example:6379")})
	client, err := s.client("default/fire", "queues", frames)
	if err != nil {
		t.Fatal(err)
	}
	s.EndStreams()
	if client.Ping(t.Context()).Err() == nil {
		t.Error("the connection is still open")
	}
	if _, err := s.client("default/fire", "queues", frames); err == nil {
		t.Error("a stream begins again")
	}
	if _, err := s.Source("default/fire", "queues"); err != nil {
		t.Error(err)
	}
}

// Streams have names of their own, which a control plane has checked, and the node does.
func TestAStreamThatIsNone(t *testing.T) {
	s, _ := newStores(t)
	if _, err := s.Stream(
		&nodeapi.Trigger{Stream: "jobs/frames"}, "edge/p/1", nil,
	); problem.Of(err).Title != "InputReferenceMalformed" {
		t.Errorf("%v", err)
	}
}
