package gateway

import (
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/anypb"
)

// discovered places a filter in the chain. Until the filter's configuration is there, for which no
// listener waits (module.Late), or when Envoy cannot load it, a filter that does nothing stands in.
func discovered(name string, p *packer) *hcm.HttpFilter {
	nothing := p.pack(&headermutation.HeaderMutation{})
	filter := p.pack(&wasmfilter.Wasm{})
	return &hcm.HttpFilter{
		Name: name,
		ConfigType: &hcm.HttpFilter_ConfigDiscovery{ConfigDiscovery: &core.ExtensionConfigSource{
			ConfigSource:                     adsSource(),
			DefaultConfig:                    nothing,
			ApplyDefaultConfigWithoutWarming: true,
			TypeUrls:                         []string{filter.GetTypeUrl(), nothing.GetTypeUrl()},
		}},
	}
}

// withoutFilter has requests not even enter a filter.
func withoutFilter(p *packer) *anypb.Any { return p.pack(&routev3.FilterConfig{Disabled: true}) }
