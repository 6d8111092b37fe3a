package relay

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const fire, plain = "default/fire:80", "default/plain:8080"

func TestChangesReachGateways(t *testing.T) {
	for name, open := range map[string]func(*rig) *envoy{"EDS": (*rig).eds, "ADS": (*rig).ads} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "")
			e := open(r).subscribe(fire) // before anything is known
			u := r.controlPlane.accept(t)
			u.recv()
			u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"), assigned(t, plain, "1", "10.0.0.9"))
			e.want(fire + " 10.0.0.1") // and not the other one
			u.accepted(nil, assigned(t, plain, "2", "10.0.0.8"))
			u.accepted(nil, assigned(t, fire, "2", "10.0.0.2"))
			e.want(fire + " 10.0.0.2")
			u.accepted([]string{fire})
			e.want("-" + fire)
			u.accepted(nil, assigned(t, fire, "3", "10.0.0.3"))
			e.want(fire + " 10.0.0.3")
			open(r).subscribe(fire, plain).want(fire+" 10.0.0.3", plain+" 10.0.0.8")
		})
	}
}

// The relay says what it has, and takes up where it was.
func TestControlPlaneComesBack(t *testing.T) {
	r := newRig(t, "")
	u := r.controlPlane.accept(t)
	first := u.recv()
	if first.GetNode().GetId() != "edge" || first.GetTypeUrl() != resource.EndpointType || strings.Join(first.GetResourceNamesSubscribe(), ",") != "*" || len(first.GetInitialResourceVersions()) > 0 {
		t.Errorf("the first request is %v", first)
	}
	u.accepted(nil, assigned(t, fire, "f1", "10.0.0.1"), assigned(t, plain, "p1", "10.0.0.9"))
	u.accepted([]string{plain}, assigned(t, fire, "f2", "10.0.0.2"))
	e := r.eds().subscribe(fire)
	e.want(fire + " 10.0.0.2")
	u.end <- errors.New("the control plane restarts")
	u = r.controlPlane.accept(t)
	if got := u.recv().GetInitialResourceVersions(); !maps.Equal(got, map[string]string{fire: "f2"}) {
		t.Errorf("the relay says that it has %v", got)
	}
	u.accepted(nil) // nothing is new
	u.accepted(nil, assigned(t, fire, "f3", "10.0.0.3"))
	e.want(fire + " 10.0.0.3")
}

func TestWrongEndpointsAreRefused(t *testing.T) {
	r := newRig(t, "")
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	named := func(name string, a *anypb.Any) *discovery.Resource {
		return &discovery.Resource{Name: name, Version: "2", Resource: a}
	}
	invalid, err := anypb.New(&endpoint.ClusterLoadAssignment{ClusterName: fire, Endpoints: []*endpoint.LocalityLbEndpoints{{Priority: 1000}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, res := range map[string]*discovery.Resource{
		"no name":             named("", assigned(t, fire, "", "10.0.0.2").GetResource()),
		"a long name":         assigned(t, strings.Repeat("a", 257), "", "10.0.0.2"),
		"another name inside": named(fire, assigned(t, plain, "", "10.0.0.2").GetResource()),
		"another type":        named(fire, &anypb.Any{TypeUrl: resource.ClusterType}),
		"no message":          named(fire, &anypb.Any{TypeUrl: resource.EndpointType, Value: []byte("no message")}),
		"nothing":             named(fire, nil),
		"what Envoy refuses":  named(fire, invalid),
		"too many bytes":      {Name: plain, Version: strings.Repeat("v", maxBytes/2), Resource: assigned(t, plain, "", "10.0.0.2").GetResource()},
	} {
		if name == "too many bytes" { // too much for this test's own connection: as if it had come
			for _, n := range []string{plain, "default/other:80"} {
				res = &discovery.Resource{Name: n, Version: res.GetVersion(), Resource: assigned(t, n, "", "10.0.0.2").GetResource()}
				err = r.relay.kind(resource.EndpointType).apply(&discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{res}})
			}
			if err == nil {
				t.Errorf("%s are taken", name)
			}
			continue
		}
		// The good one beside it is not taken either.
		if word := u.send([]string{fire}, assigned(t, "default/other:80", "1", "10.0.0.7"), res); word.GetErrorDetail().GetCode() != int32(codes.InvalidArgument) || word.GetErrorDetail().GetMessage() == "" {
			t.Errorf("%s: the relay's word is %v", name, word)
		}
	}
	r.eds().subscribe(fire).want(fire + " 10.0.0.1")
	u.accepted(nil, assigned(t, fire, "3", "10.0.0.3"))
}

func TestTooManyAssignments(t *testing.T) {
	e := newResources(
		resource.EndpointType, make(chan struct{}, 1),
		func(map[string]*discovery.Resource, []string) error { return nil },
	)
	all := &discovery.DeltaDiscoveryResponse{}
	for i := range maxResources {
		all.Resources = append(all.Resources, assigned(t, "default/f:"+strings.Repeat("1", i%200)+string(rune('a'+i/200)), "1", "10.0.0.1"))
	}
	if err := e.apply(all); err != nil {
		t.Fatal(err)
	}
	one := &discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{assigned(t, fire, "1", "10.0.0.1")}}
	if err := e.apply(one); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("at most %d", maxResources)) {
		t.Errorf("one more: %v", err)
	}
	one.RemovedResources = []string{all.GetResources()[0].GetName()}
	if err := e.apply(one); err != nil {
		t.Errorf("one for one: %v", err)
	}
}

// An Envoy that reconnects to a daemon without memory keeps what it has.
func TestNothingIsSaidWhileNothingIsKnown(t *testing.T) {
	r := newRig(t, "")
	e := r.eds()
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{fire}, InitialResourceVersions: map[string]string{fire: "of before"}})
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	e.want(fire + " 10.0.0.1")
}

// keys are those of an hour.
type keys struct{ hour string }

func (k *keys) Of(function string) string { return function + " " + k.hour }
func (k *keys) Admits(key string) bool    { return key == "gateways" }

// In a mesh, the daemon's own endpoint has what the daemon knows the function's requests by, and no
// other has.
func TestTheDaemonsEndpointHasTheFunctionsKey(t *testing.T) {
	k := &keys{hour: "1"}
	r := rigOf(t, Config{Keys: k})
	up := r.controlPlane.accept(t)
	up.recv()
	up.accepted(nil, withDaemon(t, assigned(t, "default/fire:80", "1", "10.0.0.1")))
	e := r.eds().subscribe("default/fire:80")
	told := func() (got []string) {
		t.Helper()
		response, err := e.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: response.GetNonce()})
		var a endpoint.ClusterLoadAssignment
		if err := response.GetResources()[0].GetResource().UnmarshalTo(&a); err != nil {
			t.Fatal(err)
		}
		for _, l := range a.GetEndpoints() {
			fields := l.GetLbEndpoints()[0].GetMetadata().GetFilterMetadata()["headstart"].GetFields()
			got = append(got, fields["function"].GetStringValue()+"|"+fields["key"].GetStringValue())
		}
		return got
	}
	if diff := cmp.Diff([]string{"|", "default/fire|default/fire 1"}, told()); diff != "" {
		t.Error(diff)
	}
	k.hour = "2"
	if err := r.relay.Rekey(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"|", "default/fire|default/fire 2"}, told()); diff != "" {
		t.Error(diff)
	}
}

// What a route of somebody else's leads to the gateways' socket has no key of theirs: it hears nothing, and nothing that
// it reports counts.
func TestAttackAStreamWithoutTheGatewaysKey(t *testing.T) {
	r := rigOf(t, Config{Keys: &keys{hour: "1"}})
	up := r.controlPlane.accept(t)
	up.recv()
	up.accepted(nil, withDaemon(t, assigned(t, "default/fire:80", "1", "10.0.0.1")))
	for name, keys := range map[string][]string{"none": nil, "made up": {"x-headstart-key", "stolen"},
		"a function's": {"x-headstart-key", "default/fire 1"}, "two": {"x-headstart-key", "stolen", "x-headstart-key", "gateways"}} {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), keys...)
			for kind, begin := range map[string]func() (grpc.ClientStream, error){
				"EDS": func() (grpc.ClientStream, error) {
					return endpointservice.NewEndpointDiscoveryServiceClient(r.gateway).DeltaEndpoints(ctx)
				},
				"ADS": func() (grpc.ClientStream, error) {
					return discovery.NewAggregatedDiscoveryServiceClient(r.gateway).DeltaAggregatedResources(ctx)
				},
				"ALS": func() (grpc.ClientStream, error) {
					return accesslog.NewAccessLogServiceClient(r.gateway).StreamAccessLogs(ctx)
				},
			} {
				s, err := begin()
				if err == nil {
					err = s.RecvMsg(&discovery.DeltaDiscoveryResponse{})
				}
				if status.Code(err) != codes.PermissionDenied {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
	r.eds().subscribe("default/fire:80").want("default/fire:80 10.0.0.1")
}

// withDaemon is an assignment with the daemon's socket below.
func withDaemon(t *testing.T, res *discovery.Resource) *discovery.Resource {
	t.Helper()
	below, err := proto.Marshal(&endpoint.ClusterLoadAssignment{Endpoints: []*endpoint.LocalityLbEndpoints{{Priority: 2,
		LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: "/run/ingress.sock"}}}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	res.Resource.Value = append(res.Resource.Value, below...)
	return res
}
