// Package xds tells the gateways' Envoys what to do: it turns the platform's state
// into Envoy's resources and serves them over ADS (delta). A cold function's cluster
// points to the daemon of the gateway's own node, a hot one's to its ready instances,
// so a hot request pays nothing for being able to be cold.
package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

// Names that appear in Envoy's admin interface and statistics. A function's cluster,
// virtual host and endpoints bear the function's own name, which has a slash and so
// never meets one of these.
const (
	listenerName = "gateway"
	// ActiveRequests is the name of Envoy's statistic that counts a gateway's requests.
	ActiveRequests = "http." + listenerName + ".downstream_rq_active"
	routesName     = "functions"
	ingressCluster = "headstart-ingress"
	hintCluster    = "headstart-hints"
	otlpCluster    = "headstart-otlp"
)

// maxSocketPath is the length of a unix socket's path: sockaddr_un.sun_path on Linux
// holds 108 bytes with the final zero (unix(7)).
const maxSocketPath = 107

// Config is what all gateways have in common.
type Config struct {
	// ListenPort is the TCP port of each gateway, on all addresses.
	ListenPort uint32
	// FilterPath is the prefetch filter's .wasm file on the gateways. Empty: gateways
	// without the filter; requests work, inputs are not prefetched.
	FilterPath string
	// RouteFilterPath is the route filter's. Empty: weights alone say where requests go.
	RouteFilterPath string
	// OTLPSocket is the unix socket that takes the gateways' spans (OTLP over gRPC).
	// Empty: gateways make no spans.
	OTLPSocket string
	// TraceSampling is the percentage of requests that start a trace. A request that
	// arrives with a traceparent follows the decision in it.
	TraceSampling float64

	// Verify returns an error if the peer of ctx may not speak for the gateway nodeID.
	Verify func(ctx context.Context, nodeID string) error
	// OnLoad takes what a gateway reports each LoadInterval, see Load.
	OnLoad func(gateway string, loads []signals.Load)
}

// Gateway is one node's Envoy.
type Gateway struct {
	// ID is the node's name, and Envoy's node.id.
	ID string
	// IngressSocket and HintSocket are the daemon's unix sockets on that node.
	IngressSocket string
	HintSocket    string
}

// Resources returns everything that gateway gw needs to serve st by w, and by function
// what of w could not be used. It does not depend on the order of st's functions and
// instances. It refuses what would make Envoy
// reject a whole set of resources, such as two functions with one host: one function's
// mistake must not stop the others' updates.
func Resources(cfg Config, gw Gateway, st platform.State, w routing.Weights) (_ *cache.Snapshot, unused map[string]string, err error) {
	if err := errors.Join(checkSocket("ingress", gw.IngressSocket), checkSocket("hint", gw.HintSocket)); err != nil {
		return nil, nil, err
	}
	if cfg.OTLPSocket != "" {
		if err := checkSocket("OTLP", cfg.OTLPSocket); err != nil {
			return nil, nil, err
		}
	}
	functions := slices.Clone(st.Functions)
	slices.SortFunc(functions, func(a, b platform.Function) int { return cmp.Compare(a.Name, b.Name) })
	// Made even without the filter, because it checks names and hosts.
	plugin, err := pluginConfig(functions)
	if err != nil {
		return nil, nil, fmt.Errorf("plugin configuration: %w", err)
	}
	serving, err := serve(gw, functions, st.Instances, w)
	if err != nil {
		return nil, nil, err
	}
	expectations, err := filterapi.MarshalRoute(serving.perRequest)
	if err != nil {
		return nil, nil, fmt.Errorf("route filter's configuration: %w", err)
	}
	var p packer
	resources := map[resource.Type][]types.Resource{
		resource.ListenerType: {listener(cfg, gw, &p)},
		resource.RouteType:    {routes(cfg, functions, serving.perRequest, &p)},
		resource.ClusterType:  clusters(cfg, gw, functions, &p),
		resource.EndpointType: serving.assignments,
	}
	if cfg.FilterPath != "" {
		resources[resource.ExtensionConfigType] = append(resources[resource.ExtensionConfigType], p.load(module.Prefetch(cfg.FilterPath), plugin))
	}
	if cfg.RouteFilterPath != "" {
		resources[resource.ExtensionConfigType] = append(resources[resource.ExtensionConfigType], p.load(module.Route(cfg.RouteFilterPath), expectations))
	}
	if p.err != nil {
		return nil, nil, fmt.Errorf("packing resources: %w", p.err)
	}
	snapshot, err := cache.NewSnapshot("", resources)
	return snapshot, serving.unused, err
}

func pluginConfig(functions []platform.Function) ([]byte, error) {
	c := filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster, Functions: make([]filterapi.Function, 0, len(functions))}
	for _, f := range functions {
		// Also those without an input, which are only here to be checked.
		c.Functions = append(c.Functions, filterapi.Function{Name: f.Name, Hosts: f.Hosts, Input: f.Policy.Template()})
	}
	return c.Marshal()
}

func checkSocket(what, path string) error {
	if path == "" || len(path) > maxSocketPath {
		return fmt.Errorf("%s socket: path of %d bytes, must be 1 to %d", what, len(path), maxSocketPath)
	}
	return nil
}

// packer wraps messages and keeps the first error. Its output is the same for the same
// message, so that an unchanged resource has an unchanged version.
type packer struct{ err error }

func (p *packer) pack(m proto.Message) *anypb.Any {
	var a anypb.Any
	if err := anypb.MarshalFrom(&a, m, proto.MarshalOptions{Deterministic: true}); err != nil && p.err == nil {
		p.err = err
	}
	return &a
}

func (p *packer) load(m module.Module, config []byte) *core.TypedExtensionConfig {
	filter, err := m.Filter(config)
	if err != nil && p.err == nil {
		p.err = err
	}
	return filter
}
