//go:build integration

package relay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	trace "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	tracing "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"sigs.k8s.io/yaml"

	// Types that a gateway's configuration has in it.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
)

const routerFilter = "envoy.filters.http.router"

// gateway is an Envoy's configuration, to which patches are applied as Istio does.
type gateway struct {
	bootstrap bootstrap.Bootstrap
	manager   hcm.HttpConnectionManager
}

// patch is one of an EnvoyFilter's.
type patch struct {
	ApplyTo string `json:"applyTo"`
	Match   struct {
		Cluster  struct{ Name string }
		Listener struct {
			FilterChain struct {
				Filter struct {
					SubFilter struct{ Name string } `json:"subFilter"`
				}
			} `json:"filterChain"`
		}
	}
	Patch struct {
		Operation string
		Value     json.RawMessage
	}
}

func (g *gateway) read(t *testing.T, text []byte) {
	t.Helper()
	unmarshal(t, text, &g.bootstrap)
	if err := g.filters().UnmarshalTo(&g.manager); err != nil {
		t.Fatal(err)
	}
}

// filters is where the listener's only filter has its configuration.
func (g *gateway) filters() *anypb.Any {
	return g.bootstrap.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig()
}

// write puts listeners and clusters into files that Envoy discovers, as it does Istio's, and
// returns what it starts with.
func (g *gateway) write(t *testing.T, dir string) []byte {
	t.Helper()
	if err := g.filters().MarshalFrom(&g.manager); err != nil {
		t.Fatal(err)
	}
	discovered := func(name string, resources ...proto.Message) *core.ConfigSource {
		r := &discovery.DiscoveryResponse{}
		for _, m := range resources {
			a, err := anypb.New(m)
			if err != nil {
				t.Fatal(err)
			}
			r.Resources = append(r.Resources, a)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, marshal(t, r), 0o600); err != nil {
			t.Fatal(err)
		}
		return &core.ConfigSource{ResourceApiVersion: core.ApiVersion_V3,
			ConfigSourceSpecifier: &core.ConfigSource_PathConfigSource{PathConfigSource: &core.PathConfigSource{Path: path}}}
	}
	var clusters []proto.Message
	for _, c := range g.bootstrap.GetStaticResources().GetClusters() {
		clusters = append(clusters, c)
	}
	started := proto.CloneOf(&g.bootstrap)
	started.StaticResources = nil
	started.DynamicResources = &bootstrap.Bootstrap_DynamicResources{
		CdsConfig: discovered("clusters.json", clusters...),
		LdsConfig: discovered("listeners.json", g.bootstrap.GetStaticResources().GetListeners()[0]),
	}
	return marshal(t, started)
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	data, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// apply applies an EnvoyFilter. Patches of the prefetch filter are not for this gateway,
// which has it from its own configuration.
func (g *gateway) apply(t *testing.T, envoyFilter []byte) {
	t.Helper()
	var object struct {
		Spec struct {
			ConfigPatches []patch `json:"configPatches"`
		}
	}
	if err := yaml.Unmarshal(envoyFilter, &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Spec.ConfigPatches) == 0 {
		t.Fatal("the EnvoyFilter has no patches")
	}
	for _, p := range object.Spec.ConfigPatches {
		switch p.ApplyTo + " " + p.Patch.Operation {
		case "CLUSTER ADD":
			var c clusterv3.Cluster
			unmarshal(t, p.Patch.Value, &c)
			g.bootstrap.StaticResources.Clusters = append(g.bootstrap.GetStaticResources().GetClusters(), &c)
		case "CLUSTER MERGE":
			g.mergeCluster(t, p)
		case "NETWORK_FILTER MERGE":
			var m hcm.HttpConnectionManager
			p.typedConfig(t, &m)
			proto.Merge(&g.manager, &m)
		case "HTTP_FILTER INSERT_BEFORE":
			g.insert(t, p)
		case "HTTP_FILTER MERGE":
			g.mergeRouter(t, p)
		}
	}
}

// trace has the gateway tell its spans, as Istio has gateways do, with the tags that the
// Telemetry asks for.
func (g *gateway) trace(t *testing.T, socket string) {
	t.Helper()
	text, err := os.ReadFile("../../manifests/istio/telemetry.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec struct {
			Tracing []struct {
				CustomTags map[string]struct{ Header struct{ Name string } } `json:"customTags"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	provider, err := anypb.New(&trace.OpenTelemetryConfig{GrpcService: &core.GrpcService{
		TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: "otlp"}}}})
	if err != nil {
		t.Fatal(err)
	}
	g.manager.Tracing = &hcm.HttpConnectionManager_Tracing{SpawnUpstreamSpan: wrapperspb.Bool(true), Provider: &trace.Tracing_Http{Name: "envoy.tracers.opentelemetry",
		ConfigType: &trace.Tracing_Http_TypedConfig{TypedConfig: provider}}}
	for tag, from := range object.Spec.Tracing[0].CustomTags {
		g.manager.Tracing.CustomTags = append(g.manager.GetTracing().GetCustomTags(), &tracing.CustomTag{Tag: tag,
			Type: &tracing.CustomTag_RequestHeader{RequestHeader: &tracing.CustomTag_Header{Name: from.Header.Name}}})
	}
	var added bootstrap.Bootstrap
	unmarshal(t, fmt.Appendf(nil, `
layered_runtime: {layers: [{name: static, static_layer: {tracing: {opentelemetry: {min_flush_spans: 1}}}}]}
static_resources:
  clusters:
  - name: otlp
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: otlp, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %q}}}}]}]}
`, socket), &added)
	proto.Merge(&g.bootstrap, &added)
}

func (g *gateway) mergeCluster(t *testing.T, p patch) {
	t.Helper()
	for _, c := range g.bootstrap.GetStaticResources().GetClusters() {
		if c.GetName() == p.Match.Cluster.Name {
			var added clusterv3.Cluster
			unmarshal(t, p.Patch.Value, &added)
			proto.Merge(c, &added)
			return
		}
	}
	t.Fatalf("the gateway has no cluster %q", p.Match.Cluster.Name)
}

// insert puts a filter right before the router.
func (g *gateway) insert(t *testing.T, p patch) {
	t.Helper()
	if name := p.Match.Listener.FilterChain.Filter.SubFilter.Name; name != routerFilter {
		t.Fatalf("a filter goes before %q", name)
	}
	var f hcm.HttpFilter
	unmarshal(t, p.Patch.Value, &f)
	g.manager.HttpFilters = slices.Insert(g.manager.GetHttpFilters(), len(g.manager.GetHttpFilters())-1, &f)
}

func (g *gateway) mergeRouter(t *testing.T, p patch) {
	t.Helper()
	if p.Match.Listener.FilterChain.Filter.SubFilter.Name != routerFilter {
		return
	}
	filter := g.manager.GetHttpFilters()[len(g.manager.GetHttpFilters())-1].GetTypedConfig()
	var base, added router.Router
	if err := filter.UnmarshalTo(&base); err != nil {
		t.Fatal(err)
	}
	p.typedConfig(t, &added)
	proto.Merge(&base, &added)
	if err := filter.MarshalFrom(&base); err != nil {
		t.Fatal(err)
	}
}

// typedConfig reads a filter's configuration.
func (p patch) typedConfig(t *testing.T, m proto.Message) {
	t.Helper()
	var value struct {
		TypedConfig json.RawMessage `json:"typed_config"`
	}
	if err := json.Unmarshal(p.Patch.Value, &value); err != nil {
		t.Fatal(err)
	}
	var typed anypb.Any
	unmarshal(t, value.TypedConfig, &typed)
	if err := typed.UnmarshalTo(m); err != nil {
		t.Fatal(err)
	}
}

// unmarshal reads YAML, of which JSON is a part.
func unmarshal(t *testing.T, text []byte, m proto.Message) {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(data, m)
	}
	if err != nil {
		t.Fatal(err)
	}
}
