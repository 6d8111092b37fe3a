package relay

import (
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// known is a rig that has been told of one function.
func known(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "")
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	return r
}

func TestHostilePeersAreRefused(t *testing.T) {
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("default/%d:80", i))
	}
	for _, c := range []struct {
		name    string
		request *discovery.DeltaDiscoveryRequest
		want    codes.Code
	}{
		{"another type", &discovery.DeltaDiscoveryRequest{TypeUrl: resource.SecretType, ResourceNamesSubscribe: []string{"a"}}, codes.InvalidArgument},
		{"a long name", &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{strings.Repeat("a", 257)}}, codes.InvalidArgument},
		{"a long name from before", &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, InitialResourceVersions: map[string]string{strings.Repeat("a", 257): "1"}}, codes.InvalidArgument},
		{"too many names", &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: many}, codes.ResourceExhausted},
		{"a long message", &discovery.DeltaDiscoveryRequest{TypeUrl: strings.Repeat("a", maxMessageBytes+1)}, codes.ResourceExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := known(t)
			r.relay.limits.names.Store(maxNames - 1000) // others'
			e := r.ads()
			e.send(c.request)
			if got := e.refused(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			r.eds().subscribe(fire).want(fire + " 10.0.0.1") // others are served on
		})
	}
}

func TestOnlyDelta(t *testing.T) {
	r := known(t)
	s, err := endpointservice.NewEndpointDiscoveryServiceClient(r.gateway).StreamEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("state of the world: %v", err)
	}
}

func TestStreamsAreLimited(t *testing.T) {
	r := known(t)
	r.relay.limits.streams.Store(maxStreams)
	if got := r.eds().refused(); got != codes.ResourceExhausted {
		t.Errorf("endpoints: %v", got)
	}
	if err := r.log(t); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("access logs: %v", err)
	}
	if _, err := r.olderLogs(t).CloseAndRecv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("access logs in the older form: %v", err)
	}
	r.relay.limits.streams.Store(maxStreams - 1)
	r.eds().subscribe(fire).want(fire + " 10.0.0.1")
}

// What a stream took is given back: by unsubscribing, and by its end.
func TestNamesAreGivenBack(t *testing.T) {
	g := &guarded{relay: newRelay(t, nil, "", nil), names: map[subscribed]struct{}{}, sent: map[string]sentLast{}}
	for _, c := range []struct {
		subscribe, unsubscribe []string
		want                   int64
	}{
		{[]string{"a", "b", "a"}, nil, 2},
		{[]string{"b", "c"}, []string{"a", "unknown"}, 2},
		{nil, []string{"a"}, 2},
	} {
		if err := g.check(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: c.subscribe, ResourceNamesUnsubscribe: c.unsubscribe}); err != nil {
			t.Fatal(err)
		}
		if got := g.relay.limits.names.Load(); got != c.want {
			t.Errorf("after %q, %q: %d names, want %d", c.subscribe, c.unsubscribe, got, c.want)
		}
	}
	g.close()
	if err := g.check(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"late"}}); err != nil {
		t.Error(err)
	}
	if got := g.relay.limits.names.Load(); got != 0 {
		t.Errorf("after the end: %d names", got)
	}
}
