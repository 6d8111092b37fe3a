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

	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

// adsService offers delta streams only: state of the world has no acknowledgement per
// resource.
type adsService struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (a *adsService) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	stream := &adsStream{server: a.server, peer: a.server.peers.open(s.Context()), id: a.server.streams.Add(1)}
	return delta.NewServer(context.Background(), a.server.cache, stream).DeltaStreamHandler(module.Late(s), resource.AnyType)
}

// servedTypes are the types that a gateway may ask for.
var servedTypes = map[string]bool{
	resource.ListenerType:        true,
	resource.RouteType:           true,
	resource.ClusterType:         true,
	resource.EndpointType:        true,
	resource.ExtensionConfigType: true,
}

// adsStream verifies a stream's peer and keeps the ledger of it (delta.Callbacks). The
// library's number of the stream is not used.
type adsStream struct {
	server *Server
	peer   *caller
	id     int64
}

func (s *adsStream) OnDeltaStreamOpen(context.Context, int64, string) error { return nil }

func (s *adsStream) OnDeltaStreamClosed(int64, *core.Node) {
	s.server.ledger.close(s.id)
	s.peer.close()
}

func (s *adsStream) OnStreamDeltaRequest(_ int64, r *discovery.DeltaDiscoveryRequest) error {
	first, err := s.peer.identify(r.GetNode())
	if err != nil {
		return err
	}
	if first {
		s.server.ledger.open(s.id, s.peer.id, buildOf(r.GetNode()))
	}
	if !servedTypes[r.GetTypeUrl()] {
		return status.Error(codes.InvalidArgument, "resources of this type are not served")
	}
	refusal, err := s.server.ledger.receive(s.id, r)
	if err != nil {
		return status.Error(codes.ResourceExhausted, err.Error())
	}
	if refusal != "" {
		s.server.log.Error("gateway refused its configuration", "gateway", s.peer.id, "type", shortType(r.GetTypeUrl()), "error", refusal)
	}
	return nil
}

func (s *adsStream) OnStreamDeltaResponse(_ int64, _ *discovery.DeltaDiscoveryRequest, r *discovery.DeltaDiscoveryResponse) {
	// The version is publish's: the same for all resources of a snapshot.
	seq, err := strconv.ParseUint(r.GetSystemVersionInfo(), 10, 64)
	if err != nil {
		s.server.log.Error("response without a version", "version", r.GetSystemVersionInfo())
		return
	}
	s.server.ledger.send(s.id, seq, r)
}
