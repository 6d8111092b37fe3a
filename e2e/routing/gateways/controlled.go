package gateways

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/e2e/ads"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
)

const (
	controlPort  = 9470
	functionName = "default/worker"
	// requestTimeout is longer than users wait.
	requestTimeout = time.Minute
)

// controlled is a variant whose gateways are Headstart's own: Envoys that have all from its
// control plane, which has the function's instances as hot.
type controlled struct {
	name   string
	config xds.Config
	// balance asks for balanced weights; otherwise they stay even.
	balance bool
}

func (v controlled) Name() string { return v.name }

func (v controlled) Open(ctx context.Context, b *bed.Bed) (_ *Set, err error) {
	s := newSet(b, functionName)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	v.config.ListenPort = Port
	server, err := ads.Open(filepath.Join(b.RunDir(), "ads"), netip.AddrPortFrom(b.Host(), controlPort), v.config)
	if err != nil {
		return nil, err
	}
	s.onClose(func(context.Context) error { server.Close(); return nil })
	state, gateways := s.state()
	if err := server.Update(state, nil, gateways); err != nil {
		return nil, err
	}
	for _, n := range b.Nodes {
		config, err := server.Bootstrap(n.Name, s.admin(n))
		if err == nil {
			err = s.start(ctx, n, config)
		}
		if err != nil {
			return nil, fmt.Errorf("gateway of %s: %w", n.Name, err)
		}
	}
	if v.balance {
		s.balance(ctx, func(w xds.Weights) error { return server.Update(state, w, gateways) })
	}
	return s, nil
}

// state is the platform's: one function, hot on each node. Nothing is behind the gateways'
// sockets, which only cold functions need.
func (s *Set) state() (platform.State, []xds.Gateway) {
	state := platform.State{Functions: []platform.Function{{Name: functionName, Hosts: []string{Host}, RequestTimeout: requestTimeout}}}
	var gateways []xds.Gateway
	for _, n := range s.bed.Nodes {
		state.Instances = append(state.Instances, platform.Instance{ID: "worker-" + n.Name, Function: functionName, Node: n.Name,
			Phase: platform.Ready, Address: n.Function.String()})
		dir := filepath.Join(s.bed.RunDir(), n.Name)
		gateways = append(gateways, xds.Gateway{ID: n.Name, IngressSocket: filepath.Join(dir, "ingress.sock"), HintSocket: filepath.Join(dir, "hints.sock")})
	}
	return state, gateways
}

// Even is Headstart's gateways without anybody who tells them how to route.
func Even() Variant { return controlled{name: "even"} }

// Balanced is Headstart's gateways with balanced weights, and with the filters of config.
func Balanced(name string, config xds.Config) Variant {
	return controlled{name: name, config: config, balance: true}
}
