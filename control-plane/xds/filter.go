package xds

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wasm "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// filterFetchTimeout is how long a starting gateway waits for the filter before it
	// serves without.
	filterFetchTimeout = 5 * time.Second
	// reloadBackoff is the time in which a worker refuses requests after the filter's
	// panic. A fresh machine takes about 10 ms; Envoy's own 1 s would be an outage.
	reloadBackoff = 10 * time.Millisecond
)

// wasmPlugin is one of the filters that gateways load.
type wasmPlugin struct {
	// name is in Envoy's admin interface and statistics.
	name string
	// path is its .wasm file on the gateways.
	path string
	// may lists what Envoy may call of it and it of Envoy; nil: everything. A callback that
	// does nothing costs as much as one that does something, for each part of a body.
	may []string
}

// discovery places the filter in the chain. Until the filter's configuration is there, or
// when Envoy cannot load it, a filter that does nothing stands in.
func (w wasmPlugin) discovery(p *packer) *hcm.HttpFilter {
	nothing := p.pack(&headermutation.HeaderMutation{})
	filter := p.pack(&wasmfilter.Wasm{})
	source := adsSource()
	source.InitialFetchTimeout = durationpb.New(filterFetchTimeout)
	return &hcm.HttpFilter{
		Name: w.name,
		ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{
			ConfigSource:  source,
			DefaultConfig: nothing,
			TypeUrls:      []string{filter.GetTypeUrl(), nothing.GetTypeUrl()},
		}},
	}
}

func (w wasmPlugin) filter(config []byte, p *packer) *core.TypedExtensionConfig {
	plugin := &wasm.PluginConfig{
		Name:          w.name,
		RootId:        w.name,
		Configuration: p.pack(wrapperspb.String(string(config))),
		// A panic costs the requests that the worker's machine was in the middle of,
		// and those within reloadBackoff; the next one gets a fresh machine.
		FailurePolicy: wasm.FailurePolicy_FAIL_RELOAD,
		ReloadConfig:  &wasm.ReloadConfig{Backoff: &core.BackoffStrategy{BaseInterval: durationpb.New(reloadBackoff)}},
		Vm: &wasm.PluginConfig_VmConfig{VmConfig: &wasm.VmConfig{
			VmId:    w.name,
			Runtime: "envoy.wasm.runtime.v8",
			Code: &core.AsyncDataSource{Specifier: &core.AsyncDataSource_Local{
				Local: &core.DataSource{Specifier: &core.DataSource_Filename{Filename: w.path}},
			}},
		}},
	}
	if w.may != nil {
		allowed := make(map[string]*wasm.SanitizationConfig, len(w.may))
		for _, name := range w.may {
			allowed[name] = &wasm.SanitizationConfig{}
		}
		// Deprecated as a boundary for modules of strangers, which it is not here; nothing else keeps
		// the parts of bodies from a module.
		plugin.CapabilityRestrictionConfig = &wasm.CapabilityRestrictionConfig{AllowedCapabilities: allowed} //nolint:staticcheck // see above
	}
	return &core.TypedExtensionConfig{Name: w.name, TypedConfig: p.pack(&wasmfilter.Wasm{Config: plugin})}
}

// withoutFilter has requests not even enter a filter.
func withoutFilter(p *packer) *anypb.Any { return p.pack(&routev3.FilterConfig{Disabled: true}) }
