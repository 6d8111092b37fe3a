package nodes_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A node answers in parts. One that refuses, leaves or is older is an error.
func TestCache(t *testing.T) {
	cp := serve(t)
	call := &nodeapi.CacheCall{Verb: nodeapi.CacheVerb_CACHE_VERB_LIST}
	if _, err := cp.Cache(t.Context(), "edge", call); !errors.Is(err, nodes.ErrNotConnected) {
		t.Errorf("of a node that is not there: %v", err)
	}
	old := cp.connect(t, "old", "v1")
	old.wantFunctions()
	if _, err := cp.Cache(t.Context(), "old", call); err == nil {
		t.Error("an older daemon is asked")
	}
	edge := cp.connectAs(t, "edge", &nodeapi.Register{Version: "v2", CacheCalls: true})
	edge.wantFunctions()
	type result struct {
		entries int
		err     error
	}
	ask := func() chan result {
		done := make(chan result, 1)
		go func() {
			entries, err := cp.Cache(t.Context(), "edge", call)
			done <- result{len(entries), err}
		}()
		return done
	}
	answer := func(m *nodeapi.CacheAnswer) {
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_CacheAnswer{CacheAnswer: m}})
	}
	some := []*nodeapi.CacheEntry{{Reference: "s3://a/b"}}
	done := ask()
	id := edge.receive().GetCacheCall().GetId()
	answer(&nodeapi.CacheAnswer{Id: id + 1, Entries: some}) // nobody has asked for it
	answer(&nodeapi.CacheAnswer{Id: id, Entries: some, More: true})
	answer(&nodeapi.CacheAnswer{Id: id, Entries: some})
	if got := <-done; got.err != nil || got.entries != 2 {
		t.Errorf("%+v", got)
	}
	done = ask()
	answer(&nodeapi.CacheAnswer{Id: edge.receive().GetCacheCall().GetId(), Refused: &nodeapi.Refused{Status: 429, Reason: "CacheBusy"}})
	if got, r := <-done, new(platform.Refusal); !errors.As(got.err, &r) || r.Reason != "CacheBusy" {
		t.Errorf("%+v", got)
	}
	done = ask() // the attack: an answer that does not end
	id = edge.receive().GetCacheCall().GetId()
	long := []*nodeapi.CacheEntry{{Problem: strings.Repeat("x", 3<<20)}}
	for range 30 {
		answer(&nodeapi.CacheAnswer{Id: id, Entries: long, More: true})
	}
	answer(&nodeapi.CacheAnswer{Id: id})
	if got := <-done; got.err == nil || got.entries > 0 {
		t.Errorf("of one that says too much: %+v", got)
	}
	done = ask()
	edge.receive()
	edge.end()
	if got := <-done; !errors.Is(got.err, nodes.ErrNotConnected) {
		t.Errorf("of one that has left: %+v", got)
	}
}
