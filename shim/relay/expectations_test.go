package relay

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

func picking(stateFile string) Config {
	return Config{StateFile: stateFile, RouteFilter: module.Route("/run/headstart/gateway/route.wasm")}
}

// expected is what the control plane says of a function.
func expected(t *testing.T, name, version, line string) *discovery.Resource {
	t.Helper()
	return extensionOf(t, name, version, wrapperspb.String(line))
}

func extensionOf(t *testing.T, name, version string, m proto.Message) *discovery.Resource {
	t.Helper()
	inside, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	a, err := anypb.New(&core.TypedExtensionConfig{Name: name, TypedConfig: inside})
	if err != nil {
		t.Fatal(err)
	}
	return &discovery.Resource{Name: name, Version: version, Resource: a}
}

// line is of a cluster with two endpoints.
func line(cluster string, rtt int) string {
	return fmt.Sprintf("%s 10.0.0.1:80,1,%d,4000,2,0 10.0.0.2:80,1,50000,4000,8,0", cluster, rtt)
}

// ecds has a gateway ask for its filter.
func (r *rig) ecds() *envoy {
	r.t.Helper()
	s, err := extension.NewExtensionConfigDiscoveryServiceClient(r.gateway).DeltaExtensionConfigs(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	e := &envoy{r.t, s}
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "router~1"}, TypeUrl: resource.ExtensionConfigType, ResourceNamesSubscribe: []string{module.RouteName}})
	return e
}

// wantConfig fails unless the filter that comes next has these lines.
func (e *envoy) wantConfig(lines ...string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	if len(r.GetResources()) != 1 || len(r.GetRemovedResources()) > 0 {
		e.t.Fatalf("got %v", r)
	}
	var c core.TypedExtensionConfig
	var filter wasmfilter.Wasm
	var text wrapperspb.StringValue
	if err := errors.Join(r.GetResources()[0].GetResource().UnmarshalTo(&c), c.GetTypedConfig().UnmarshalTo(&filter), filter.GetConfig().GetConfiguration().UnmarshalTo(&text)); err != nil {
		e.t.Fatal(err)
	}
	if file := filter.GetConfig().GetVmConfig().GetCode().GetLocal().GetFilename(); c.GetName() != module.RouteName || file != "/run/headstart/gateway/route.wasm" {
		e.t.Errorf("%q, from %q", c.GetName(), file)
	}
	if got, want := text.GetValue(), strings.Join(append([]string{"v1 session"}, lines...), "\n")+"\n"; got != want {
		e.t.Errorf("configuration\n%s, want\n%s", got, want)
	}
}

// Gateways get one filter for all functions, once there is something to pick, and keep it.
func TestGatewaysGetTheRouteFilter(t *testing.T) {
	r := rigOf(t, picking(""))
	e := r.ecds() // before anything is known
	u := next(t, r.controlPlane.expectations)
	if first := u.recv(); first.GetNode().GetId() != "edge" || first.GetTypeUrl() != resource.ExtensionConfigType || strings.Join(first.GetResourceNamesSubscribe(), ",") != "*" {
		t.Errorf("the first request is %v", first)
	}
	u.accepted(nil) // nothing to pick
	u.accepted(nil, expected(t, plain, "1", line("c2", 1)), expected(t, fire, "1", line("c1", 1)))
	e.wantConfig(line("c1", 1), line("c2", 1))
	u.accepted(nil, expected(t, fire, "2", line("c1", 2)))
	e.wantConfig(line("c1", 2), line("c2", 1))
	u.accepted([]string{plain}, expected(t, "default/wire:80", "1", line("c1", 3))) // another that says it is of c1
	e.wantConfig(line("c1", 2))
	u.accepted([]string{fire, "default/wire:80"})
	e.wantConfig()
	r.ecds().wantConfig()

	u.end <- errors.New("the control plane restarts")
	u = next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "3", line("c1", 4)))
	e.wantConfig(line("c1", 4))
}

// A control plane that is older says nothing to expect, and endpoints come all the same.
func TestEndpointsComeWithoutExpectations(t *testing.T) {
	r := rigOf(t, picking(""))
	next(t, r.controlPlane.expectations).end <- errors.New("unknown service")
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	r.eds().subscribe(fire).want(fire + " 10.0.0.1")
	r.ads().subscribe(fire).want(fire + " 10.0.0.1")
}

// What the filter expects comes after the endpoints, and seldom: Envoy's main thread starts the
// filter's module again for each change. Endpoints are not held back.
func TestExpectationsAreHeldBack(t *testing.T) {
	r := rigOf(t, picking(""))
	u := next(t, r.controlPlane.expectations)
	u.recv()
	e := r.ecds()
	for rtt := range 3 {
		began := time.Now()
		u.accepted(nil, expected(t, fire, strconv.Itoa(rtt), line("c1", rtt)))
		if took := time.Since(began); took < settling {
			t.Errorf("change %d is taken after %v", rtt, took)
		}
		e.wantConfig(line("c1", rtt))
	}
}

func TestExpectationsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.pb")
	r := rigOf(t, picking(path))
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	v := r.controlPlane.accept(t)
	v.recv()
	v.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	r.stop()
	again := rigOf(t, picking(path))
	again.ecds().wantConfig(line("c1", 1)) // the control plane says nothing
	if got := next(t, again.controlPlane.expectations).recv().GetInitialResourceVersions(); len(got) != 1 || got[fire] != "1" {
		t.Errorf("the relay says that it has %v", got)
	}
	again.stop()
	newRig(t, path).eds().subscribe(fire).want(fire + " 10.0.0.1") // without the filter now
}

func TestWrongExpectationsAreRefused(t *testing.T) {
	r := rigOf(t, picking(""))
	u := next(t, r.controlPlane.expectations)
	u.recv()
	u.accepted(nil, expected(t, fire, "1", line("c1", 1)))
	for name, res := range map[string]*discovery.Resource{
		"no line":        expected(t, plain, "1", ""),
		"no endpoint":    expected(t, plain, "1", "c2"),
		"two lines":      expected(t, plain, "1", line("c2", 1)+"\n"+line("c3", 1)),
		"another filter": extensionOf(t, plain, "1", &wasmfilter.Wasm{}),
		"endpoints":      assigned(t, plain, "1", "10.0.0.1"),
		"too many bytes": {Name: plain, Version: strings.Repeat("v", filterapi.MaxConfigBytes), Resource: expected(t, plain, "1", line("c2", 1)).GetResource()},
	} {
		// The good one beside it is not taken either.
		if word := u.send(nil, expected(t, fire, "2", line("c1", 2)), res); word.GetErrorDetail().GetMessage() == "" {
			t.Errorf("%s: the relay's word is %v", name, word)
		}
	}
	r.ecds().wantConfig(line("c1", 1))
}
