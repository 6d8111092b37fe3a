package relay

import (
	"context"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// An endpoint's metadata that gateways put into the headers of requests to it
// (manifests/istio/keys.yaml): filterapi.HeaderFunction and HeaderKey.
const (
	metadataNamespace = "headstart"
	metadataFunction  = "function"
	metadataKey       = "key"
)

// Keys are what the daemon knows the requests of its gateways by (shim/gatekey).
type Keys interface {
	// Of is the key of a function.
	Of(function string) string
	// Admits tells whether key is the one that gateways have for themselves.
	Admits(key string) bool
}

// enter begins a stream of a gateway. In a mesh, routes and entries of others lead to the daemon's socket as
// well: they would hear the functions' keys.
func (r *Relay) enter(ctx context.Context) (leave func(), err error) {
	if r.cfg.Keys != nil {
		keys := metadata.ValueFromIncomingContext(ctx, filterapi.HeaderKey)
		if len(keys) != 1 || !r.cfg.Keys.Admits(keys[0]) {
			return nil, status.Error(codes.PermissionDenied, "GatewayUnknown: the stream has no key of this node's gateways; "+
				"if a gateway began it, the EnvoyFilter headstart-gateways is of an older version: apply it")
		}
	}
	return r.limits.enter()
}

// keyed is an assignment of a mesh with the function's name and key in the daemon's endpoint, the only
// one that is a socket.
func (r *Relay) keyed(name string, assignment *anypb.Any) (*anypb.Any, error) {
	if r.cfg.Keys == nil {
		return assignment, nil
	}
	var a endpoint.ClusterLoadAssignment
	if err := assignment.UnmarshalTo(&a); err != nil {
		return nil, err
	}
	function, _, _ := strings.Cut(name, ":") // its service's port
	for _, locality := range a.GetEndpoints() {
		for _, e := range locality.GetLbEndpoints() {
			if e.GetEndpoint().GetAddress().GetPipe() == nil {
				continue
			}
			if e.Metadata == nil {
				e.Metadata = &core.Metadata{}
			}
			if e.Metadata.FilterMetadata == nil {
				e.Metadata.FilterMetadata = map[string]*structpb.Struct{}
			}
			e.Metadata.FilterMetadata[metadataNamespace] = &structpb.Struct{Fields: map[string]*structpb.Value{
				metadataFunction: structpb.NewStringValue(function),
				metadataKey:      structpb.NewStringValue(r.cfg.Keys.Of(function)),
			}}
		}
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(&a)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: assignment.GetTypeUrl(), Value: value}, nil
}

// Rekey has the gateways hear the keys of now.
func (r *Relay) Rekey() error {
	endpoints := r.kind(resource.EndpointType)
	endpoints.mu.Lock()
	defer endpoints.mu.Unlock()
	return endpoints.publish(endpoints.byName, nil)
}
