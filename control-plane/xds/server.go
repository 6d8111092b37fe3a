package xds

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// Server serves each gateway its own resources.
type Server struct {
	cfg    Config
	log    *slog.Logger
	cache  cache.SnapshotCache
	ledger *ledger

	mu        sync.Mutex // one Update at a time
	gateways  map[string]Gateway
	functions map[string]bool
}

// New returns a server without gateways. It needs cfg.Verify and cfg.OnLoad.
func New(cfg Config, logger *slog.Logger) *Server {
	return &Server{
		cfg:      cfg,
		log:      logger,
		cache:    cache.NewSnapshotCache(true, cache.IDHash{}, nil),
		ledger:   newLedger(),
		gateways: map[string]Gateway{},
	}
}

// ServerOptions are what a gRPC server for gateways needs: pings, so that a gateway that
// fell silent counts as disconnected, and leave for theirs, which are more frequent than
// gRPC by itself would bear.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveInterval, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveInterval / 2, PermitWithoutStream: true}),
	}
}

// Register adds the discovery (ADS, delta only) and load reporting services. Their
// streams stay open until the peer closes them or g stops: use g.Stop.
func (s *Server) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &adsService{
		streams: delta.NewServer(context.Background(), s.cache, &adsCallbacks{server: s, open: map[int64]*caller{}}),
	})
	loadstats.RegisterLoadReportingServiceServer(g, &loadService{server: s})
}

// Update publishes the platform's state to the gateways; those for which nothing
// changes hear nothing. Upon an error, all keep what they have. A gateway that gateways
// no longer lists is served on while its Envoy is connected: a daemon's restart must
// not cut its node's gateway off.
func (s *Server) Update(st platform.State, gateways []Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := make(map[string]Gateway, len(gateways))
	for _, gw := range gateways {
		served[gw.ID] = gw
	}
	for id, gw := range s.gateways {
		if _, listed := served[id]; listed {
			continue
		}
		if s.ledger.retire(id, s.cache.ClearSnapshot) {
			delete(s.gateways, id)
		} else {
			served[id] = gw
		}
	}
	snapshots := make(map[string]*cache.Snapshot, len(served))
	for id, gw := range served {
		snapshot, err := s.snapshot(gw, st)
		if err != nil {
			return fmt.Errorf("gateway %q: %w", id, err)
		}
		snapshots[id] = snapshot
	}
	s.gateways = served
	s.functions = make(map[string]bool, len(st.Functions))
	for _, f := range st.Functions {
		s.functions[f.Name] = true
	}
	for id, snapshot := range snapshots {
		if err := s.publish(id, snapshot); err != nil {
			return fmt.Errorf("publishing to gateway %q: %w", id, err)
		}
	}
	return nil
}

func (s *Server) snapshot(gw Gateway, st platform.State) (*cache.Snapshot, error) {
	if gw.ID == "" {
		return nil, fmt.Errorf("has no name")
	}
	snapshot, err := Resources(s.cfg, gw, st)
	if err != nil {
		return nil, err
	}
	if err := snapshot.Consistent(); err != nil {
		return nil, err
	}
	return snapshot, snapshot.ConstructVersionMap()
}

func (s *Server) publish(id string, snapshot *cache.Snapshot) error {
	hashes := make(map[key]string)
	for typeURL, names := range snapshot.VersionMap {
		for name, hash := range names {
			hashes[key{typeURL, name}] = hash
		}
	}
	// Before the first response of this snapshot can be acknowledged.
	p, changed := s.ledger.publish(id, hashes)
	if !changed {
		return nil
	}
	for k := range hashes {
		snapshot.VersionMap[k.typeURL][k.name] = p.version(k)
	}
	for i := range snapshot.Resources {
		snapshot.Resources[i].Version = strconv.FormatUint(p.seq, 10)
	}
	return s.cache.SetSnapshot(context.Background(), id, snapshot)
}

// Settled returns when every connected gateway has acknowledged everything that was
// published before the call. Nothing that an Update took away is then chosen for a new
// request; requests in flight go on. It returns an error when ctx ends, or when a
// gateway refuses what it was sent. Gateways that are not connected are not waited for.
func (s *Server) Settled(ctx context.Context) error { return s.ledger.settled(ctx) }

func (s *Server) isFunction(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.functions[name]
}

// adsService offers delta streams only: state of the world has no acknowledgement per
// resource.
type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	streams delta.Server
}

func (a *adsService) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return a.streams.DeltaStreamHandler(s, resource.AnyType)
}

// servedTypes are the types that a gateway may ask for.
var servedTypes = map[string]bool{
	resource.ListenerType:        true,
	resource.RouteType:           true,
	resource.ClusterType:         true,
	resource.EndpointType:        true,
	resource.ExtensionConfigType: true,
}

// adsCallbacks verifies each stream's peer and keeps the ledger.
type adsCallbacks struct {
	server *Server
	mu     sync.Mutex
	open   map[int64]*caller
}

// caller is one stream's other end; id is empty until it is verified.
type caller struct {
	ctx context.Context
	id  string
}

func (c *adsCallbacks) OnDeltaStreamOpen(ctx context.Context, stream int64, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[stream] = &caller{ctx: ctx}
	return nil
}

func (c *adsCallbacks) OnDeltaStreamClosed(stream int64, _ *core.Node) {
	c.server.ledger.close(stream)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := c.open[stream].id; id != "" {
		c.server.log.Info("gateway disconnected", "gateway", id)
	}
	delete(c.open, stream)
}

func (c *adsCallbacks) OnStreamDeltaRequest(stream int64, r *discovery.DeltaDiscoveryRequest) error {
	c.mu.Lock()
	p := c.open[stream]
	c.mu.Unlock()
	if p.id == "" {
		if err := c.server.verify(p.ctx, r.GetNode()); err != nil {
			return err
		}
		p.id = r.GetNode().GetId()
		c.server.ledger.open(stream, p.id)
		c.server.log.Info("gateway connected", "gateway", p.id)
	} else if r.GetNode() != nil && r.GetNode().GetId() != p.id {
		return status.Error(codes.PermissionDenied, "the node's id changed")
	}
	if !servedTypes[r.GetTypeUrl()] {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	refusal, err := c.server.ledger.receive(stream, r)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if refusal != "" {
		c.server.log.Error("gateway refused its configuration", "gateway", p.id, "type", shortType(r.GetTypeUrl()), "error", refusal)
	}
	return nil
}

func (c *adsCallbacks) OnStreamDeltaResponse(stream int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	// The version is publish's: the same for all resources of a snapshot.
	seq, err := strconv.ParseUint(r.GetSystemVersionInfo(), 10, 64)
	if err != nil {
		c.server.log.Error("response without a version", "version", r.GetSystemVersionInfo())
		return
	}
	c.server.ledger.send(stream, seq, r)
}

func (s *Server) verify(ctx context.Context, node *core.Node) error {
	if node.GetId() == "" {
		return status.Error(codes.InvalidArgument, "the first request names no node")
	}
	if err := s.cfg.Verify(ctx, node.GetId()); err != nil {
		s.log.Warn("gateway refused", "gateway", node.GetId(), "error", err)
		return status.Error(codes.PermissionDenied, "the peer may not speak for this node")
	}
	return nil
}
