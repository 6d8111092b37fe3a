package gateways

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/e2e/routing/bed"
)

const (
	functionCluster = "worker"
	// connectTimeout is that of Headstart's own gateways.
	connectTimeout = time.Second
)

// static is an Envoy as it comes, with all endpoints in its configuration.
type static struct {
	name string
	// set completes the function's cluster as the gateway of a node has it.
	set func(c *clusterv3.Cluster, gateway bed.Node, nodes []bed.Node)
}

func (v static) Name() string { return v.name }

func (v static) Open(ctx context.Context, b *bed.Bed) (*Set, error) {
	s := newSet(b, functionCluster)
	err := s.startAll(ctx, func(n bed.Node) *clusterv3.Cluster {
		c := cluster()
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC}
		v.set(c, n, b.Nodes)
		return c
	})
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// startAll starts an Envoy on each node with the function's cluster as that node's gateway
// has it.
func (s *Set) startAll(ctx context.Context, cluster func(gateway bed.Node) *clusterv3.Cluster) error {
	for _, n := range s.bed.Nodes {
		config, err := staticBootstrap(s.admin(n), n, cluster(n))
		if err == nil {
			err = s.start(ctx, n, config)
		}
		if err != nil {
			return fmt.Errorf("gateway of %s: %w", n.Name, err)
		}
	}
	return nil
}

// RoundRobin is Envoy's default, and Knative's for functions that take more than one request
// at a time: the baseline of FaaSt's evaluation.
func RoundRobin() Variant {
	return static{"round robin", func(c *clusterv3.Cluster, _ bed.Node, nodes []bed.Node) {
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		c.LoadAssignment = assignment(locality(0, nodes...))
	}}
}

// LeastRequest takes the one with fewer requests in flight of two at random.
func LeastRequest() Variant {
	return static{"least request", func(c *clusterv3.Cluster, _ bed.Node, nodes []bed.Node) {
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		c.LoadAssignment = assignment(locality(0, nodes...))
	}}
}

// LocalityFailover is what Istio makes of a DestinationRule with outlierDetection and
// localityLbSetting: the gateway's own region first, the others when too many of its
// endpoints have been ejected. All else is as in istiod (pilot/pkg/networking/core,
// applyOutlierDetection): Envoy's defaults, no ejection by success rate, no panic.
func LocalityFailover() Variant {
	return static{"locality failover", func(c *clusterv3.Cluster, gateway bed.Node, nodes []bed.Node) {
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		c.OutlierDetection = &clusterv3.OutlierDetection{EnforcingSuccessRate: wrapperspb.UInt32(0)}
		c.CommonLbConfig = &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: 0}}
		var near, far []bed.Node
		for _, n := range nodes {
			if n.Region == gateway.Region {
				near = append(near, n)
			} else {
				far = append(far, n)
			}
		}
		c.LoadAssignment = assignment(locality(0, near...), locality(1, far...))
	}}
}

// cluster is the same for all variants. It refuses nothing, as Istio's do not.
func cluster() *clusterv3.Cluster {
	limit := wrapperspb.UInt32(math.MaxUint32)
	return &clusterv3.Cluster{
		Name:           functionCluster,
		ConnectTimeout: durationpb.New(connectTimeout),
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
			MaxConnections: limit, MaxPendingRequests: limit, MaxRequests: limit, MaxRetries: limit,
		}}},
	}
}

func assignment(localities ...*endpoint.LocalityLbEndpoints) *endpoint.ClusterLoadAssignment {
	return &endpoint.ClusterLoadAssignment{ClusterName: functionCluster, Endpoints: localities}
}

// locality has the nodes' instances. Priority 0 comes first.
func locality(priority uint32, nodes ...bed.Node) *endpoint.LocalityLbEndpoints {
	l := &endpoint.LocalityLbEndpoints{Priority: priority}
	for _, n := range nodes {
		l.LbEndpoints = append(l.LbEndpoints, &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{
			Endpoint: &endpoint.Endpoint{Address: address(n.Function)}}})
	}
	return l
}

func address(a netip.AddrPort) *core.Address {
	return &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
		Address: a.Addr().String(), PortSpecifier: &core.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

// staticBootstrap is an Envoy that routes everything to one cluster. It has no timeout for
// requests: users have.
func staticBootstrap(admin string, n bed.Node, function *clusterv3.Cluster) ([]byte, error) {
	routes := &routev3.RouteConfiguration{Name: "functions", VirtualHosts: []*routev3.VirtualHost{{
		Name: "worker", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{
				ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: function.Name}, Timeout: durationpb.New(0)}},
		}},
	}}}
	routerConfig, err := anypb.New(&router.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&hcm.HttpConnectionManager{StatPrefix: "gateway", RouteSpecifier: &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes},
		HttpFilters: []*hcm.HttpFilter{{Name: "envoy.filters.http.router", ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: routerConfig}}}})
	if err != nil {
		return nil, err
	}
	return encode(&bootstrap.Bootstrap{
		Node: &core.Node{Id: n.Name, Cluster: "gateways", Locality: &core.Locality{Region: n.Region}},
		Admin: &bootstrap.Admin{Address: &core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{
			Path: admin, Mode: adminMode}}}},
		StaticResources: &bootstrap.Bootstrap_StaticResources{
			Clusters: []*clusterv3.Cluster{function},
			Listeners: []*listenerv3.Listener{{Name: "gateway", Address: address(netip.AddrPortFrom(netip.IPv4Unspecified(), Port)),
				FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{{Name: "envoy.filters.network.http_connection_manager",
					ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager}}}}}}},
		},
	})
}
