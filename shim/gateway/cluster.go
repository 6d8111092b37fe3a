package gateway

import (
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	leastrequest "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	overridehost "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	upstreamhttp "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/upstream"
)

const (
	// maxConcurrent is per cluster and gateway: all requests of a cold function wait in
	// one cluster, and Envoy's own default of 1024 would refuse a burst.
	maxConcurrent = 8192
	// upstreamIdleTimeout is below the shortest keep-alive of common servers (gunicorn:
	// 2 s, Node.js: 5 s), so that the gateway closes idle connections first and no
	// request meets a connection that the function is closing: by a round trip of up to half
	// a second, as the function counts from when it has sent its answer to when the request
	// is there. The longer it is, the fewer requests have to connect first.
	upstreamIdleTimeout = 1500 * time.Millisecond
	// protocolOptionsKey is where Envoy looks for upstreamhttp.HttpProtocolOptions.
	protocolOptionsKey = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
)

func (c Config) clusters(functions []string, p *packer) []types.Resource {
	out := []types.Resource{
		pipeCluster(ingressCluster, c.IngressSocket, http1(p)),
		pipeCluster(hintCluster, c.HintSocket, http1(p)),
		c.logs(p),
	}
	if c.OTLPSocket != "" {
		out = append(out, pipeCluster(otlpCluster, c.OTLPSocket, http2(p)))
	}
	for _, name := range functions {
		out = append(out, functionCluster(name, p))
	}
	return out
}

// functionCluster depends on nothing but the name: a changed cluster loses its
// connections and its endpoints until they are discovered again.
func functionCluster(name string, p *packer) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: adsSource()},
		ConnectTimeout:       durationpb.New(upstream.ConnectTimeout),
		LoadBalancingPolicy:  loadBalancing(p),
		CommonLbConfig: &clusterv3.Cluster_CommonLbConfig{
			// Draining instances outnumber the rest as a matter of course; that is no panic
			// in which they must serve again.
			HealthyPanicThreshold: &typev3.Percent{Value: 0},
		},
		CircuitBreakers:               circuitBreakers(),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		TypedExtensionProtocolOptions: http1(p, withoutEmptyTraceState(p)...),
		UpstreamConnectionOptions:     upstream.Connection(),
	}
}

// loadBalancing sends a request to the endpoint that a filter has named for it, if that is
// one of the function's, and all others by weight to those with the fewest.
func loadBalancing(p *packer) *clusterv3.LoadBalancingPolicy {
	return policyOf("envoy.load_balancing_policies.override_host", p.pack(&overridehost.OverrideHost{
		OverrideHostSources: []*overridehost.OverrideHost_OverrideHostSource{{Header: filterapi.HeaderEndpoint}},
		FallbackPolicy: policyOf(
			"envoy.load_balancing_policies.least_request", p.pack(&leastrequest.LeastRequest{}),
		),
	}))
}

func policyOf(name string, config *anypb.Any) *clusterv3.LoadBalancingPolicy {
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{Name: name, TypedConfig: config},
	}}}
}

func pipeCluster(name, socket string, options map[string]*anypb.Any) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                          name,
		ClusterDiscoveryType:          &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
		LoadAssignment:                assignment(name, pipe(socket)),
		ConnectTimeout:                durationpb.New(upstream.ConnectTimeout),
		CircuitBreakers:               circuitBreakers(),
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		TypedExtensionProtocolOptions: options,
	}
}

func circuitBreakers() *clusterv3.CircuitBreakers {
	limit := wrapperspb.UInt32(maxConcurrent)
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     limit,
		MaxPendingRequests: limit,
		MaxRequests:        limit,
		// While a daemon restarts, all requests are retries.
		MaxRetries: limit,
	}}}
}

func http1(p *packer, filters ...*hcm.HttpFilter) map[string]*anypb.Any {
	return map[string]*anypb.Any{protocolOptionsKey: p.pack(&upstreamhttp.HttpProtocolOptions{
		CommonHttpProtocolOptions: &core.HttpProtocolOptions{IdleTimeout: durationpb.New(upstreamIdleTimeout)},
		HttpFilters:               filters,
		UpstreamProtocolOptions: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{
					HttpProtocolOptions: &core.Http1ProtocolOptions{},
				},
			},
		},
	})}
}

func http2(p *packer) map[string]*anypb.Any {
	return map[string]*anypb.Any{protocolOptionsKey: p.pack(&upstreamhttp.HttpProtocolOptions{
		UpstreamProtocolOptions: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig_{
			ExplicitHttpConfig: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig{
				ProtocolConfig: &upstreamhttp.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
					Http2ProtocolOptions: &core.Http2ProtocolOptions{},
				},
			},
		},
	})}
}

func assignment(cluster string, address *core.Address) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpoint.LocalityLbEndpoints{{
		LbEndpoints: []*endpoint.LbEndpoint{{
			HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address}},
		}},
	}}}
}

func pipe(path string) *core.Address {
	return &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: path}}}
}

func adsSource() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:    core.ApiVersion_V3,
		ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
	}
}

func grpcService(cluster string) *core.GrpcService {
	return &core.GrpcService{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{
		EnvoyGrpc: &core.GrpcService_EnvoyGrpc{ClusterName: cluster},
	}}
}

// daemonPriority is below those of a function's instances, with and without weight: so a function
// is cold or hot by what these have.
const daemonPriority = 2

// Daemon is the daemon as the last of a function's endpoints, in an encoded ClusterLoadAssignment
// that has nothing else.
func (c Config) Daemon() ([]byte, error) {
	below := assignment("", pipe(c.IngressSocket))
	below.GetEndpoints()[0].Priority = daemonPriority
	return proto.MarshalOptions{Deterministic: true}.Marshal(below)
}
