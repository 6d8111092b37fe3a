package module

import (
	"io"
	"slices"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
)

// said is a stream on which a gateway says this, and ends.
type said struct {
	stream.DeltaStream
	left []*discovery.DeltaDiscoveryRequest
}

func (s *said) Recv() (*discovery.DeltaDiscoveryRequest, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	r := s.left[0]
	s.left = s.left[1:]
	return r, nil
}

func ask(kind string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: kind}
}

func ack(kind string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: kind, ResponseNonce: "1"}
}

func TestFiltersComeLast(t *testing.T) {
	const cluster, listener, route, filter = resource.ClusterType, resource.ListenerType, resource.RouteType, resource.ExtensionConfigType
	kept := &discovery.DeltaDiscoveryRequest{TypeUrl: filter, InitialResourceVersions: map[string]string{Name: "1"}}
	had := &discovery.DeltaDiscoveryRequest{TypeUrl: route, InitialResourceVersions: map[string]string{"functions": "1"}}
	many := slices.Repeat([]*discovery.DeltaDiscoveryRequest{ask(filter)}, heldMost+1)
	first, second := ask(filter), ask(filter)
	for name, c := range map[string]struct {
		said, want []*discovery.DeltaDiscoveryRequest
	}{
		"a gateway that starts": {
			said: []*discovery.DeltaDiscoveryRequest{ask(cluster), ask(listener), first, second, ask(route), ack(listener), ack(route), ack(filter)},
			want: []*discovery.DeltaDiscoveryRequest{ask(cluster), ask(listener), ask(route), ack(listener), ack(route), first, second, ack(filter)},
		},
		"one that has its filters": {
			said: []*discovery.DeltaDiscoveryRequest{ask(listener), kept, ask(route)},
			want: []*discovery.DeltaDiscoveryRequest{ask(listener), kept, ask(route)},
		},
		"one that has its routes, and no filters": {
			said: []*discovery.DeltaDiscoveryRequest{first, had, second},
			want: []*discovery.DeltaDiscoveryRequest{had, first, second},
		},
		"one that asks once it serves": {
			said: []*discovery.DeltaDiscoveryRequest{ask(route), ack(route), ask(filter)},
			want: []*discovery.DeltaDiscoveryRequest{ask(route), ack(route), ask(filter)},
		},
		"one that asks without end":   {said: many, want: many},
		"one that never takes routes": {said: []*discovery.DeltaDiscoveryRequest{ask(listener), ask(filter)}, want: []*discovery.DeltaDiscoveryRequest{ask(listener)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Late(&said{left: c.said})
			var got []*discovery.DeltaDiscoveryRequest
			for {
				r, err := s.Recv()
				if err != nil {
					break
				}
				got = append(got, r)
			}
			same := func(a, b *discovery.DeltaDiscoveryRequest) bool {
				return a.GetTypeUrl() == b.GetTypeUrl() && a.GetResponseNonce() == b.GetResponseNonce() && len(a.GetInitialResourceVersions()) == len(b.GetInitialResourceVersions())
			}
			if !slices.EqualFunc(got, c.want, same) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
