package xds

import (
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	wasm "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
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

// prefetchDiscovery places the filter in the chain. Until the filter's configuration
// is there, or when Envoy cannot load it, a filter that does nothing stands in.
func prefetchDiscovery(p *packer) *hcm.HttpFilter {
	nothing := p.pack(&headermutation.HeaderMutation{})
	filter := p.pack(&wasmfilter.Wasm{})
	source := adsSource()
	source.InitialFetchTimeout = durationpb.New(filterFetchTimeout)
	return &hcm.HttpFilter{
		Name: prefetchName,
		ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{
			ConfigSource:  source,
			DefaultConfig: nothing,
			TypeUrls:      []string{filter.GetTypeUrl(), nothing.GetTypeUrl()},
		}},
	}
}

func prefetchFilter(path string, config []byte, p *packer) *core.TypedExtensionConfig {
	return &core.TypedExtensionConfig{
		Name: prefetchName,
		TypedConfig: p.pack(&wasmfilter.Wasm{Config: &wasm.PluginConfig{
			Name:          prefetchName,
			RootId:        prefetchName,
			Configuration: p.pack(wrapperspb.String(string(config))),
			// A panic costs the requests that the worker's machine was in the middle of,
			// and those within reloadBackoff; the next one gets a fresh machine.
			FailurePolicy: wasm.FailurePolicy_FAIL_RELOAD,
			ReloadConfig:  &wasm.ReloadConfig{Backoff: &core.BackoffStrategy{BaseInterval: durationpb.New(reloadBackoff)}},
			Vm: &wasm.PluginConfig_VmConfig{VmConfig: &wasm.VmConfig{
				VmId:    prefetchName,
				Runtime: "envoy.wasm.runtime.v8",
				Code: &core.AsyncDataSource{Specifier: &core.AsyncDataSource_Local{
					Local: &core.DataSource{Specifier: &core.DataSource_Filename{Filename: path}},
				}},
			}},
		}}),
	}
}
