package stores

import (
	"context"
	"errors"
	"io"
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
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// pending has answers to all that is asked.
type pending struct {
	asked []writeback.Key
	found bool
	err   error
}

func (p *pending) Fetch(
	ctx context.Context, k writeback.Key, _ string, begin source.Begin, store func(context.Context, source.Begin) error,
) error {
	p.asked = append(p.asked, k)
	if p.found || p.err != nil {
		return p.err
	}
	return store(ctx, begin)
}

func (p *pending) Has(k writeback.Key) bool {
	p.asked = append(p.asked, k)
	return p.found
}

func (p *pending) AwaitPrefix(_ context.Context, k writeback.Key) error {
	p.asked = append(p.asked, k)
	return p.err
}

func behind(how string) *nodeapi.Store {
	s := edge("http://127.0.0.1:1")
	s.Buckets, s.Write = []string{"videos", "frames"}, map[string]string{"frames": how}
	return s
}

// Nodes look for what is written behind as soon as they know of it, and do so until they end. They write behind when all
// others know of it as well.
func TestABucketIsWrittenBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStores(t)
		s.Pend(&pending{}, time.Minute)
		is := func(when string, want objects.Rule) {
			t.Helper()
			if got := s.Rule("edge", "frames"); got != want {
				t.Errorf("%s: %+v", when, got)
			}
			if got := s.Rule("edge", "videos"); got != (objects.Rule{Fresh: objects.ByStore}) {
				t.Errorf("%s, another bucket: %+v", when, got)
			}
		}
		s.Set([]*nodeapi.Store{behind(listed.WriteThrough)})
		is("before", objects.Rule{Fresh: objects.ByStore, Write: listed.WriteThrough})
		s.Set([]*nodeapi.Store{behind(listed.WriteBack)})
		is("at once", objects.Rule{Fresh: objects.Ask, Write: listed.WriteThrough, Pending: true})
		time.Sleep(time.Minute)
		is("a minute later", objects.Rule{Fresh: objects.Ask, Write: listed.WriteBack, Pending: true})
		always := behind(listed.WriteBack)
		always.Fresh = map[string]*durationpb.Duration{"frames": durationpb.New(listed.FreshAlways)}
		s.Set([]*nodeapi.Store{always})
		is("keys that are written once", objects.Rule{Fresh: listed.FreshAlways, Write: listed.WriteBack, Pending: true})
		s.Set([]*nodeapi.Store{behind(listed.WriteThrough)})
		is("no more", objects.Rule{Fresh: objects.Ask, Write: listed.WriteThrough, Pending: true})
	})
}

// Whatever asks the store for an object or a list asks for what is written behind before, in such buckets alone.
func TestReadsLookForWhatIsWrittenBehind(t *testing.T) {
	s, _ := newStores(t)
	p := &pending{}
	s.Pend(p, 0)
	s.Set([]*nodeapi.Store{behind(listed.WriteBack)})
	from, err := s.Source("default/fire", "edge")
	if err != nil {
		t.Fatal(err)
	}
	frame, video := source.Reference{Scheme: "s3", Bucket: "frames", Key: "a/k"}, source.Reference{Scheme: "s3", Bucket: "videos", Key: "a/k"}
	lost := &writeback.PendingError{Bucket: "frames", Marker: writeback.Marker{Key: "a/k", Node: "worker-2"}}
	for name, in := range map[string]struct {
		ref   source.Reference
		found bool
		err   error
		title string // empty: none
		says  string
		asked bool
	}{
		"here":                   {frame, true, nil, "", "", true},
		"unchanged":              {frame, true, &source.Unchanged{}, "", "", true},
		"nowhere":                {frame, false, nil, "StoreForbidden", "", true}, // the store is asked
		"on a node that is away": {frame, false, lost, "WritePending", "worker-2", true},
		"unknown":                {frame, false, errors.New("http://10.0.0.1 does not answer"), "StoreUnavailable", "", true},
		"the nodes' own":         {source.Reference{Scheme: "s3", Bucket: "frames", Key: "/.headstart/pending/k"}, true, nil, "InputNotFound", "", false},
		"another bucket":         {video, true, nil, "StoreForbidden", "", false},
	} {
		p.asked, p.found, p.err = nil, in.found, in.err
		begin := func(source.Object) (io.WriterAt, error) { return sink{}, nil }
		err := from.Fetch(t.Context(), in.ref, "", begin)
		if same := (*source.Unchanged)(nil); in.title == "" && err != nil && !errors.As(err, &same) ||
			in.title != "" && (problem.Of(err).Title != in.title || !strings.Contains(problem.Of(err).Detail, in.says) || strings.Contains(problem.Of(err).Detail, "10.0.0.1")) {
			t.Errorf("%s: %v", name, err)
		}
		if (len(p.asked) == 1 && p.asked[0] == writeback.Key{Store: "edge", Bucket: in.ref.Bucket, Key: "a/k"}) != in.asked {
			t.Errorf("%s: asked for %v", name, p.asked)
		}
		if in.title == "InputNotFound" { // lists leave these out, one by one
			continue
		}
		p.asked = nil
		if holds := from.(*observed).Holds(in.ref); holds != (in.found && in.asked) || (len(p.asked) == 1) != in.asked {
			t.Errorf("%s: %v, asked for %v", name, holds, p.asked)
		}
		p.asked = nil
		err = from.(source.Lister).List(t.Context(), in.ref, func(string, source.Object) error { return nil })
		if (len(p.asked) == 1) != in.asked || err == nil {
			t.Errorf("%s: the list asks for %v: %v", name, p.asked, err)
		}
	}
}

// A store is found whatever functions may use it: what it has not got yet was acknowledged.
func TestTheAPIOfAStore(t *testing.T) {
	s, _ := newStores(t)
	if _, _, err := s.API("edge"); !errors.Is(err, writeback.ErrNoList) {
		t.Errorf("before the list has come: %v", err)
	}
	one := edge("http://127.0.0.1:1")
	one.Namespaces = []string{"other"}
	s.Set([]*nodeapi.Store{one, {Name: "jobs", Kind: "redis", Endpoint: "127.0.0.1:1", Buckets: []string{"jobs"}}})
	if api, server, err := s.API("edge"); err != nil || api == nil || server != "http://127.0.0.1:1" {
		t.Errorf("%q, %v", server, err)
	}
	for _, name := range []string{"jobs", "gone"} {
		if _, _, err := s.API(name); err == nil || errors.Is(err, writeback.ErrNoList) {
			t.Errorf("%s has the S3 API", name)
		}
	}
}
