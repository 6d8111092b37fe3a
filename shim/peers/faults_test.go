package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func oFrame(size int, version string) []byte {
	return frame('o', fmt.Appendf(nil, `{"size":%d,"version":%q}`, size, version)...)
}

func bFrame(body []byte) []byte {
	sum := digest.OfBlock(body)
	return frame('b', append(sum[:], body...)...)
}

// A peer says that nothing has changed to a node that holds nothing: the others are asked.
func TestAttackNothingHasChanged(t *testing.T) {
	s := newSite(t, 1000, 3)
	s.by(0).before = said(frame('s', []byte("{}")...))
	s.by(2).check(t)
}

// What is held is no answer after the beginning of another version.
func TestUnchangedAfterABeginning(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 3)
	body := s.origin.body[:digest.Block]
	s.by(0).before = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write(oFrame(len(s.origin.body), "v2"))
		_, _ = w.Write(bFrame(body))
		return true
	}
	begun := false
	err := s.by(2).peers.Fetch(fair.For(t.Context(), namespace), key, "v1", func(o source.Object) (io.WriterAt, error) {
		begun = true
		return discard{}, nil
	}, func(ctx context.Context, begin source.Begin) error {
		return s.origin.fetch(ctx, "v1", begin)
	})
	if _, same := errors.AsType[*source.Unchanged](err); same && begun {
		t.Errorf("Unchanged after begin was called with another version")
	}
}

type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// What the store refuses only those are told by it that ask it for all: there is no such object, says the owner; the
// store is away, says the second choice as well.
func TestTheStoreRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		err *problem.Problem
		ask int
	}{
		"no such object":    {problem.New(http.StatusNotFound, problem.ReasonInputNotFound, "", "no such object"), 1},
		"the store is away": {problem.New(http.StatusBadGateway, "StoreUnavailable", "", "slow down"), 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1000, 20)
			var asking sync.Map
			var all sync.WaitGroup
			for _, n := range s.nodes {
				n.refuses = func() error { asking.Store(n.name, true); return c.err }
			}
			for _, n := range s.nodes {
				all.Go(func() {
					err := n.peers.Fetch(fair.For(t.Context(), namespace), key, "", func(source.Object) (io.WriterAt, error) { return discard{}, nil },
						func(context.Context, source.Begin) error { return n.refuses() })
					if got := problem.Of(err); got.Title != c.err.Title || got.Detail != c.err.Detail {
						t.Errorf("%s: %v", n.name, err)
					}
				})
			}
			all.Wait()
			asked := 0
			asking.Range(func(any, any) bool { asked++; return true })
			if asked != c.ask {
				t.Errorf("%d nodes have asked the store", asked)
			}
		})
	}
}

// An owner refers to an honest node, with wrong digests: that one stays in use.
func TestAttackAnOwnerFramesAnother(t *testing.T) {
	s := newSite(t, 1000, 5)
	honest := s.by(2)
	honest.check(t) // it has the object
	if n := s.origin.count(); n != 1 {
		t.Fatal(n)
	}
	wrong := digest.OfBlock([]byte("x"))
	s.by(0).before = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write(oFrame(1000, "v1"))
		_, _ = w.Write(frame('r', fmt.Appendf(nil, "[%q]", honest.name)...))
		_, _ = w.Write(frame('d', wrong[:]...))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	s.by(3).check(t)
	// an object that the honest one owns
	k := ownedBy(s, honest.name)
	before := honest.asked.Load()
	_ = s.by(3).peers.Fetch(fair.For(t.Context(), namespace), k, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
		func(ctx context.Context, begin source.Begin) error { return nil })
	if honest.asked.Load() == before {
		t.Errorf("the honest node is asked nothing any more")
	}
}

func ownedBy(s *site, name string) objects.Key {
	var names []string
	for _, m := range s.members {
		names = append(names, m.GetNode())
	}
	for i := 0; ; i++ {
		k := objects.Key{Namespace: namespace, Store: storeName, Reference: fmt.Sprintf("s3://models/%d", i)}
		if rendezvous.Choose(namespace+"\x00"+storeName+"\x00"+k.Reference, names, 2)[0] == name {
			return k
		}
	}
}

// A store that hangs up midway costs the owner nothing for other objects.
func TestAStoreThatFailsMidway(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 4)
	owner := s.by(0)
	owner.fails = errors.New("the store has hung up")
	s.by(3).check(t)
	k := ownedBy(s, owner.name)
	if k == key {
		t.Fatal("same")
	}
	before := owner.asked.Load()
	_ = s.by(3).peers.Fetch(fair.For(t.Context(), namespace), k, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
		func(ctx context.Context, begin source.Begin) error { return nil })
	if owner.asked.Load() == before {
		t.Errorf("the owner is asked for nothing else any more: by another's store")
	}
}

// An object that a frame does not hold costs the owner nothing.
func TestALongContentType(t *testing.T) {
	s := newSite(t, 1000, 4)
	s.origin.contentType = string(bytes.Repeat([]byte("<"), 1500))
	s.by(3).check(t)
	if n := s.by(3).failures(t, "Failed"); n != 0 {
		t.Errorf("owner and second choice are avoided: %d failures", n)
	}
}

// A peer that sends single bytes is given up.
func TestAttackATrickle(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 4)
	s.by(0).before = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write(oFrame(len(s.origin.body), "v1"))
		all := bFrame(s.origin.body[:digest.Block])
		for i := range all {
			_, _ = w.Write(all[i : i+1])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return true
			case <-time.After(50 * time.Millisecond):
			}
		}
		return true
	}
	s.by(3).peers.Demanding()
	err := s.by(3).peers.Fetch(fair.For(t.Context(), namespace), key, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
		func(ctx context.Context, begin source.Begin) error {
			return s.origin.fetch(ctx, "", begin)
		})
	if n := s.by(3).failures(t, "Silent"); err != nil || n == 0 {
		t.Errorf("%v, and %d are given up", err, n)
	}
}

// What those that the owner refers to have lost it serves itself.
func TestTheOwnerServesWhatTakersLost(t *testing.T) {
	s := newSite(t, blocks*digest.Block, 6)
	s.origin.step = make(chan struct{})
	for i := 2; i < 4; i++ {
		if _, err := s.by(i).begin(t, ""); err != nil {
			t.Fatal(err)
		}
	}
	asked := make(chan struct{}, 100)
	for i := 2; i < 4; i++ { // they are full: as if they had none
		s.by(i).before = func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(frame('f', []byte(`{"title":"PeerHasNone","status":421}`)...))
			asked <- struct{}{}
			return true
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); s.by(4).check(t) }()
	<-asked
	close(s.origin.step)
	<-done
	if n := s.origin.count(); n != 1 {
		t.Errorf("the store was asked %d times, and the owner had all of it", n)
	}
}

// Many objects at once by one connection do not hold each other up.
func TestManyObjectsOfOneOwner(t *testing.T) {
	s := newSite(t, 6*digest.Block, 3)
	owner := s.by(0)
	owner.before = func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = w.Write(oFrame(len(s.origin.body), "v1"))
		for at := 0; at < len(s.origin.body); at += digest.Block {
			if _, err := w.Write(bFrame(s.origin.body[at : at+digest.Block])); err != nil {
				return true
			}
			_ = http.NewResponseController(w).Flush()
		}
		return true
	}
	asker := s.by(2)
	asker.peers.Wait(time.Minute, 5*time.Second)
	var all sync.WaitGroup
	for i := range 40 {
		k := key
		for j := 0; ; j++ {
			k.Reference = fmt.Sprintf("s3://models/%d-%d", i, j)
			if rendezvous.Choose(namespace+"\x00"+storeName+"\x00"+k.Reference, []string{"node-00", "node-01", "node-02"}, 2)[0] == owner.name {
				break
			}
		}
		all.Go(func() {
			_ = asker.peers.Fetch(fair.For(t.Context(), namespace), k, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
				func(ctx context.Context, begin source.Begin) error { return nil })
		})
	}
	all.Wait()
	if n := asker.failures(t, "Silent") + asker.failures(t, "Failed"); n > 0 {
		t.Errorf("%d silent, %d failed", asker.failures(t, "Silent"), asker.failures(t, "Failed"))
	}
}

// A store that is slow costs the owner nothing for other objects.
func TestASlowStore(t *testing.T) {
	s := newSite(t, 1000, 2)
	s.origin.step = make(chan struct{})
	owner, asker := s.by(0), s.by(1)
	asker.peers.Demanding()
	_ = asker.peers.Fetch(fair.For(t.Context(), namespace), key, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
		func(ctx context.Context, begin source.Begin) error { return nil })
	close(s.origin.step)
	k := ownedBy(s, owner.name)
	before := owner.asked.Load()
	_ = asker.peers.Fetch(fair.For(t.Context(), namespace), k, "", func(o source.Object) (io.WriterAt, error) { return discard{}, nil },
		func(ctx context.Context, begin source.Begin) error { return nil })
	if owner.asked.Load() == before {
		t.Errorf("an owner that waits for a slow store is asked for nothing else any more; it was alive, and said so")
	}
}

// A daemon that ends does not wait for its stores: who is asking goes on elsewhere.
func TestAnEndIsNotHeldUp(t *testing.T) {
	s := newSite(t, 1000, 2)
	s.origin.step = make(chan struct{})
	defer close(s.origin.step)
	err := s.by(1).peers.Fetch(fair.For(t.Context(), namespace), key, "", func(source.Object) (io.WriterAt, error) {
		s.by(0).peers.Close() // it has begun to answer
		return discard{}, nil
	}, func(context.Context, source.Begin) error { return nil })
	if n := s.by(1).failures(t, "Refused"); err != nil || n != 1 {
		t.Errorf("%v, and %d ended", err, n)
	}
}
