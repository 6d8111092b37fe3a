package relay

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const video, thumbs = "default/video", "default/thumbs"

// owning is a relay with the node's own gateway; confirmed has what is confirmed.
func owning(t *testing.T, stateFile string, refused func(*nodeapi.GatewayRefusals)) (*rig, chan int64) {
	t.Helper()
	confirmed := make(chan int64, 16)
	return rigOf(t, Config{StateFile: stateFile, Refused: refused, Confirmed: func(id int64) { confirmed <- id }, Gateway: gateway.Config{
		Node: "edge", Port: 8080, RelaySocket: "/run/gateway.sock", IngressSocket: "/run/ingress.sock",
		HintSocket:  "/run/hints.sock",
		AdminSocket: "/run/envoy.sock", Filters: "/opt/filters.wasm"}}), confirmed
}

func deployed(names ...string) (all []*nodeapi.Function) {
	for _, name := range names {
		all = append(all, &nodeapi.Function{Name: name, Hosts: []string{filepath.Base(name) + ".example"}})
	}
	return all
}

// hears is the control plane, which has nothing to say to the route filter.
func (r *rig) hears(t *testing.T) *upstream {
	t.Helper()
	expectations := next(t, r.controlPlane.expectations)
	expectations.recv()
	expectations.accepted(nil)
	u := r.controlPlane.accept(t)
	u.recv()
	return u
}

// tell has the relay know these functions, and of the first one address.
func (r *rig) tell(t *testing.T, u *upstream, version string, names ...string) {
	t.Helper()
	r.relay.SetFunctions(deployed(names...))
	added := []*discovery.Resource{}
	for _, name := range names {
		added = append(added, assigned(t, name, version, "10.0.0.1"))
	}
	u.accepted(nil, added...)
}

// asked is what the gateway asks for by name; of other types it has all.
func asked(functions ...string) map[string][]string {
	return map[string][]string{resource.ClusterType: nil, resource.EndpointType: functions, resource.ListenerType: nil,
		resource.RouteType: {"functions"}, resource.ExtensionConfigType: {module.Name}}
}

// takes has the gateway ask as Envoy does when it starts, and for filters when it has routes: no filter
// comes before. It acknowledges all, and returns the names of what it has.
func (e *envoy) takes(functions ...string) map[string][]string {
	e.t.Helper()
	got := map[string][]string{}
	for _, typeURL := range []string{
		resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType,
		resource.ExtensionConfigType,
	} {
		e.send(&discovery.DeltaDiscoveryRequest{
			Node: &core.Node{Id: "edge"}, TypeUrl: typeURL, ResourceNamesSubscribe: asked(functions...)[typeURL],
		})
		r := e.next(typeURL)
		for _, res := range r.GetResources() {
			got[short(typeURL)] = append(got[short(typeURL)], res.GetName())
		}
		e.ack(r)
	}
	return got
}

func (e *envoy) next(typeURL string) *discovery.DeltaDiscoveryResponse {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	if r.GetTypeUrl() != typeURL {
		e.t.Fatalf("got %s, want %s", r.GetTypeUrl(), typeURL)
	}
	return r
}

func (e *envoy) ack(r *discovery.DeltaDiscoveryResponse) {
	e.t.Helper()
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
}

// The node's own gateway has all of its configuration from the relay.
func TestTheOwnGatewayGetsEverything(t *testing.T) {
	r, confirmed := owning(t, "", nil)
	e := r.ads() // waits: nothing is known
	u := r.hears(t)
	r.tell(t, u, "1", video)
	want := map[string][]string{"Cluster": {video, "headstart-hints", "headstart-ingress", "headstart-log"}, "ClusterLoadAssignment": {video}, "Listener": {"gateway"},
		"RouteConfiguration": {"functions"}, "TypedExtensionConfig": {module.Name}}
	if got := e.takes(video); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r.relay.Confirm(7)
	if got := <-confirmed; got != 7 {
		t.Errorf("confirmed %d", got)
	}
}

// Below a function's instances is the daemon, on each node its own.
func TestTheDaemonIsBelowTheInstances(t *testing.T) {
	r, _ := owning(t, "", nil)
	u := r.hears(t)
	r.tell(t, u, "1", video)
	e := r.ads()
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{video}})
	var a endpoint.ClusterLoadAssignment
	if err := e.next(resource.EndpointType).GetResources()[0].GetResource().UnmarshalTo(&a); err != nil {
		t.Fatal(err)
	}
	last := a.GetEndpoints()[len(a.GetEndpoints())-1]
	if len(a.GetEndpoints()) != 2 || a.GetClusterName() != video || last.GetPriority() != 2 ||
		last.GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath() != "/run/ingress.sock" {
		t.Errorf("endpoints are %v", &a)
	}
}

// What was said is confirmed when the gateway has all of it, and not before: an instance is stopped
// A gateway that asks for names one by one has as many answers to take.
func TestEachAnswerIsTaken(t *testing.T) {
	r, confirmed := owning(t, "", nil)
	e := r.ads()
	u := r.hears(t)
	const faces = "default/faces"
	r.tell(t, u, "1", video, thumbs, faces)
	e.takes(video)
	answers := make([]*discovery.DeltaDiscoveryResponse, 2)
	for i, name := range []string{thumbs, faces} {
		e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{name}})
		answers[i] = e.next(resource.EndpointType)
	}
	r.relay.Confirm(1)
	e.ack(answers[0])
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.ListenerType})
	e.ack(e.next(resource.ListenerType)) // so the relay has heard of the first answer
	select {
	case <-confirmed:
		t.Fatal("it is confirmed that the gateway has what it has not taken yet")
	default:
	}
	e.ack(answers[1])
	if got := <-confirmed; got != 1 {
		t.Errorf("confirmed %d", got)
	}
}

// then, or a function called.
func TestWhatIsSaidIsConfirmedWhenTheGatewayHasIt(t *testing.T) {
	r, confirmed := owning(t, "", nil)
	u := r.hears(t)
	r.tell(t, u, "1", video)
	r.relay.Confirm(1)
	if len(confirmed) > 0 {
		t.Error("confirmed before the gateway is connected")
	}
	e := r.ads()
	e.takes(video)
	if got := <-confirmed; got != 1 {
		t.Errorf("confirmed %d", got)
	}
	r.relay.Confirm(2)
	<-confirmed

	u.accepted(nil, assigned(t, video, "2", "10.0.0.2"))
	response := e.next(resource.EndpointType)
	r.relay.Confirm(3)
	u.accepted(nil, assigned(t, video, "3", "10.0.0.3")) // while the gateway has not taken the one before
	e.ack(response)
	response = e.next(resource.EndpointType)
	if len(confirmed) > 0 {
		t.Error("confirmed before the gateway has the last of it")
	}
	e.ack(response)
	if got := <-confirmed; got != 3 {
		t.Errorf("confirmed %d", got)
	}

	// A function that is new is there with routes, cluster and endpoints, and starts no filter again.
	r.tell(t, u, "4", video, thumbs)
	e.ack(e.next(resource.RouteType))
	for _, typeURL := range []string{resource.EndpointType, resource.ClusterType} {
		e.ack(e.next(typeURL))
	}
	r.relay.Confirm(4)
	if len(confirmed) > 0 {
		t.Error("confirmed before the gateway has asked for the endpoints")
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{thumbs}})
	response = e.next(resource.EndpointType)
	// What it refuses is told otherwise, and waited for no longer.
	e.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.EndpointType, ResponseNonce: response.GetNonce(),
		ErrorDetail: &rpcstatus.Status{Message: "no"},
	})
	if got := <-confirmed; got != 4 {
		t.Errorf("confirmed %d", got)
	}
}

// Without the control plane the gateway of a restarted daemon has all as before.
func TestTheOwnGatewaySurvivesARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gateway.pb")
	r, _ := owning(t, path, nil)
	u := r.hears(t)
	r.tell(t, u, "1", video)
	before := r.ads().takes(video)
	u.end <- errors.New("it restarts")
	r.stop()
	again, confirmed := owning(t, path, nil)
	if got := again.ads().takes(video); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("got %v, want %v", got, before)
	}
	again.relay.Confirm(1)
	u = again.hears(t)
	if len(confirmed) > 0 {
		t.Error("confirmed before the control plane has said what is new")
	}
	u.accepted(nil)
	<-confirmed
	// A relay of a mesh cannot use it.
	if r := newRelay(t, nil, path, nil); r.kind(resource.EndpointType).len() != 0 {
		t.Error("a file of an own gateway's is taken for one of a mesh's")
	}
}

// A mistake in one function keeps what the gateway has, and one that is gone keeps its cluster as long
// as it has endpoints: it may have requests.
func TestFunctionsThatGo(t *testing.T) {
	r, _ := owning(t, "", nil)
	u := r.hears(t)
	r.tell(t, u, "1", video, thumbs)
	clusters := func() (names []string) {
		for _, name := range r.relay.gateways.names(resource.ClusterType) {
			if name == video || name == thumbs {
				names = append(names, name)
			}
		}
		return names
	}
	r.relay.SetFunctions(deployed(thumbs))
	if got := clusters(); !slices.Equal(got, []string{thumbs, video}) {
		t.Errorf("clusters %q", got)
	}
	u.accepted([]string{video})
	if got := clusters(); !slices.Equal(got, []string{thumbs}) {
		t.Errorf("clusters %q", got)
	}
	r.relay.SetFunctions([]*nodeapi.Function{{Name: thumbs}, {Name: "no function"}})
	if got := r.relay.gateways.names(resource.RouteType); len(got) != 1 {
		t.Errorf("routes %q", got)
	}
}

// An Envoy that can load no filter says so once, and what it refuses of them is told no more.
func TestAGatewayWithoutWasm(t *testing.T) {
	told := make(chan *nodeapi.GatewayRefusals, 16)
	r, confirmed := owning(t, "", func(m *nodeapi.GatewayRefusals) { told <- m })
	u := r.hears(t)
	r.tell(t, u, "1", video)
	e := r.ads()
	e.send(&discovery.DeltaDiscoveryRequest{
		Node:    &core.Node{Id: "edge", Extensions: []*core.Extension{{Name: "envoy.filters.http.router"}}},
		TypeUrl: resource.ClusterType,
	})
	m := <-told
	if len(m.GetRefusals()) != 1 || m.GetRefusals()[0].GetTypeUrl() != "" || m.GetRefusals()[0].GetWords() == "" {
		t.Errorf("told %v", m)
	}
	e.ack(e.next(resource.ClusterType))
	for _, typeURL := range []string{resource.EndpointType, resource.ListenerType, resource.RouteType} {
		e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: asked(video)[typeURL]})
		e.ack(e.next(typeURL))
	}
	e.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.ExtensionConfigType, ResourceNamesSubscribe: asked()[resource.ExtensionConfigType],
	})
	response := e.next(resource.ExtensionConfigType)
	e.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.ExtensionConfigType, ResponseNonce: response.GetNonce(),
		ErrorDetail: &rpcstatus.Status{Message: "no Wasm"},
	})
	r.relay.Confirm(1)
	<-confirmed
	if len(told) > 0 {
		t.Errorf("told %v", <-told)
	}
}
