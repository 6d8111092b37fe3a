package xds

import (
	"fmt"
	"net/netip"
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

// assignments says where each function's requests go: to its ready instances, or while
// there are none to the daemon of the gateway's own node, which parks them.
func assignments(gw Gateway, functions []platform.Function, instances []platform.Instance) ([]types.Resource, error) {
	ready := make(map[string][]netip.AddrPort)
	for _, i := range instances {
		if i.Phase != platform.Ready {
			continue
		}
		a, err := netip.ParseAddrPort(i.Address)
		if err != nil || a.Port() == 0 {
			return nil, fmt.Errorf("instance %s of %s: address %.64q is not ip:port", i.ID, i.Function, i.Address)
		}
		ready[i.Function] = append(ready[i.Function], a)
	}
	out := make([]types.Resource, 0, len(functions))
	for _, f := range functions {
		addresses := []*core.Address{pipe(gw.IngressSocket)}
		if hot := ready[f.Name]; len(hot) > 0 {
			// Envoy refuses an address that is there twice.
			slices.SortFunc(hot, netip.AddrPort.Compare)
			addresses = addresses[:0]
			for _, a := range slices.Compact(hot) {
				addresses = append(addresses, socketAddress(a.Addr().String(), uint32(a.Port())))
			}
		}
		out = append(out, assignment(f.Name, addresses...))
	}
	return out, nil
}
