package xds

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Priorities of a function's endpoints in a mesh. Envoy uses the second while the first
// has no endpoint, so a function is cold or hot by what the first one has.
const (
	priorityReady  = 0
	priorityDaemon = 1
)

// A mesh's clusters choose the transport socket by this metadata of an endpoint: Istio's
// own match tlsMode, and what package istio adds for the daemon, which is always plain.
const transportSocketMatch = "envoy.transport_socket_match"

var (
	overMesh    = socketMatch("tlsMode", "istio")
	alwaysPlain = socketMatch("headstart", "node")
)

func socketMatch(key, value string) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
		transportSocketMatch: {Fields: map[string]*structpb.Value{key: structpb.NewStringValue(value)}},
	}}
}

// AssignmentName is the name of a function's endpoints in a mesh, which the function's
// cluster asks for (eds_cluster_config.service_name).
func AssignmentName(f platform.Function) string {
	return f.Name + ":" + strconv.Itoa(int(f.ServicePort))
}

// MeshAssignments returns each function's endpoints for gateways whose clusters are a
// mesh's, by AssignmentName: where it is ready, and below that ingressSocket, where the
// gateway's own node parks requests while it is nowhere ready. Functions without a service
// have no cluster there, and are left out. The result does not depend on the order of st.
// A wrong address is left out and named in the error; the rest is usable all the same.
func MeshAssignments(st platform.State, ingressSocket string) (map[string]*endpoint.ClusterLoadAssignment, error) {
	if err := checkSocket("ingress", ingressSocket); err != nil {
		return nil, err
	}
	hot, err := hotAddresses(st)
	below := lbEndpoint(pipe(ingressSocket), core.HealthStatus_UNKNOWN)
	below.Metadata = alwaysPlain
	out := make(map[string]*endpoint.ClusterLoadAssignment, len(st.Functions))
	for _, f := range st.Functions {
		if f.ServicePort == 0 {
			continue
		}
		a := &endpoint.ClusterLoadAssignment{ClusterName: AssignmentName(f)}
		if ready := hot[f.Name].endpoints(); len(ready) > 0 {
			a.Endpoints = append(a.Endpoints, locality(priorityReady, ready...))
		}
		a.Endpoints = append(a.Endpoints, locality(priorityDaemon, below))
		out[a.ClusterName] = a
	}
	return out, err
}

// addresses says of each address whether it takes requests over mutual TLS.
type addresses map[netip.AddrPort]bool

// hotAddresses returns where functions are ready: in instances of the platform's own, or
// in those that another autoscaler runs.
func hotAddresses(st platform.State) (map[string]addresses, error) {
	hot := make(map[string]addresses)
	var wrong []error
	add := func(function, address string, inMesh bool) {
		a, err := netip.ParseAddrPort(address)
		if err != nil || a.Port() == 0 {
			wrong = append(wrong, fmt.Errorf("%s: address %.64q is not ip:port", function, address))
			return
		}
		if hot[function] == nil {
			hot[function] = addresses{}
		}
		hot[function][a] = hot[function][a] || inMesh
	}
	for _, i := range st.Instances {
		if i.Phase == platform.Ready {
			add(i.Function, i.Address, i.MeshSNI != "")
		}
	}
	for _, e := range st.Endpoints {
		add(e.Function, e.Address, e.MeshTLS)
	}
	return hot, errors.Join(wrong...)
}

// endpoints are sorted, so that the same addresses are the same resource.
func (a addresses) endpoints() []*endpoint.LbEndpoint {
	list := make([]*endpoint.LbEndpoint, 0, len(a))
	for _, address := range slices.SortedFunc(maps.Keys(a), netip.AddrPort.Compare) {
		e := lbEndpoint(socketAddress(address.Addr().String(), uint32(address.Port())), core.HealthStatus_UNKNOWN)
		if a[address] {
			e.Metadata = overMesh
		}
		list = append(list, e)
	}
	return list
}

// locality has a weight, because policies that weigh localities send nothing to one
// without.
func locality(priority uint32, endpoints ...*endpoint.LbEndpoint) *endpoint.LocalityLbEndpoints {
	return &endpoint.LocalityLbEndpoints{
		Priority:            priority,
		LbEndpoints:         endpoints,
		LoadBalancingWeight: wrapperspb.UInt32(uint32(len(endpoints))),
	}
}

// PluginConfig returns the prefetch filter's configuration for gateways of a mesh: all
// functions of st, always the same text for the same state. hintCluster is the cluster of
// the daemon's hint socket, ingressEndpoint the path of its ingress socket, both as every
// gateway has them. A host that several functions claim belongs to the first of them by
// name; a function without a host of its own is left out.
func PluginConfig(st platform.State, hintCluster, ingressEndpoint string) ([]byte, error) {
	functions := slices.Clone(st.Functions)
	slices.SortFunc(functions, func(a, b platform.Function) int { return cmp.Compare(a.Name, b.Name) })
	taken := make(map[string]bool)
	c := filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster, IngressEndpoint: ingressEndpoint, Functions: []filterapi.Function{}}
	for _, f := range functions {
		fn := filterapi.Function{Name: f.Name, Input: f.Policy.Input}
		for _, h := range f.Hosts {
			if !taken[h] {
				taken[h] = true
				fn.Hosts = append(fn.Hosts, h)
			}
		}
		if len(fn.Hosts) > 0 {
			c.Functions = append(c.Functions, fn)
		}
	}
	return c.Marshal()
}
