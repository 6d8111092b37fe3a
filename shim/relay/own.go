package relay

import (
	"slices"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// ownTypes are what the node's own gateway has all of, in the order in which a change of several is
// said: clusters come before the routes to them.
var ownTypes = []string{
	resource.EndpointType, resource.ClusterType, resource.ListenerType, resource.RouteType,
	resource.ExtensionConfigType,
}

// Own is the node's own gateway, of which a mesh knows nothing (shim/gateway).
type Own interface {
	// Resources are all that it needs besides endpoints: for the functions, for the clusters that have
	// endpoints, and where the route filter picks these.
	Resources(functions []*nodeapi.Function, clusters []string, picked map[string]bool) ([]types.Resource, error)
	// Daemon is the daemon as the last of a function's endpoints, in an encoded ClusterLoadAssignment
	// that has nothing else.
	Daemon() ([]byte, error)
	// Problem returns what the operator is told of the gateway's program, empty for nothing, and
	// whether it can load filters.
	Problem(*core.Node) (problem string, wasm bool)
}

// own makes what the node's own gateway has besides endpoints, of what the control plane says.
type own struct {
	relay *Relay
	known chan struct{} // closed when it is known which functions there are

	mu        sync.Mutex
	functions []*nodeapi.Function // nil until known; no more of each than the gateway needs
	picked    []string            // clusters of which the route filter picks the endpoints, sorted
	built     map[string]string   // types of the resources, by name: no two types share one
}

// setFunctions takes over which functions there are.
func (o *own) setFunctions(functions []*nodeapi.Function) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.functions == nil {
		defer close(o.known)
	}
	o.functions = make([]*nodeapi.Function, 0, len(functions))
	for _, f := range functions {
		o.functions = append(o.functions, &nodeapi.Function{Name: f.GetName(), Hosts: f.GetHosts(),
			HasInput:      f.GetHasInput(),
			InputTemplate: f.GetInputTemplate(), InputTemplates: f.GetInputTemplates(),
			ReadyTimeout: f.GetReadyTimeout(), RequestTimeout: f.GetRequestTimeout()})
	}
	o.build()
}

// setPicked takes over which clusters the route filter knows.
func (o *own) setPicked(clusters []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.picked, clusters) {
		o.picked = clusters
		o.build()
	}
}

// rebuild looks which functions have endpoints: each of them has a cluster, one that is deployed no
// more as long as it may have requests.
func (o *own) rebuild() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.build()
}

// build hands on what is different; mu is held.
func (o *own) build() {
	if o.functions == nil {
		return
	}
	picked := make(map[string]bool, len(o.picked))
	for _, cluster := range o.picked {
		picked[cluster] = true
	}
	g := o.relay.gateways
	all, err := o.relay.cfg.Gateway.Resources(o.functions, g.names(resource.EndpointType), picked)
	byType := map[string]map[string]*anypb.Any{}
	built := make(map[string]string, len(all))
	for _, r := range all {
		var a *anypb.Any
		if a, err = packed(r); err != nil {
			break
		}
		if byType[a.GetTypeUrl()] == nil {
			byType[a.GetTypeUrl()] = map[string]*anypb.Any{}
		}
		name := cache.GetResourceName(r)
		byType[a.GetTypeUrl()][name], built[name] = a, a.GetTypeUrl()
	}
	if err != nil {
		o.relay.cfg.Log.Error("the gateway cannot be told of the functions, and keeps what it has", "error", err)
		return
	}
	gone := map[string][]string{}
	for name, typeURL := range o.built {
		if built[name] == "" {
			gone[typeURL] = append(gone[typeURL], name)
		}
	}
	o.built = built
	for _, t := range ownTypes {
		g.set(t, byType[t], gone[t])
	}
}

// packed is the same for the same message, so that an unchanged resource has an unchanged version.
func packed(r proto.Message) (*anypb.Any, error) {
	var a anypb.Any
	return &a, anypb.MarshalFrom(&a, r, proto.MarshalOptions{Deterministic: true})
}

// all is what it is made of, as the state file keeps it; nil until that is known.
func (o *own) all() *discovery.Resource {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := packed(&nodeapi.Functions{Functions: o.functions})
	if err != nil || o.functions == nil {
		return nil // names that are no UTF-8 did not come by gRPC
	}
	return &discovery.Resource{Name: "functions", Resource: a}
}
