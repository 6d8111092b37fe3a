package peers_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/rendezvous"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/problem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "shop"
	storeName = "models"
	reference = "s3://models/llama"
)

var key = objects.Key{Namespace: namespace, Store: storeName, Reference: reference}

// origin is a store with one object. It counts how often that is downloaded.
type origin struct {
	mu          sync.Mutex
	version     string
	body        []byte
	fetches     int
	contentType string
	// step, if there is one, is waited for before each block.
	step chan struct{}
}

func (o *origin) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fetches
}

// fetch is as source.Source's Fetch, with the version that is held.
func (o *origin) fetch(ctx context.Context, held string, begin source.Begin) error {
	o.mu.Lock()
	version, body, step := o.version, o.body, o.step
	if held != version {
		o.fetches++
	}
	o.mu.Unlock()
	if held == version {
		return &source.Unchanged{Fresh: time.Minute}
	}
	w, err := begin(source.Object{Size: int64(len(body)), Version: version, Fresh: time.Minute, ContentType: o.contentType})
	if err != nil {
		return err
	}
	for at := 0; at < len(body); at += digest.Block {
		if step != nil {
			select {
			case <-step:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if _, err := w.WriteAt(body[at:min(at+digest.Block, len(body))], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

// lieAt is the byte that a node that lies flips: one of the second block.
const lieAt = digest.Block + 1000

// entry is an object on a node. It arrives in order.
type entry struct {
	object source.Object

	mu      sync.Mutex
	body    []byte
	changed chan struct{}
	err     error
	// lies: the second block is another one, with the digest of that if the entry is cunning.
	lies, cunning bool
}

func (e *entry) WriteAt(p []byte, at int64) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at != int64(len(e.body)) {
		return 0, fmt.Errorf("written at %d of %d: twice, or not in order", at, len(e.body))
	}
	e.body = append(e.body, p...)
	e.wake()
	return len(p), nil
}

func (e *entry) wake() { close(e.changed); e.changed = make(chan struct{}) }

func (e *entry) end(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err = err
	e.wake()
}

func (e *entry) Object() source.Object { return e.object }
func (e *entry) Close() error          { return nil }

func (e *entry) ReadAt(p []byte, at int64) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, err := bytes.NewReader(e.body).ReadAt(p, at)
	if e.lies && at <= lieAt && lieAt < at+int64(n) {
		p[lieAt-at] ^= 1
	}
	return n, err
}

func (e *entry) Block(ctx context.Context, i int64) (sum digest.Sum, n int, err error) {
	from := i * digest.Block
	if from >= e.object.Size {
		return sum, 0, io.EOF
	}
	to := min(from+digest.Block, e.object.Size)
	for {
		e.mu.Lock()
		body, changed, err := e.body, e.changed, e.err
		e.mu.Unlock()
		switch {
		case int64(len(body)) >= to && e.cunning && from <= lieAt && lieAt < to:
			body = bytes.Clone(body[from:to])
			body[lieAt-from] ^= 1
			return digest.OfBlock(body), len(body), nil
		case int64(len(body)) >= to:
			return digest.OfBlock(body[from:to]), int(to - from), nil
		case err != nil:
			return sum, 0, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return sum, 0, ctx.Err()
		}
	}
}

// node is a daemon with a cache.
type node struct {
	name    string
	peers   *peers.Peers
	origin  *origin
	metrics *prometheus.Registry
	stop    context.CancelFunc
	ended   chan struct{}
	asked   atomic.Int64 // by others

	mu      sync.Mutex
	entries []*entry
	pending map[string]*entry // what the store does not have yet, by the write
	getting *getting
	// before, if there is one, answers the others' questions if it returns true.
	before        func(w http.ResponseWriter, r *http.Request) bool
	lies, cunning bool
	refuses       func() error
	fails         error
}

type getting struct {
	begun chan struct{}
	entry *entry
	err   error
}

func (n *node) Name(ns, store, ref string) (objects.Key, error) {
	if store != storeName || strings.HasPrefix(ns, "foreign") {
		return objects.Key{}, problem.New(http.StatusForbidden, "StoreNotAllowed", "", "it is not granted")
	}
	return objects.Key{Namespace: ns, Store: store, Reference: ref}, nil
}

func (n *node) Held(_ context.Context, _ string, k objects.Key, version string) (peers.Copy, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.entries {
		if e.object.Version == version && k.Namespace == namespace {
			return e, true
		}
	}
	return nil, false
}

func (n *node) Written(k objects.Key, write string) (peers.Copy, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.pending[write]
	return e, e != nil && k.Reference == reference
}

// Get asks the store, once for all that ask at the same time.
func (n *node) Get(_ context.Context, ns string, _ objects.Key) (peers.Copy, error) {
	if n.refuses != nil {
		return nil, n.refuses()
	}
	c, err := n.get("", func(ctx context.Context, have string, begin source.Begin) error {
		if n.fails != nil {
			w, err := begin(source.Object{Size: int64(len(n.origin.body)), Version: n.origin.version})
			if err == nil {
				_, err = w.WriteAt(n.origin.body[:digest.Block], 0)
			}
			return errors.Join(err, n.fails)
		}
		return n.origin.fetch(ctx, have, begin)
	})
	if err != nil {
		return nil, err
	}
	if ns != namespace {
		return nil, fmt.Errorf("asked for %s", ns)
	}
	return c, nil
}

type fetch func(ctx context.Context, have string, begin source.Begin) error

func (n *node) get(held string, from fetch) (*entry, error) {
	n.mu.Lock()
	g := n.getting
	if g == nil {
		g = &getting{begun: make(chan struct{})}
		n.getting = g
		have := held
		var newest *entry
		if len(n.entries) > 0 {
			newest = n.entries[len(n.entries)-1]
			have = newest.object.Version
		}
		go n.fill(g, have, newest, from)
	}
	n.mu.Unlock()
	<-g.begun
	return g.entry, g.err
}

func (n *node) fill(g *getting, have string, newest *entry, from fetch) {
	err := from(context.Background(), have, func(o source.Object) (io.WriterAt, error) {
		e := &entry{object: o, changed: make(chan struct{}), lies: n.lies, cunning: n.cunning}
		n.mu.Lock()
		n.entries = append(n.entries, e)
		n.mu.Unlock()
		g.entry = e
		close(g.begun)
		return e, nil
	})
	n.mu.Lock()
	n.getting = nil
	n.mu.Unlock()
	switch {
	case g.entry != nil:
		g.entry.end(err)
		return
	case errors.As(err, new(*source.Unchanged)) && newest != nil:
		g.entry = newest
	default:
		g.err = err
	}
	close(g.begun)
}

// fetch has the object for a function of the node, whole.
func (n *node) fetch(t testing.TB) ([]byte, error) {
	e, err := n.begin(t, "")
	if err != nil {
		return nil, err
	}
	for i := int64(0); ; i++ {
		if _, _, err := e.Block(t.Context(), i); err == io.EOF {
			return e.body, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func (n *node) begin(t testing.TB, held string) (*entry, error) {
	return n.get(held, func(ctx context.Context, have string, begin source.Begin) error {
		return n.peers.Fetch(fair.For(t.Context(), namespace), key, have, begin,
			func(ctx context.Context, begin source.Begin) error {
				return n.origin.fetch(ctx, have, begin)
			})
	})
}

// site is some nodes that know each other.
type site struct {
	origin  *origin
	key     ed25519.PrivateKey
	ca      *peertlstest.Authority
	members []*nodeapi.Neighbour
	nodes   map[string]*node
	ranked  []string                  // by who is to be asked for the object
	objects func(*node) peers.Objects // a node's
}

func newSite(t testing.TB, size, many int) *site {
	t.Helper()
	return newSiteOf(t, size, many, func(n *node) peers.Objects { return n })
}

func newSiteOf(t testing.TB, size, many int, objects func(*node) peers.Objects) *site {
	t.Helper()
	body := make([]byte, size)
	for i := range body {
		body[i] = byte(i >> 8)
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{origin: &origin{version: "v1", body: body}, key: private, ca: peertlstest.New(t), nodes: map[string]*node{},
		objects: objects}
	var names []string
	for i := range many {
		name := fmt.Sprintf("node-%02d", i)
		names = append(names, name)
		s.start(t, name)
	}
	for _, name := range names {
		s.tell(name, s.members...)
	}
	s.ranked = rendezvous.Choose(namespace+"\x00"+storeName+"\x00"+reference, names, many)
	return s
}

// by is the node that is at a place in the order of those that are asked for the object.
func (s *site) by(i int) *node { return s.nodes[s.ranked[i]] }

// tell is what the control plane says of the members and to one of them.
func (s *site) tell(name string, members ...*nodeapi.Neighbour) {
	var names []string
	for _, m := range members {
		names = append(names, m.GetNode())
	}
	slices.Sort(names)
	n := s.nodes[name]
	n.peers.SetSite(&nodeapi.Site{Members: members, Digest: fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(names, ","))))})
	n.peers.Trust([]ed25519.PublicKey{s.key.Public().(ed25519.PublicKey)})
	n.peers.SetPasses(&nodeapi.Passes{Passes: []*nodeapi.Pass{{Namespace: namespace, Token: s.pass(name, namespace)}}})
}

func (s *site) pass(node, ns string) string {
	return capability.Sign(s.key, capability.Pass{Node: node, Namespace: ns}, time.Now().Add(capability.PassLife))
}

// start brings a node up, as the daemon does.
func (s *site) start(t testing.TB, name string) *node {
	t.Helper()
	local := net.IPv4(127, 0, 0, 1)
	serverTLS, client := s.ca.Load(t, name, local)
	n := &node{name: name, origin: s.origin, metrics: prometheus.NewRegistry(), ended: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	n.peers = peers.New(peers.Config{Node: name, Objects: s.objects(n), Registry: n.metrics, Log: log,
		Client: func(node, host string) (*tls.Config, error) {
			return peertls.Named(peertls.ClientFor(client, host), node), nil
		}})
	n.peers.Patient()
	serverTLS.NextProtos = []string{"http/1.1", peers.Protocol}
	l, err := serve.TLS("127.0.0.1:0", serverTLS)()
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	handler := n.peers.Beside(http.NotFoundHandler())
	spied := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.asked.Add(1)
		n.mu.Lock()
		before := n.before
		n.mu.Unlock()
		if before == nil || !before(w, r) {
			handler.ServeHTTP(w, r)
		}
	})
	go func() {
		defer close(n.ended)
		_ = serve.HTTP(ctx, spied, 0, log, peers.Register)(l) // it ends with ctx
	}()
	t.Cleanup(func() { n.peers.Close(); n.kill() })
	s.nodes[name] = n
	s.members = append(s.members, &nodeapi.Neighbour{Node: name, PeerAddress: l.Addr().String()})
	return n
}

// kill ends the node's daemon for all others.
func (n *node) kill() { n.stop(); <-n.ended }

// counts is how often something was counted with a label.
func (n *node) counts(t testing.TB, metric, label string) int {
	t.Helper()
	families, err := n.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == metric && m.GetLabel()[0].GetValue() == label {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

func (n *node) failures(t testing.TB, reason string) int {
	return n.counts(t, "headstart_peer_failures_total", reason)
}

// await returns once the node has so many blocks of its newest object.
func (n *node) await(t testing.TB, blocks int64) {
	t.Helper()
	n.mu.Lock()
	e := n.entries[len(n.entries)-1]
	n.mu.Unlock()
	if _, _, err := e.Block(t.Context(), blocks-1); err != nil {
		t.Fatal(err)
	}
}
