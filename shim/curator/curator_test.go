package curator_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/curator"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/volume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// odd is a store whose object of the key odd has a version that no answer can have.
type odd struct{ *sourcetest.Memory }

func (o *odd) Fetch(ctx context.Context, ref source.Reference, held string, begin source.Begin) error {
	return o.Memory.Fetch(ctx, ref, held, func(about source.Object) (io.WriterAt, error) {
		if ref.Key == "odd" {
			about.Version = "\xff" + strings.Repeat("v", 5<<20)
		}
		return begin(about)
	})
}

// What is warmed is there, is listed and can be pinned, verified and dropped; other namespaces' is not touched.
func TestCalls(t *testing.T) {
	dir := t.TempDir()
	files, err := buffer.OpenFiles(dir + "/buffer")
	if err != nil {
		t.Fatal(err)
	}
	room := buffer.New(buffer.Quota{}, buffer.Tier{Name: "disk", Limit: 1 << 20, Medium: files})
	store := &sourcetest.Memory{}
	store.Put(source.Reference{Scheme: "s3", Bucket: "models", Key: "llama/a"}, "", []byte("weights"))
	from := &odd{store}
	sources := func(string, string) (source.Source, error) { return from, nil }
	placed := &volume.Placed{}
	versions, err := tree.Open(dir+"/volumes", placed, false)
	if err != nil {
		t.Fatal(err)
	}
	cache := objects.New(objects.Config{Sources: sources, Buffer: room, Drop: versions.Drop, Age: 1 << 40})
	placed.Cache = cache
	c := curator.New(cache, versions, nil, nil, nil, slog.New(slog.DiscardHandler))
	defer func() {
		c.Close()
		versions.Close()
		if err := cache.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := room.Close(); err != nil {
			t.Error(err)
		}
	}()
	call := func(verb nodeapi.CacheVerb, namespace, ref string) (all []*nodeapi.CacheEntry, refused string) {
		answers := make(chan *nodeapi.CacheAnswer, 8)
		c.Call(&nodeapi.CacheCall{Id: 7, Verb: verb, Namespace: namespace, Store: "default", Reference: ref},
			func(m *nodeapi.CacheAnswer) { answers <- m })
		for {
			m := <-answers
			if b, err := proto.Marshal(m); err != nil || len(b) > 3<<20 {
				t.Errorf("an answer of %d bytes cannot be sent: %v", len(b), err)
			}
			if all = append(all, m.GetEntries()...); !m.GetMore() {
				return all, m.GetRefused().GetReason()
			}
		}
	}
	const volumes = "s3://models/llama/"
	for _, ref := range []string{volumes, "s3://models/llama/a"} {
		if _, refused := call(nodeapi.CacheVerb_CACHE_VERB_WARM, "media", ref); refused != "" {
			t.Errorf("warming %s: %s", ref, refused)
		}
	}
	if _, refused := call(nodeapi.CacheVerb_CACHE_VERB_WARM, "media", "s3://models/b"); refused != "InputNotFound" {
		t.Errorf("warming what is not there: %q", refused)
	}
	if _, refused := call(nodeapi.CacheVerb_CACHE_VERB_UNSPECIFIED, "", ""); refused != "CacheVerbUnknown" {
		t.Errorf("of a newer control plane: %q", refused)
	}
	// What a store says may be endless, and no text.
	store.Put(source.Reference{Scheme: "s3", Bucket: "models", Key: "odd"}, "", []byte("weights"))
	if _, refused := call(nodeapi.CacheVerb_CACHE_VERB_WARM, "media", "s3://models/odd"); refused != "" {
		t.Errorf("warming what has an odd version: %q", refused)
	}
	if all, refused := call(nodeapi.CacheVerb_CACHE_VERB_DROP, "media", "s3://models/odd"); len(all) != 1 || refused != "" {
		t.Errorf("dropping what has an odd version: %d, %q", len(all), refused)
	}
	for _, namespace := range []string{"", ".hidden", "bank/../media", "../media", "media/x"} {
		for _, ref := range []string{volumes, "s3://models/llama/a"} {
			if _, refused := call(nodeapi.CacheVerb_CACHE_VERB_WARM, namespace, ref); refused != "CacheReferenceInvalid" {
				t.Errorf("warming %s for %q: %q", ref, namespace, refused)
			}
		}
	}
	for _, tt := range []struct {
		verb           nodeapi.CacheVerb
		namespace, ref string
		entries        int
		pinned         bool
	}{
		{nodeapi.CacheVerb_CACHE_VERB_LIST, "media", volumes, 2, false},
		{nodeapi.CacheVerb_CACHE_VERB_LIST, "bank", volumes, 0, false},
		{nodeapi.CacheVerb_CACHE_VERB_LIST, "", "s3://models/llama/a", 1, false},
		{nodeapi.CacheVerb_CACHE_VERB_PIN, "", volumes, 2, true},
		{nodeapi.CacheVerb_CACHE_VERB_VERIFY, "", "", 2, true},
		{nodeapi.CacheVerb_CACHE_VERB_UNPIN, "", "", 2, false},
		{nodeapi.CacheVerb_CACHE_VERB_DROP, "bank", "", 0, false},
		{nodeapi.CacheVerb_CACHE_VERB_DROP, "media", "", 2, false},
		{nodeapi.CacheVerb_CACHE_VERB_LIST, "", "", 0, false},
	} {
		all, refused := call(tt.verb, tt.namespace, tt.ref)
		if len(all) != tt.entries || refused != "" {
			t.Errorf("%s of %q %q: %v, %q", tt.verb, tt.namespace, tt.ref, all, refused)
		}
		for _, e := range all {
			if e.GetPinned() != tt.pinned || e.GetProblem() != "" || e.GetBytes() != 7 {
				t.Errorf("%s: %v", tt.verb, e)
			}
		}
	}
}
