package xds

import (
	"context"
	"strconv"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
