package xds

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// MeshConfig is what all gateways of a mesh have in common.
type MeshConfig struct {
	// IngressSocket is the daemon's unix socket for requests, the same on every node.
	IngressSocket string
	// Verify returns an error if the peer of ctx may not speak for the node nodeID.
	Verify func(ctx context.Context, nodeID string) error
}

// MeshServer serves the functions' endpoints to the nodes' daemons, which relay them to
// their gateways. The gateways' other resources are the mesh's own control plane's.
type MeshServer struct {
	cfg   MeshConfig
	log   *slog.Logger
	cache *cache.LinearCache
	peers *peers

	first     sync.Once
	published chan struct{} // closed by the first Update

	mu   sync.Mutex // one Update at a time
	have map[string]*endpoint.ClusterLoadAssignment
}

// NewMesh returns a server that lets its peers wait until the first Update: a daemon that
// knows the endpoints of before shall not be told that there are none.
func NewMesh(cfg MeshConfig, logger *slog.Logger) *MeshServer {
	return &MeshServer{
		cfg:       cfg,
		log:       logger,
		cache:     cache.NewLinearCache(resource.EndpointType),
		peers:     newPeers("node", cfg.Verify, logger),
		published: make(chan struct{}),
	}
}

// Register adds the discovery service (ADS, delta only, endpoints only). Its streams stay
// open until the peer closes them or g stops: use g.Stop, and ServerOptions.
func (m *MeshServer) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &meshService{
		adsService: adsService{streams: delta.NewServer(context.Background(), m.cache, &meshCallbacks{m})},
		published:  m.published,
	})
}

// Update publishes what is different in st; a node's daemon hears of nothing else. An
// error names what could not be published; the rest was.
func (m *MeshServer) Update(st platform.State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	assignments, err := MeshAssignments(st, m.cfg.IngressSocket)
	if assignments == nil {
		return err
	}
	changed := make(map[string]types.Resource)
	for name, a := range assignments {
		if old, ok := m.have[name]; !ok || !proto.Equal(old, a) {
			changed[name] = a
		}
	}
	var gone []string
	for name := range m.have {
		if _, ok := assignments[name]; !ok {
			gone = append(gone, name)
		}
	}
	if len(changed)+len(gone) > 0 {
		if err := m.cache.UpdateResources(changed, gone); err != nil {
			return fmt.Errorf("publishing endpoints: %w", err)
		}
	}
	m.have = assignments
	m.first.Do(func() { close(m.published) })
	return err
}

// meshService lets streams wait for the first state.
type meshService struct {
	adsService
	published <-chan struct{}
}

func (m *meshService) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	select {
	case <-m.published:
		return m.adsService.DeltaAggregatedResources(s)
	case <-s.Context().Done():
		return status.FromContextError(s.Context().Err()).Err()
	}
}

// meshCallbacks verify each stream's peer and log what it refuses.
type meshCallbacks struct{ server *MeshServer }

func (c *meshCallbacks) OnDeltaStreamOpen(ctx context.Context, stream int64, _ string) error {
	c.server.peers.open(ctx, stream)
	return nil
}

func (c *meshCallbacks) OnDeltaStreamClosed(stream int64, _ *core.Node) {
	c.server.peers.close(stream)
}

func (c *meshCallbacks) OnStreamDeltaRequest(stream int64, r *discovery.DeltaDiscoveryRequest) error {
	id, _, err := c.server.peers.identify(stream, r.GetNode())
	if err != nil {
		return err
	}
	if r.GetTypeUrl() != resource.EndpointType {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	if r.GetErrorDetail() != nil {
		c.server.log.Error("node refused its endpoints", "node", id, "error", refusalText(r))
	}
	return nil
}

func (c *meshCallbacks) OnStreamDeltaResponse(int64, *discovery.DeltaDiscoveryRequest, *discovery.DeltaDiscoveryResponse) {
}
