package main

import (
	"context"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/relay"
)

// serveRelay has the relay follow the control plane, and the node's gateways ask it.
func serveRelay(ctx context.Context, g *errgroup.Group, c config, r *relay.Relay) {
	gateways := grpc.NewServer(relay.ServerOptions()...)
	r.Register(gateways)
	serve.Go(g, c.gatewaySocket("gateway.sock"), serve.GRPC(ctx, gateways))
	g.Go(func() error { r.Run(ctx); return nil })
}
