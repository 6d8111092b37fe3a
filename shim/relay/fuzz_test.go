package relay

import (
	"maps"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A response of the control plane is taken as a whole or not at all, whatever bytes it has.
func FuzzDelta(f *testing.F) {
	for _, r := range []*discovery.DeltaDiscoveryResponse{
		{RemovedResources: []string{"a", "b"}},
		{Resources: []*discovery.Resource{{Name: "a"}}},
		{Resources: []*discovery.Resource{{Name: "a", Resource: &anypb.Any{TypeUrl: resource.EndpointType, Value: []byte{10, 1, 'a'}}}}},
		{Resources: []*discovery.Resource{{Name: "a", Resource: &anypb.Any{TypeUrl: resource.EndpointType, Value: []byte{10, 1, 'a', 18, 0}}}, {Name: "b"}}},
	} {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var response discovery.DeltaDiscoveryResponse
		if proto.Unmarshal(data, &response) != nil {
			return
		}
		r := &Relay{cfg: Config{Keys: &keys{hour: "1"}}, gateways: newGateways(nil, resource.EndpointType)}
		e := newResources(resource.EndpointType, make(chan struct{}, 1), r.serveEndpoints)
		first := &discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{
			{Name: "a", Version: "1", Resource: &anypb.Any{TypeUrl: resource.EndpointType, Value: []byte{10, 1, 'a'}}}}}
		if err := e.apply(first); err != nil {
			t.Fatal(err)
		}
		before := e.versions()
		if err := e.apply(&response); err != nil && !maps.Equal(before, e.versions()) {
			t.Errorf("refused (%v), and yet there are %v", err, e.versions())
		}
		if known, served := slices.Sorted(maps.Keys(e.versions())), r.gateways.names(resource.EndpointType); !slices.Equal(known, served) {
			t.Errorf("gateways have %v, known are %v", served, known)
		}
	})
}
