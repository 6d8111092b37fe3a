package gateways

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/e2e/ads"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
)

const (
	functionName = "default/worker"
	// requestTimeout is longer than users wait.
	requestTimeout = time.Minute
)

// controlled is a variant whose gateways are Headstart's own: Envoys that have all from its
// control plane, which has the function's instances as hot.
type controlled struct {
	name string
	// filter has the gateways pick for each request.
	filter bool
	// balance asks for weights and expectations of what is measured; otherwise they stay as
	// weights has them, nil: even.
	balance bool
	weights func(*Set) routing.Weights
}

func (v controlled) Name() string { return v.name }

func (v controlled) Open(ctx context.Context, b *bed.Bed) (_ *Set, err error) {
	s := newSet(b, functionName)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	server, err := ads.Open(filepath.Join(b.RunDir(), "ads"))
	if err != nil {
		return nil, err
	}
	s.onClose(func(context.Context) error { return server.Close() })
	state := s.state()
	var w routing.Weights
	if v.weights != nil {
		w = v.weights(s)
	}
	if err := server.Update(state, w); err != nil {
		return nil, err
	}
	for _, n := range b.Nodes {
		bootstrap, err := server.Gateway(v.config(s, n))
		if err == nil {
			err = s.start(ctx, n, bootstrap)
		}
		if err != nil {
			return nil, fmt.Errorf("gateway of %s: %w", n.Name, err)
		}
	}
	if v.balance {
		s.balance(ctx, func(w routing.Weights) error { return server.Update(state, w) })
	}
	return s, nil
}

// config is a gateway's. Nothing is behind its sockets, which only cold functions need.
func (v controlled) config(s *Set, n bed.Node) gateway.Config {
	dir := filepath.Join(s.bed.RunDir(), n.Name)
	c := gateway.Config{
		Node: n.Name, Port: Port, IngressSocket: filepath.Join(dir, "ingress.sock"),
		HintSocket: filepath.Join(dir, "hints.sock"), AdminSocket: s.admin(n),
	}
	if v.filter {
		c.Filters = filepath.Join(s.bed.BinDir(), "filters.wasm")
	}
	return c
}

// state is the platform's: one function, hot on each node.
func (s *Set) state() platform.State {
	state := platform.State{Functions: []platform.Function{{Name: functionName, Hosts: []string{Host}, RequestTimeout: requestTimeout}}}
	for _, n := range s.bed.Nodes {
		state.Instances = append(state.Instances, platform.Instance{ID: "worker-" + n.Name, Function: functionName, Node: n.Name,
			Phase: platform.Ready, Address: n.Function})
	}
	return state
}

// Even is Headstart's gateways without anybody who tells them how to route.
func Even() Variant { return controlled{name: "even"} }

// Headstart is its gateways with all that they have: balanced weights, and the filter that
// picks for each request.
func Headstart() Variant { return controlled{name: "Headstart", filter: true, balance: true} }

// Own is gateways that send every request to their own node, because weights say so or because
// the filter picks it each time: what is different between the two is what the filter costs.
func Own(filter bool) Variant {
	v := controlled{name: "own node by weight", filter: filter, weights: (*Set).own}
	if filter {
		v.name = "own node by filter"
	}
	return v
}

// plenty is more workers than any number of requests needs.
const plenty = 1000

func (s *Set) own() routing.Weights {
	m := &routing.Matrix{Rows: map[string]routing.Row{}}
	for i, gateway := range s.bed.Nodes {
		m.Endpoints = append(m.Endpoints, gateway.Function)
		row := routing.Row{}
		for j := range s.bed.Nodes {
			weight, there := uint32(0), filterapi.Expected{RTT: time.Second, Service: time.Millisecond, Workers: plenty}
			if i == j {
				weight, there.RTT = 1, 0
			}
			row.Weights, row.Expected = append(row.Weights, weight), append(row.Expected, there)
		}
		m.Rows[gateway.Name] = row
	}
	return routing.Weights{functionName: m}
}
