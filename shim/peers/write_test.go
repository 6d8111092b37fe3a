package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// llama is the object.
var llama = writeback.Key{Store: storeName, Bucket: "models", Key: "llama"}

// pend has a node have a write that the store does not have yet, which a marker names.
func (s *site) pend(n *node, body []byte) writeback.Marker {
	m := writeback.Marker{ID: "w1", Node: n.name, Tag: "t1", Size: int64(len(body)), Key: llama.Key}
	e := &entry{object: source.Object{Size: m.Size, Version: m.Tag}, body: body, changed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending = map[string]*entry{m.ID: e}
	return m
}

// written has a node ask for a write, and returns what came from whom, and whether the rest was waited for.
func (n *node) written(t *testing.T, m writeback.Marker, held string, rest []byte) (
	got []byte, from string, waited bool, err error,
) {
	t.Helper()
	var e *entry
	err = n.peers.Written(fair.For(t.Context(), namespace), llama, m, held,
		func(o source.Object) (io.WriterAt, error) {
			e, from = &entry{object: o, changed: make(chan struct{})}, o.From
			return e, nil
		}, func(_ context.Context, begin source.Begin) error {
			waited = true
			w, err := begin(source.Object{Size: int64(len(rest)), Version: m.Tag})
			if err == nil {
				_, err = w.WriteAt(rest, 0)
			}
			return err
		})
	if e != nil {
		got = e.body
	}
	return got, from, waited, err
}

// A write that the store does not have yet comes from the node that its marker names. What that one does not bring is
// waited for, and comes from the store, without what has come already. It is counted why.
func TestAWriteComesFromItsNode(t *testing.T) {
	body := bytes.Repeat([]byte("pending "), blocks*digest.Block/8)
	about := fmt.Appendf(nil, `{"size":%d,"version":"t1"}`, len(body))
	older := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/object" {
			return false
		}
		_, _ = w.Write(frame('f', []byte(`{"title":"PeerQuestionMalformed","status":400}`)...))
		return true
	}
	breaks := func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = w.Write(append(frame('o', about...), bFrame(body[:digest.Block])...))
		return true
	}
	for name, c := range map[string]struct {
		spoil  func(n *node, m *writeback.Marker)
		reason string // why the rest is waited for
		begun  bool   // by that node
	}{
		"there":                       {func(*node, *writeback.Marker) {}, "", true},
		"another write of the object": {func(_ *node, m *writeback.Marker) { m.ID = "w2" }, "PeerHasNone", false},
		"another tag":                 {func(_ *node, m *writeback.Marker) { m.Tag = "t2" }, "PeerObjectChanged", false},
		"another size":                {func(_ *node, m *writeback.Marker) { m.Size-- }, "Changed", false},
		"a node of another site":      {func(_ *node, m *writeback.Marker) { m.Node = "elsewhere" }, "not asked", false},
		"a node that is gone":         {func(n *node, _ *writeback.Marker) { n.kill() }, "Failed", false},
		"a node that says nothing":    {func(n *node, _ *writeback.Marker) { n.before = said() }, "Silent", false},
		"an older node":               {func(n *node, _ *writeback.Marker) { n.before = older }, "PeerQuestionMalformed", false},
		"a node that breaks off":      {func(n *node, _ *writeback.Marker) { n.before = breaks }, "Failed", true},
		"a node that flips a byte":    {func(n *node, m *writeback.Marker) { n.pending[m.ID].lies = true }, "Lied", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 1000, 3)
			holder, reader := s.by(0), s.by(2)
			m := s.pend(holder, body)
			c.spoil(holder, &m)
			if c.reason == "Silent" {
				reader.peers.Hasty()
			}
			got, from, waited, err := reader.written(t, m, "", body[:m.Size])
			if err != nil || waited != (c.reason != "") || !bytes.Equal(got, body[:m.Size]) || (from == holder.name) != c.begun {
				t.Errorf("%d bytes from %q, waited: %v, %v", len(got), from, waited, err)
			}
			if n := reader.failures(t, c.reason); n != 1 && waited && c.reason != "not asked" {
				t.Errorf("%s was counted %d times", c.reason, n)
			}
			if n := s.origin.count(); n != 0 {
				t.Errorf("the store was asked %d times", n)
			}
		})
	}
}

// A node that has the write gets no bytes. The caller's own error is its own.
func TestAWriteThatIsHeld(t *testing.T) {
	s := newSite(t, 1000, 2)
	m := s.pend(s.by(0), []byte("pending"))
	_, _, waited, err := s.by(1).written(t, m, m.Tag, nil)
	if same := (*source.Unchanged)(nil); !errors.As(err, &same) || same.From != s.by(0).name || waited {
		t.Errorf("%v, waited: %v", err, waited)
	}
	full := errors.New("full")
	err = s.by(1).peers.Written(fair.For(t.Context(), namespace), llama, m, "",
		func(source.Object) (io.WriterAt, error) { return nil, full }, nil)
	if !errors.Is(err, full) {
		t.Error(err)
	}
}

// What breaks off is not gone on with in another version, nor with what was held before.
func TestTheRestOfAWriteIsAnother(t *testing.T) {
	body := make([]byte, 2*digest.Block)
	for name, rest := range map[string]func(begin source.Begin) error{
		"another version": func(begin source.Begin) error {
			_, err := begin(source.Object{Size: int64(len(body)), Version: "t2"})
			return err
		},
		"unchanged": func(source.Begin) error { return &source.Unchanged{} },
	} {
		s := newSite(t, 1000, 2)
		m := s.pend(s.by(0), body)
		s.by(0).before = func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write(append(oFrame(len(body), m.Tag), bFrame(body[:digest.Block])...))
			return true
		}
		err := s.by(1).peers.Written(fair.For(t.Context(), namespace), llama, m, "t0",
			func(source.Object) (io.WriterAt, error) { return discard{}, nil },
			func(_ context.Context, begin source.Begin) error { return rest(begin) })
		if same := (*source.Unchanged)(nil); err == nil || errors.As(err, &same) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A node without a pass waits if it wants the write itself.
func TestAWriteWithoutAPass(t *testing.T) {
	s := newSite(t, 1000, 2)
	m := s.pend(s.by(0), []byte("pending"))
	s.by(1).peers.SetPasses(&nodeapi.Passes{})
	got, _, waited, err := s.by(1).written(t, m, "", []byte("pending"))
	if err != nil || !waited || string(got) != "pending" || s.by(0).asked.Load() != 0 {
		t.Errorf("%q, %v, waited: %v", got, err, waited)
	}
}

// Writes are for those alone who may have the namespace's objects, by the question that is for them.
func TestAttackANodeAsksForAnotherNamespacesWrites(t *testing.T) {
	s := newSite(t, 1000, 2)
	m := s.pend(s.by(0), []byte("pending"))
	const evil = "node-66"
	c := s.stranger(t, evil)
	q := func(ns string, more ...string) url.Values {
		v := url.Values{"namespace": {ns}, "store": {storeName}, "reference": {reference}, "version": {m.Tag},
			"write": {m.ID}, "only": {"true"}}
		for _, name := range more {
			v.Del(name)
		}
		return v
	}
	bank, foreign := capability.Pass{Node: evil, Namespace: "bank"}, capability.Pass{Node: evil, Namespace: "foreign"}
	own := capability.Pass{Node: evil, Namespace: namespace}
	for name, in := range map[string]struct {
		path  string
		pass  *capability.Pass
		query url.Values
		title string
	}{
		"without a pass":             {"/write", nil, q(namespace), "PeerNotAllowed"},
		"another namespace's pass":   {"/write", &bank, q(namespace), "PeerNotAllowed"},
		"a store that is not for it": {"/write", &foreign, q("foreign"), "StoreNotAllowed"},
		"as an object":               {"/object", &own, q(namespace), "PeerQuestionMalformed"},
		"without a write":            {"/write", &own, q(namespace, "write"), "PeerQuestionMalformed"},
		"what the store has as well": {"/write", &own, q(namespace, "only"), "PeerQuestionMalformed"},
		"an honest one":              {"/write", &own, q(namespace), ""},
	} {
		token := ""
		if in.pass != nil {
			token = s.pass(in.pass.Node, in.pass.Namespace)
		}
		_, title, body := s.askAt(t, c, s.by(0), in.path, token, in.query)
		if title != in.title || bytes.Contains(body, []byte("pending")) != (in.title == "") {
			t.Errorf("%s: %q", name, body)
		}
	}
	if n := s.origin.count(); n != 0 {
		t.Errorf("the store was asked %d times", n)
	}
}
