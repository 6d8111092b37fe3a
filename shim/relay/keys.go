package relay

import (
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
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
