// Package module says how Envoy is to load the filters, which are a Wasm module.
package module

import (
	"fmt"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	wasm "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// reloadBackoff is the time in which a worker refuses requests after the filter's panic. A
// fresh machine takes about 10 ms; Envoy's own 1 s would be an outage.
const reloadBackoff = 10 * time.Millisecond

// vmID is of the machine in which a gateway's worker has the filters.
const vmID = "headstart"

// Filter is the filters' module at path, a file on the gateway's machine, as Envoy's configuration of an
// HTTP filter. In a mesh it is Istio that says this, of an image.
func Filter(path string, config []byte) (*core.TypedExtensionConfig, error) {
	text, err := pack(wrapperspb.String(string(config)))
	if err != nil {
		return nil, fmt.Errorf("%s: packing the configuration: %w", Name, err)
	}
	plugin := &wasm.PluginConfig{
		Name:          Name,
		RootId:        Name,
		Configuration: text,
		// A panic costs the requests that the worker's machine was in the middle of,
		// and those within reloadBackoff; the next one gets a fresh machine.
		FailurePolicy: wasm.FailurePolicy_FAIL_RELOAD,
		ReloadConfig:  &wasm.ReloadConfig{Backoff: &core.BackoffStrategy{BaseInterval: durationpb.New(reloadBackoff)}},
		Vm: &wasm.PluginConfig_VmConfig{VmConfig: &wasm.VmConfig{
			VmId:    vmID,
			Runtime: "envoy.wasm.runtime.v8",
			Code: &core.AsyncDataSource{Specifier: &core.AsyncDataSource_Local{
				Local: &core.DataSource{Specifier: &core.DataSource_Filename{Filename: path}},
			}},
		}},
	}
	allowed := make(map[string]*wasm.SanitizationConfig, len(may))
	for _, name := range may {
		allowed[name] = &wasm.SanitizationConfig{}
	}
	// Deprecated as a boundary for modules of strangers, which it is not here; nothing else keeps
	// the parts of bodies from a module.
	plugin.CapabilityRestrictionConfig = &wasm.CapabilityRestrictionConfig{AllowedCapabilities: allowed} //nolint:staticcheck // see above
	typed, err := pack(&wasmfilter.Wasm{Config: plugin})
	if err != nil {
		return nil, fmt.Errorf("%s: packing the filter: %w", Name, err)
	}
	return &core.TypedExtensionConfig{Name: Name, TypedConfig: typed}, nil
}

// pack is always the same for the same message, so that what is unchanged has an unchanged
// version.
func pack(m proto.Message) (*anypb.Any, error) {
	var a anypb.Any
	return &a, anypb.MarshalFrom(&a, m, proto.MarshalOptions{Deterministic: true})
}
