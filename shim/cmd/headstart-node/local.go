//go:build !kubernetes

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/containerd"
)

// trimInterval is how often the functions' logs are looked at; at disk speed a log can be
// over its limit by a few hundred megabytes until then.
const trimInterval = 5 * time.Second

// localParty is who the node's certificate says, from its file.
func localParty(c config) (party, error) {
	server, client, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return party{}, err
	}
	return party{
		name:         server.Certificates[0].Leaf.Subject.CommonName,
		server:       server,
		client:       func(host string) (*tls.Config, error) { return peertls.ClientFor(client, host), nil },
		controlPlane: credentials.NewTLS(peertls.ClientFor(client, c.controlName)),
		run:          func(context.Context) {},
		admit:        func(h http.Handler) http.Handler { return h },
	}, nil
}

// openLocal runs the node's instances itself, by containerd, and makes the whole configuration of the
// node's gateway.
func openLocal(ctx context.Context, c config, b below) (*platform, error) {
	subnet, err := c.subnet()
	if err != nil {
		return nil, err
	}
	gateway := c.ownGateway(b.node)
	if err := writeBootstrap(gateway, c.socket("envoy.json")); err != nil {
		return nil, err
	}
	runtime, err := containerd.New(containerd.Config{Socket: c.containerd, StateDir: c.stateDir, PluginDir: c.cniPlugins,
		Bridge: c.bridge, PodSubnet: subnet})
	if err != nil {
		return nil, err
	}
	own, err := sandboxes.OpenLocal(ctx, b.sandboxes, runtime, b.uplink.Report)
	if err != nil {
		return nil, errors.Join(err, runtime.Close())
	}
	return &platform{
		sandboxes: own.Set,
		relay:     b.newRelay(relay.Config{WeightsAlone: c.weightsAlone, Gateway: gateway, StateFile: c.state("gateway.pb")}),
		gateway:   (*ingress.Ingress).Gateway,
		filters:   func(_ *ingress.Ingress, h http.Handler) http.Handler { return h },
		awaitJob:  func(context.Context, string) error { return nil }, // its own are known before they are made
		caller:    func(_ context.Context, sandbox string) string { return own.Function(sandbox) },
		join:      func(p node.Parts) node.Node { return node.NewLocal(p, own, runtime, b.log) },
		serve: func(ctx context.Context, g *errgroup.Group) {
			g.Go(func() error { return trimLogs(ctx, runtime, b.log) })
		},
		close: func() error { own.Close(); return runtime.Close() },
	}, nil
}

func trimLogs(ctx context.Context, r *containerd.Runtime, log *slog.Logger) error {
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := r.TrimLogs(); err != nil {
				log.Warn("logs of functions could not be trimmed", "error", err)
			}
		}
	}
}
