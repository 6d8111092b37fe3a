//go:build integration

package gateway

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// Envoy spreads requests by the gateway's row. An endpoint of weight 0 gets none, until no
// other takes connections: then it gets them all.
func TestEnvoyFollowsTheWeights(t *testing.T) {
	f := thumbs()
	b := start(t, platform.State{Functions: []platform.Function{f}}, nil)
	st := platform.State{Functions: []platform.Function{f}}
	m := &routing.Matrix{Rows: map[string]routing.Row{b.gw.Node: {Weights: []uint32{600, 300, 100, 0}}}}
	heard := map[string]int{}
	var stop []func()
	for i := range m.Rows[b.gw.Node].Weights {
		s := b.listen("tcp", "127.0.0.1:0", fmt.Sprint(i))
		stop = append(stop, s.stop)
		m.Endpoints = append(m.Endpoints, netip.MustParseAddrPort(s.address))
		st.Instances = append(st.Instances, ready(f, fmt.Sprint(i), s.address))
	}
	b.weights = routing.Weights{f.Name: m}
	b.update(st)
	b.settle()
	const requests = 1000
	for range requests {
		heard[b.get(f.Hosts[0]).body]++
	}
	for i, weight := range m.Rows[b.gw.Node].Weights {
		if got := heard[fmt.Sprint(i)]; got < int(weight)-50 || got > int(weight)+50 {
			t.Errorf("the endpoint of weight %d got %d of %d requests", weight, got, requests)
		}
	}
	for _, s := range stop[:3] {
		s()
	}
	for range 10 {
		if got := b.get(f.Hosts[0]); got.body != "3" {
			t.Errorf("with the others gone: %+v", got)
		}
	}
}
