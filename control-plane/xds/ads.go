package xds

import (
	"context"
	"strconv"

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
	peers  *peers
}

func (c *adsCallbacks) OnDeltaStreamOpen(ctx context.Context, stream int64, _ string) error {
	c.peers.open(ctx, stream)
	return nil
}

func (c *adsCallbacks) OnDeltaStreamClosed(stream int64, _ *core.Node) {
	c.server.ledger.close(stream)
	c.peers.close(stream)
}

func (c *adsCallbacks) OnStreamDeltaRequest(stream int64, r *discovery.DeltaDiscoveryRequest) error {
	id, first, err := c.peers.identify(stream, r.GetNode())
	if err != nil {
		return err
	}
	if first {
		c.server.ledger.open(stream, id)
	}
	if !servedTypes[r.GetTypeUrl()] {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	refusal, err := c.server.ledger.receive(stream, r)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if refusal != "" {
		c.server.log.Error("gateway refused its configuration", "gateway", id, "type", shortType(r.GetTypeUrl()), "error", refusal)
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
