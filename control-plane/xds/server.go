// Package xds tells the nodes' relays where requests go: it turns the platform's state and what
// routing has decided into the functions' endpoints, and into what the gateways' route filter is to
// expect of them (delta xDS).
package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// Config is what all nodes have in common.
type Config struct {
	// IngressSocket is the daemon's unix socket for requests, the same on every node. Empty: the
	// daemons put their own below the endpoints.
	IngressSocket string
	// Endpoints is what the gateways call a function's endpoints, empty if they have none.
	Endpoints func(platform.Function) string
	// Cluster is what they call its cluster, likewise. nil: they pick no endpoint per request.
	Cluster func(platform.Function) string
	// Verify returns an error if the peer of ctx may not speak for the node nodeID.
	Verify func(ctx context.Context, nodeID string) error
}

// maxChanges is how many of the latest changes are remembered for streams that were busy
// with an earlier one. A stream that was busy for longer is compared as a whole.
const maxChanges = 4096

// Server serves the functions' endpoints to the nodes' daemons, which relay them to
// their gateways, and what to expect of them: to each node its own split. The gateways' other
// resources are a mesh's own control plane's, or the daemons make them.
//
// A change costs what the functions that it is of have endpoints, for each node; all other
// functions cost nothing.
type Server struct {
	cfg   Config
	log   *slog.Logger
	peers *peers

	first     sync.Once
	published chan struct{} // closed by the first Update

	mu        sync.Mutex
	functions map[string]*served // by AssignmentName
	// changes are the names of what changed last, oldest first; the last one of them was
	// change number seq.
	changes []string
	seq     uint64
	streams map[*stream]struct{} // that are verified
	moved   chan struct{}        // closed and replaced when a stream has taken something, or ends
}

// served is a function with what it is for each node that has asked.
type served struct {
	*hotFunction
	function string // namespace/name
	nodes    [contents]map[string]split
}

// split is one node's.
type split struct {
	version string
	why     string // what of its weights could not be used
}

func (s *served) of(c content, node string) split {
	if v, ok := s.nodes[c][node]; ok {
		return v
	}
	v := s.split(c, node)
	if v == (split{}) {
		return v // as for most functions: there is nothing to pick
	}
	if s.nodes[c] == nil {
		s.nodes[c] = map[string]split{}
	}
	s.nodes[c][node] = v
	return v
}

// New returns a server that lets its peers wait until the first Update: a daemon that
// knows the endpoints of before shall not be told that there are none.
func New(cfg Config, logger *slog.Logger) *Server {
	return &Server{
		cfg:       cfg,
		log:       logger,
		peers:     &peers{kind: "node", verify: cfg.Verify, log: logger},
		published: make(chan struct{}),
		functions: map[string]*served{},
		streams:   map[*stream]struct{}{},
		moved:     make(chan struct{}),
	}
}

// Register adds the discovery services (delta only): ADS, of endpoints, and ECDS, of what to
// expect of them. Their streams stay open until the peer closes them or g stops: use g.Stop,
// and ServerOptions.
func (m *Server) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &endpointService{server: m})
	extension.RegisterExtensionConfigDiscoveryServiceServer(g, &expectationService{server: m})
}

// Update publishes what is different in st and w: each node's daemon hears of what is
// different for it, and of nothing else. Functions whose endpoints have no name are left out. An
// error names what could not be published; the rest was.
func (m *Server) Update(st platform.State, w routing.Weights) error {
	below, err := m.below()
	if err != nil {
		return err
	}
	hot := hotAddresses(st)
	var wrong error
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]*served, len(st.Functions))
	var changed []string
	for _, f := range st.Functions {
		name := m.cfg.Endpoints(f)
		if name == "" {
			continue
		}
		old := m.functions[name]
		var before *hotFunction
		if old != nil {
			before = old.hotFunction
		}
		now, err := hotFunction{name: name, cluster: m.cluster(f), ready: hot[f.Name], below: below}.with(w[f.Name], before)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", f.Name, err))
			now = before
		}
		switch {
		case now == nil:
		case now == before:
			next[name] = old
		default:
			next[name] = &served{hotFunction: now, function: f.Name}
			changed = append(changed, name)
		}
	}
	for name := range m.functions {
		if next[name] == nil {
			changed = append(changed, name)
		}
	}
	m.functions = next
	m.tell(changed)
	m.first.Do(func() { close(m.published) })
	return wrong
}

// below is the daemon, encoded; empty if each daemon adds itself.
func (m *Server) below() ([]byte, error) {
	if m.cfg.IngressSocket == "" {
		return nil, nil
	}
	if n := len(m.cfg.IngressSocket); n > maxSocketPath {
		return nil, fmt.Errorf("ingress socket: path of %d bytes, must be 1 to %d", n, maxSocketPath)
	}
	daemon := lbEndpoint(pipe(m.cfg.IngressSocket))
	daemon.Metadata = alwaysPlain
	return encodeEndpoint(daemon)
}

// cluster is empty if no filter picks the function's endpoint: requests with an input go to
// the daemon.
func (m *Server) cluster(f platform.Function) string {
	if m.cfg.Cluster == nil || f.Policy.StoredInput() {
		return ""
	}
	return m.cfg.Cluster(f)
}

// tell lets all streams look through what changed; m.mu is held.
func (m *Server) tell(changed []string) {
	if len(changed) == 0 {
		return
	}
	slices.Sort(changed)
	m.seq += uint64(len(changed))
	m.changes = append(m.changes, changed...)
	m.changes = slices.Delete(m.changes, 0, max(len(m.changes)-maxChanges, 0))
	shared := payloads{}
	for c := range contents { // endpoints first: requests wait for them
		for s := range m.streams {
			if s.content == c {
				s.changed(shared)
			}
		}
	}
}

// since returns what changed after seq, false if that is not known any more; m.mu is held.
func (m *Server) since(seq uint64) ([]string, bool) {
	n := m.seq - seq
	if n > uint64(len(m.changes)) {
		return nil, false
	}
	names := slices.Clone(m.changes[uint64(len(m.changes))-n:])
	slices.Sort(names)
	return slices.Compact(names), true
}

// forget drops what was kept for a stream that has ended.
func (m *Server) forget(s *stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, s)
	for _, f := range m.functions {
		delete(f.nodes[s.content], s.peer.id)
	}
	m.move()
}

// move wakes those who wait in Settled; m.mu is held.
func (m *Server) move() {
	close(m.moved)
	m.moved = make(chan struct{})
}

// Settled returns when every node that is connected has taken or refused what all Updates before
// the call say of it, and names those that have not when ctx ends.
func (m *Server) Settled(ctx context.Context) error {
	m.mu.Lock()
	goal := m.seq
	m.mu.Unlock()
	for {
		m.mu.Lock()
		behind, moved := m.behind(goal), m.moved
		m.mu.Unlock()
		if len(behind) == 0 {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the nodes %s to take what they are told: %w",
				strings.Join(behind, ", "), context.Cause(ctx))
		}
	}
}

// behind returns the nodes that lack something of the changes until then; m.mu is held.
func (m *Server) behind(goal uint64) (nodes []string) {
	for s := range m.streams {
		if s.waiting == nil || s.upTo < goal {
			nodes = append(nodes, s.peer.id)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// Problems returns what of the Weights cannot be used for nodes that are connected, and
// what those nodes have refused.
func (m *Server) Problems() []routing.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := routing.Problems{}
	for s := range m.streams {
		if s.refused != "" {
			found.Add(
				"", fmt.Sprintf("refused its %s, and keeps those that it has: %s", s.content, s.refused), s.peer.id,
			)
		}
		for _, f := range m.functions {
			if why := f.of(s.content, s.peer.id).why; why != "" {
				found.Add(f.function, why, s.peer.id)
			}
		}
	}
	return found.Sorted()
}

// endpointService and expectationService let streams wait for the first state.
type endpointService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (s *endpointService) DeltaAggregatedResources(
	str discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer,
) error {
	return s.server.serve(str, itsEndpoints)
}

type expectationService struct {
	extension.UnimplementedExtensionConfigDiscoveryServiceServer
	server *Server
}

func (s *expectationService) DeltaExtensionConfigs(
	str extension.ExtensionConfigDiscoveryService_DeltaExtensionConfigsServer,
) error {
	return s.server.serve(str, itsExpectations)
}
