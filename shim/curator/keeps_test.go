package curator_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/curator"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/volume"
)

// The control plane hears of a node's volumes within seconds, and of what keeps the node from keeping while it does.
func TestTheControlPlaneHearsWhatIsKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		files, err := buffer.OpenFiles(dir + "/buffer")
		if err != nil {
			t.Fatal(err)
		}
		// No disk is empty.
		room := buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: 1 << 20, Spare: 100, Medium: files})
		store := &sourcetest.Memory{}
		store.Put(source.Reference{Scheme: "s3", Bucket: "models", Key: "llama/a"}, "", []byte("weights"))
		placed := &volume.Placed{}
		versions, err := tree.Open(dir+"/volumes", placed, false)
		if err != nil {
			t.Fatal(err)
		}
		placed.Cache = objects.New(objects.Config{Sources: func(string, string) (source.Source, error) { return store, nil },
			Buffer: room, Drop: versions.Drop, Age: time.Hour})
		c := curator.New(placed.Cache, versions, nil, nil, nil, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		told := make(chan *nodeapi.Keeps, 1)
		var watch sync.WaitGroup
		watch.Go(func() { c.Watch(ctx, func(m *nodeapi.Keeps) { told <- m }) })
		defer func() {
			cancel()
			watch.Wait()
			c.Close()
			versions.Close()
			if err := errors.Join(placed.Cache.Close(context.Background()), room.Close()); err != nil {
				t.Error(err)
			}
		}()
		call := func(verb nodeapi.CacheVerb) {
			answers := make(chan *nodeapi.CacheAnswer, 8)
			c.Call(&nodeapi.CacheCall{Verb: verb, Namespace: "media", Store: "default", Reference: "s3://models/llama/"},
				func(m *nodeapi.CacheAnswer) { answers <- m })
			for m := range answers {
				if r := m.GetRefused(); r != nil {
					t.Fatal(r)
				}
				if !m.GetMore() {
					return
				}
			}
		}
		var before *nodeapi.Keeps
		next := func(want *nodeapi.Keeps) {
			t.Helper()
			got := before
			for before == got || proto.Equal(before, got) { // others write to the test's disk as well
				got = proto.CloneOf(<-told)
				if got.GetRoom() == 0 {
					t.Error("there is no room")
				}
				got.Room = 0
			}
			before = got
			if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
				t.Error(d)
			}
		}
		want := &nodeapi.Keeps{Limit: 1 << 20}
		next(want)
		began := time.Now()
		call(nodeapi.CacheVerb_CACHE_VERB_WARM)
		want.Volumes = []*nodeapi.KeptVolume{{Namespace: "media", Store: "default", Prefix: "s3://models/llama/", Bytes: 7}}
		next(want)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it heard of the volume after %s", took)
		}
		want.Problems = []string{"its disk has less free space than --cache-spare: nothing more is kept"}
		next(want)
		if took := time.Since(began); took < 2*time.Minute {
			t.Errorf("it heard of the full disk after %s", took)
		}
		all, err := filepath.Glob(dir + "/volumes/media/*/files/a")
		if err != nil || len(all) != 1 {
			t.Fatalf("%q, %v", all, err)
		}
		if err := os.Truncate(all[0], 3); err != nil {
			t.Fatal(err)
		}
		call(nodeapi.CacheVerb_CACHE_VERB_VERIFY)
		want.Problems = append(want.Problems, "objects that it kept were damaged, and were dropped: 1 since its daemon started")
		next(want)
		want.Problems = want.Problems[:1]
		began = time.Now()
		next(want)
		if took := time.Since(began); took.Round(time.Hour) != 24*time.Hour {
			t.Errorf("it heard of the damage for %s", took)
		}
		call(nodeapi.CacheVerb_CACHE_VERB_DROP)
		want.Volumes = nil
		next(want)
	})
}
