package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// MeshConfig is what all gateways of a mesh have in common.
type MeshConfig struct {
	// IngressSocket is the daemon's unix socket for requests, the same on every node.
	IngressSocket string
	// Cluster is what the gateways call a function's cluster, empty if they have none. nil:
	// they pick no endpoint per request.
	Cluster func(platform.Function) string
	// Verify returns an error if the peer of ctx may not speak for the node nodeID.
	Verify func(ctx context.Context, nodeID string) error
}

// maxChanges is how many of the latest changes are remembered for streams that were busy
// with an earlier one. A stream that was busy for longer is compared as a whole.
const maxChanges = 4096

// MeshServer serves the functions' endpoints to the nodes' daemons, which relay them to
// their gateways, and what to expect of them: to each node its own split. The gateways' other
// resources are the mesh's own control plane's.
//
// A change costs what the functions that it is of have endpoints, for each node; all other
// functions cost nothing.
type MeshServer struct {
	cfg   MeshConfig
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
	streams map[*meshStream]struct{} // that are verified
}

// served is a function with what it is for each node that has asked.
type served struct {
	*meshFunction
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

// NewMesh returns a server that lets its peers wait until the first Update: a daemon that
// knows the endpoints of before shall not be told that there are none.
func NewMesh(cfg MeshConfig, logger *slog.Logger) *MeshServer {
	return &MeshServer{
		cfg:       cfg,
		log:       logger,
		peers:     &peers{kind: "node", verify: cfg.Verify, log: logger},
		published: make(chan struct{}),
		functions: map[string]*served{},
		streams:   map[*meshStream]struct{}{},
	}
}

// Register adds the discovery services (delta only): ADS, of endpoints, and ECDS, of what to
// expect of them. Their streams stay open until the peer closes them or g stops: use g.Stop,
// and ServerOptions.
func (m *MeshServer) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &meshEndpoints{server: m})
	extension.RegisterExtensionConfigDiscoveryServiceServer(g, &meshExpectations{server: m})
}

// Update publishes what is different in st and w: each node's daemon hears of what is
// different for it, and of nothing else. Functions without a service have no cluster in
// the mesh, and are left out. An error names what could not be published; the rest was.
func (m *MeshServer) Update(st platform.State, w routing.Weights) error {
	if err := checkSocket("ingress", m.cfg.IngressSocket); err != nil {
		return err
	}
	daemon := lbEndpoint(pipe(m.cfg.IngressSocket), core.HealthStatus_UNKNOWN)
	daemon.Metadata = alwaysPlain
	below, err := encodeEndpoint(daemon)
	if err != nil {
		return err
	}
	hot, wrong := hotAddresses(st)
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]*served, len(st.Functions))
	var changed []string
	for _, f := range st.Functions {
		if f.ServicePort == 0 {
			continue
		}
		name := AssignmentName(f)
		old := m.functions[name]
		var before *meshFunction
		if old != nil {
			before = old.meshFunction
		}
		now, err := meshFunction{name: name, cluster: m.cluster(f), ready: hot[f.Name], below: below}.with(w[f.Name], before)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", f.Name, err))
			now = before
		}
		switch {
		case now == nil:
		case now == before:
			next[name] = old
		default:
			next[name] = &served{meshFunction: now, function: f.Name}
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

// cluster is empty if no filter picks the function's endpoint: requests with an input go to
// the daemon.
func (m *MeshServer) cluster(f platform.Function) string {
	if m.cfg.Cluster == nil || f.Policy.Input != "" {
		return ""
	}
	return m.cfg.Cluster(f)
}

// tell lets all streams look through what changed; m.mu is held.
func (m *MeshServer) tell(changed []string) {
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
func (m *MeshServer) since(seq uint64) ([]string, bool) {
	n := m.seq - seq
	if n > uint64(len(m.changes)) {
		return nil, false
	}
	names := slices.Clone(m.changes[uint64(len(m.changes))-n:])
	slices.Sort(names)
	return slices.Compact(names), true
}

// forget drops what was kept for a stream that has ended.
func (m *MeshServer) forget(s *meshStream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.streams, s)
	for _, f := range m.functions {
		delete(f.nodes[s.content], s.peer.id)
	}
}

// Problems returns what of the Weights cannot be used for nodes that are connected, and
// what those nodes have refused.
func (m *MeshServer) Problems() []routing.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := routing.Problems{}
	for s := range m.streams {
		if s.refused != "" {
			found.Add("", fmt.Sprintf("refused its %s, and keeps those that it has: %s", s.content, s.refused), s.peer.id)
		}
		for _, f := range m.functions {
			if why := f.of(s.content, s.peer.id).why; why != "" {
				found.Add(f.function, why, s.peer.id)
			}
		}
	}
	return found.Sorted()
}

// meshEndpoints and meshExpectations let streams wait for the first state.
type meshEndpoints struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *MeshServer
}

func (s *meshEndpoints) DeltaAggregatedResources(str discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return s.server.serve(str, itsEndpoints)
}

type meshExpectations struct {
	extension.UnimplementedExtensionConfigDiscoveryServiceServer
	server *MeshServer
}

func (s *meshExpectations) DeltaExtensionConfigs(str extension.ExtensionConfigDiscoveryService_DeltaExtensionConfigsServer) error {
	return s.server.serve(str, itsExpectations)
}
