package xds

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// serving is where one gateway's requests go.
type serving struct {
	assignments []types.Resource
	// perRequest are the functions of which the route filter picks the endpoint.
	perRequest []filterapi.RouteFunction
	// unused says by function what of the weights could not be used.
	unused map[string]string
}

// serve says where each function's requests go: to its ready instances, or while
// there are none to the daemon of the gateway's own node, which parks them. Instances
// that are withdrawn get no new requests but stay listed, as draining, so that the load
// reports go on to count the requests that they still answer.
func serve(gw Gateway, functions []platform.Function, instances []platform.Instance, w routing.Weights) (serving, error) {
	ready, draining := make(map[string][]netip.AddrPort), make(map[string][]netip.AddrPort)
	for _, i := range instances {
		list := ready
		switch {
		case i.Phase == platform.Stopping && i.Address != "":
			list = draining
		case i.Phase != platform.Ready:
			continue
		}
		a, err := netip.ParseAddrPort(i.Address)
		if err != nil || a.Port() == 0 {
			return serving{}, fmt.Errorf("instance %s of %s: address %.64q is not ip:port", i.ID, i.Function, i.Address)
		}
		list[i.Function] = append(list[i.Function], a)
	}
	out := serving{assignments: make([]types.Resource, 0, len(functions)), unused: make(map[string]string)}
	for _, f := range functions {
		hot := newPool(distinct(ready[f.Name], nil), w[f.Name])
		weights, why := hot.split(gw.ID)
		expected, whyNot := hot.expect(gw.ID, weights)
		if why = cmp.Or(why, whyNot); why != "" {
			out.unused[f.Name] = why
		}
		if expected != nil && f.Policy.Input == "" { // requests with an input go to the daemon
			out.perRequest = append(out.perRequest, filterapi.RouteFunction{Cluster: f.Name, Endpoints: slices.Collect(expected)})
		}
		out.assignments = append(out.assignments, assignmentOf(gw, f, hot, weights, distinct(draining[f.Name], hot.addresses)))
	}
	return out, nil
}

func assignmentOf(gw Gateway, f platform.Function, hot pool, weights []uint32, draining []netip.AddrPort) *endpoint.ClusterLoadAssignment {
	first, spare := byWeight(endpointsOf(core.HealthStatus_UNKNOWN, hot.addresses...), weights)
	if len(hot.addresses) == 0 {
		first = []*endpoint.LbEndpoint{lbEndpoint(pipe(gw.IngressSocket), core.HealthStatus_UNKNOWN)}
	}
	a := assignment(f.Name, append(first, endpointsOf(core.HealthStatus_DRAINING, draining...)...)...)
	if len(spare) > 0 {
		a.Endpoints = append(a.Endpoints, &endpoint.LocalityLbEndpoints{Priority: prioritySpare, LbEndpoints: spare})
	}
	return a
}

// byWeight gives the endpoints their weights, and returns those of weight 0 apart; nil
// weights are all the same.
func byWeight(endpoints []*endpoint.LbEndpoint, weights []uint32) (first, spare []*endpoint.LbEndpoint) {
	if weights == nil {
		return endpoints, nil
	}
	for i, e := range endpoints {
		if weights[i] == 0 {
			spare = append(spare, e)
			continue
		}
		e.LoadBalancingWeight = wrapperspb.UInt32(weights[i])
		first = append(first, e)
	}
	return first, spare
}

// distinct sorts the addresses and leaves out those that are there twice or in taken:
// Envoy refuses such a list.
func distinct(addresses, taken []netip.AddrPort) []netip.AddrPort {
	slices.SortFunc(addresses, netip.AddrPort.Compare)
	return slices.DeleteFunc(slices.Compact(addresses), func(a netip.AddrPort) bool { return slices.Contains(taken, a) })
}

func endpointsOf(health core.HealthStatus, addresses ...netip.AddrPort) []*endpoint.LbEndpoint {
	var list []*endpoint.LbEndpoint
	for _, a := range addresses {
		list = append(list, lbEndpoint(socketAddress(a.Addr().String(), uint32(a.Port())), health))
	}
	return list
}
