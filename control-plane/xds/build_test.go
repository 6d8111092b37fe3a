package xds

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
)

func TestBuildOf(t *testing.T) {
	v8, other := &core.Extension{Name: wasmRuntime, Category: "envoy.wasm.runtime"}, &core.Extension{Name: "envoy.filters.http.router"}
	node := func(minor uint32, extensions ...*core.Extension) *core.Node {
		return &core.Node{Extensions: extensions, UserAgentVersionType: &core.Node_UserAgentBuildVersion{
			UserAgentBuildVersion: &core.BuildVersion{Version: &typev3.SemanticVersion{MajorNumber: 1, MinorNumber: minor, Patch: 3}}}}
	}
	for name, c := range map[string]struct {
		node    *core.Node
		wasm    bool
		problem string
	}{
		"tested":         {node(40, other, v8), true, ""},
		"newer":          {node(99, v8), true, ""},
		"oldest":         {node(36, v8), true, ""},
		"too old":        {node(35, v8), true, "Envoy 1.35.3 is older than any that is tested; Envoy 1.36 to 1.40 are tested"},
		"without Wasm":   {node(38, other), false, "Envoy 1.38.3 was built without Wasm (envoy.wasm.runtime.v8)"},
		"silent":         {nil, true, ""},
		"without number": {&core.Node{Extensions: []*core.Extension{other}}, false, "its Envoy was built without Wasm"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := buildOf(c.node); got.wasm != c.wasm || !strings.HasPrefix(got.problem, c.problem) || (got.problem == "") != (c.problem == "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A gateway that can load no filter is not waited for because of one, and says so once.
func TestSettledWithoutWasm(t *testing.T) {
	l := newLedger()
	route, filter := key{resource.RouteType, "functions"}, key{resource.ExtensionConfigType, "headstart.prefetch"}
	l.publish("edge", map[key]string{route: "a", filter: "a"})
	l.open(1, "edge", build{problem: "it has no Wasm"})
	l.streams[1].taken[route] = 1
	l.send(1, 1, &discovery.DeltaDiscoveryResponse{TypeUrl: resource.ExtensionConfigType, Nonce: "1"})
	if refusal, err := l.receive(1, &discovery.DeltaDiscoveryRequest{TypeUrl: resource.ExtensionConfigType, ResponseNonce: "1",
		ErrorDetail: &status.Status{Message: "Unable to create Wasm plugin"}}); refusal != "" || err != nil {
		t.Errorf("%q, %v", refusal, err)
	}
	if err := l.settled(t.Context()); err != nil {
		t.Error(err)
	}
	if got := l.refusals(); len(got) != 1 || got[0].Message != "it has no Wasm" {
		t.Errorf("the problems are %+v", got)
	}
}
