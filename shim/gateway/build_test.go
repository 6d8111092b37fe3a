package gateway

import (
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

func TestProblemOfAProgram(t *testing.T) {
	v8, other := &core.Extension{Name: wasmRuntime, Category: "envoy.wasm.runtime"}, &core.Extension{
		Name: "envoy.filters.http.router",
	}
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
			if problem, wasm := full.Problem(c.node); wasm != c.wasm || !strings.HasPrefix(problem, c.problem) || (problem == "") != (c.problem == "") {
				t.Errorf("got %q, %v", problem, wasm)
			}
		})
	}
}
