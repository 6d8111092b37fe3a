package xds

import (
	"fmt"
	"net/netip"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// assignments says where each function's requests go: to its ready instances, or while
// there are none to the daemon of the gateway's own node, which parks them. Instances
// that are withdrawn get no new requests but stay listed, as draining, so that the load
// reports go on to count the requests that they still answer. unused says by function what
// of w could not be used.
func assignments(gw Gateway, functions []platform.Function, instances []platform.Instance, w Weights) (_ []types.Resource, unused map[string]string, err error) {
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
			return nil, nil, fmt.Errorf("instance %s of %s: address %.64q is not ip:port", i.ID, i.Function, i.Address)
		}
		list[i.Function] = append(list[i.Function], a)
	}
	out := make([]types.Resource, 0, len(functions))
	unused = make(map[string]string)
	for _, f := range functions {
		hot := distinct(ready[f.Name], nil)
		weights, why := newPool(hot, w[f.Name]).split(gw.ID)
		if why != "" {
			unused[f.Name] = why
		}
		first, spare := byWeight(endpointsOf(core.HealthStatus_UNKNOWN, hot...), weights)
		if len(hot) == 0 {
			first = []*endpoint.LbEndpoint{lbEndpoint(pipe(gw.IngressSocket), core.HealthStatus_UNKNOWN)}
		}
		first = append(first, endpointsOf(core.HealthStatus_DRAINING, distinct(draining[f.Name], hot)...)...)
		a := assignment(f.Name, first...)
		if len(spare) > 0 {
			a.Endpoints = append(a.Endpoints, &endpoint.LocalityLbEndpoints{Priority: prioritySpare, LbEndpoints: spare})
		}
		out = append(out, a)
	}
	return out, unused, nil
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
