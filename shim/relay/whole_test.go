package relay

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// everything is a gateway's configuration: one resource of each type, by type.
func everything(t *testing.T) map[string]*discovery.Resource {
	t.Helper()
	out := map[string]*discovery.Resource{resource.EndpointType: assigned(t, fire, "1", "10.0.0.1")}
	for name, m := range map[string]proto.Message{
		fire:       &clusterv3.Cluster{Name: fire},
		"gateway":  &listenerv3.Listener{Name: "gateway"},
		"routes":   &routev3.RouteConfiguration{Name: "routes"},
		"prefetch": &core.TypedExtensionConfig{Name: "prefetch", TypedConfig: &anypb.Any{TypeUrl: "a.b/c.D"}},
	} {
		a, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		out[a.GetTypeUrl()] = &discovery.Resource{Name: name, Version: "1", Resource: a}
	}
	return out
}

// tell has the relay take everything, as it asks for it.
func (u *upstream) tell(all map[string]*discovery.Resource) {
	u.t.Helper()
	asked := []string{}
	for range wholeTypes {
		asked = append(asked, u.recv().GetTypeUrl())
	}
	if !slices.Equal(asked, wholeTypes) {
		u.t.Errorf("the relay asks for %q", asked)
	}
	for _, typeURL := range wholeTypes {
		if err := u.stream.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: typeURL, Nonce: typeURL, Resources: []*discovery.Resource{all[typeURL]}}); err != nil {
			u.t.Fatal(err)
		}
		if r := u.recv(); r.GetResponseNonce() != typeURL || r.GetErrorDetail() != nil {
			u.t.Fatalf("the relay's word is %v", r)
		}
	}
}

// ask asks for resources of a type, by name or, without a name, for all.
func (e *envoy) ask(typeURL string, names ...string) *discovery.DeltaDiscoveryResponse {
	e.t.Helper()
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: names})
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: r.GetNonce()})
	return r
}

// wantEverything asks as Envoy does when it starts, and for filters when it has routes: no filter
// comes before.
func (e *envoy) wantEverything(all map[string]*discovery.Resource) {
	e.t.Helper()
	for _, typeURL := range []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType, resource.ExtensionConfigType} {
		names := []string{all[typeURL].GetName()}
		if typeURL == resource.ClusterType || typeURL == resource.ListenerType {
			names = nil
		}
		r := e.ask(typeURL, names...)
		if len(r.GetResources()) != 1 || r.GetTypeUrl() != typeURL || !proto.Equal(r.GetResources()[0].GetResource(), all[typeURL].GetResource()) {
			e.t.Errorf("asked for %s: %v", typeURL, r)
		}
	}
}

// A gateway is served while the control plane is away, and sent to it when it is back.
func TestTheWholeIsServedWithoutTheControlPlane(t *testing.T) {
	r, all := rigOf(t, Config{Whole: true}), everything(t)
	early := r.ads() // waits: nothing is known
	u := r.controlPlane.accept(t)
	u.tell(all)
	if got := early.refused(); got != codes.Unavailable {
		t.Errorf("a gateway that waited: %v", got)
	}
	unlucky := r.ads() // did not reach the control plane
	unlucky.wantEverything(all)
	if got := unlucky.refused(); got != codes.Unavailable {
		t.Errorf("while the control plane is there: %v", got)
	}
	u.end <- errors.New("it restarts")
	u = r.controlPlane.accept(t) // and says nothing yet
	e := r.ads()
	e.wantEverything(all)
	u.tell(all)
	if got := e.refused(); got != codes.Unavailable {
		t.Errorf("when it is back: %v", got)
	}
}

func TestTheWholeSurvivesARestart(t *testing.T) {
	path, all := filepath.Join(t.TempDir(), "gateway.pb"), everything(t)
	r := rigOf(t, Config{Whole: true, StateFile: path})
	r.controlPlane.accept(t).tell(all)
	r.stop()
	rigOf(t, Config{Whole: true, StateFile: path}).ads().wantEverything(all)
	// A relay of endpoints cannot use it.
	if r := newRelay(t, nil, path, nil); r.kind(resource.EndpointType).len() != 0 {
		t.Error("a file of everything is taken for one of endpoints")
	}
}

func TestTheWholeRefusesOtherTypes(t *testing.T) {
	r := rigOf(t, Config{Whole: true})
	u := r.controlPlane.accept(t)
	for range wholeTypes {
		u.recv()
	}
	if err := u.stream.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: resource.SecretType, Nonce: "1"}); err != nil {
		t.Fatal(err)
	}
	if word := u.recv(); word.GetErrorDetail() == nil {
		t.Errorf("the relay's word on secrets is %v", word)
	}
	e := r.ads()
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ClusterType})
	if got := e.refused(); got != codes.Unavailable { // nothing is known, and it may know more
		t.Errorf("%v", got)
	}
}
