package peers_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	near "github.com/headstart-mesh/headstart/shim/objects/site"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// storeOf is an origin as a source.
type storeOf struct{ *origin }

func (s storeOf) Fetch(ctx context.Context, _ source.Reference, held string, begin source.Begin) error {
	return s.fetch(ctx, held, begin)
}

// cached has nodes with the daemon's own objects, as the daemon joins them.
func cached(t *testing.T, size, many int, rule objects.Rule) (*site, []*objects.Cache) {
	t.Helper()
	own := map[*node]*near.Own{}
	s := newSiteOf(t, size, many, func(n *node) peers.Objects {
		own[n] = &near.Own{}
		return own[n]
	})
	var caches []*objects.Cache
	for i := range many {
		room, err := buffer.Open(t.TempDir()+"/b", 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		n := s.by(i)
		c := objects.New(objects.Config{Buffer: room, Age: time.Hour, Neighbours: n.peers,
			Rule: func(string, string) objects.Rule { return rule },
			Sources: func(function, _ string) (source.Source, error) {
				if strings.HasPrefix(function, "foreign/") {
					return nil, problem.New(http.StatusForbidden, "StoreNotAllowed", "", "it is not granted")
				}
				return storeOf{n.origin}, nil
			}})
		own[n].Cache = c
		caches = append(caches, c)
		t.Cleanup(func() {
			if err := errors.Join(c.Close(context.Background()), room.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return s, caches
}

// A namespace gets nothing of what another one has the node hold, nor what is not granted to it.
func TestAttackAnotherNamespaceAsksForWhatANodeHolds(t *testing.T) {
	s, caches := cached(t, 1000, 1, objects.Rule{})
	read(t, caches[0], "own")
	own := near.Own{Cache: caches[0]}
	for ns, held := range map[string]bool{namespace: true, "other": false, "foreign": false} {
		k, err := own.Name(ns, storeName, reference)
		if (err != nil) != (ns == "foreign") {
			t.Errorf("%s: %v", ns, err)
		}
		c, got := own.Held(t.Context(), ns, k, s.origin.version)
		if got != held {
			t.Errorf("%s gets the object: %v", ns, got)
		}
		if got {
			_ = c.Close() // it is only read from
		}
	}
	if c, got := own.Held(t.Context(), "foreign", key, s.origin.version); got {
		t.Error("what is not granted any more is served on")
		_ = c.Close()
	}
}

// read has a node's function read the object.
func read(t *testing.T, c *objects.Cache, id string) []byte {
	t.Helper()
	i := c.Fetch(t.Context(), objects.Request{ID: id, Function: namespace + "/f", Store: storeName, Reference: reference, Limit: 1 << 30})
	defer i.Release()
	r, err := i.NewReader(t.Context())
	if err != nil {
		t.Error(err)
		return nil
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err := errors.Join(err, i.Wait(t.Context())); err != nil {
		t.Error(err)
	}
	return got
}

// However many nodes need an object at the same time, the store is asked for it once; and for what has changed once
// more. What a node has is not sent again.
func TestNodesBringEachOtherTheirObjects(t *testing.T) {
	s, caches := cached(t, 2*digest.Block+1000, 5, objects.Rule{})
	all := func(id string, fetches int) {
		t.Helper()
		var reading sync.WaitGroup
		for _, c := range caches {
			reading.Go(func() {
				if got := read(t, c, id); !bytes.Equal(got, s.origin.body) {
					t.Errorf("got %d of %d bytes", len(got), len(s.origin.body))
				}
			})
		}
		reading.Wait()
		if n := s.origin.count(); n != fetches {
			t.Errorf("the store was asked for %d objects in place of %d", n, fetches)
		}
	}
	all("first", 1)
	all("again", 1)
	s.origin.mu.Lock()
	s.origin.version, s.origin.body = "v2", bytes.Repeat([]byte("new"), 1<<20)
	s.origin.mu.Unlock()
	all("changed", 2)
}

// An answer of a neighbour is as old as the store's: what the operator lets it hold for is not doubled.
func TestAnAnswerDoesNotGrowYounger(t *testing.T) {
	s, caches := cached(t, 1000, 2, objects.Rule{Fresh: time.Hour})
	read(t, caches[0], "owner")
	late := caches[1].Fetch(t.Context(), objects.Request{ID: "other", Function: namespace + "/f", Store: storeName, Reference: reference, Limit: 1 << 30})
	defer late.Release()
	about, err := late.Object(t.Context())
	if err != nil || about.From != s.ranked[0] || about.Fresh >= time.Hour {
		t.Errorf("got %+v, %v", about, err)
	}
	if left := late.Fresh(); left > about.Fresh {
		t.Errorf("the answer holds for %v, the neighbour's for %v", left, about.Fresh)
	}
}
