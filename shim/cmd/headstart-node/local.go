//go:build !kubernetes

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

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
	}, nil
}

// openLocal runs the node's instances itself, by containerd. Its relay stands in for the control
// plane while that is away.
func openLocal(ctx context.Context, c config, n *node, name string, registry prometheus.Registerer, log *slog.Logger) (*platform, error) {
	subnet, err := c.subnet()
	if err != nil {
		return nil, err
	}
	runtime, err := containerd.New(containerd.Config{Socket: c.containerd, StateDir: c.stateDir, PluginDir: c.cniPlugins, Bridge: c.bridge, PodSubnet: subnet})
	if err != nil {
		return nil, err
	}
	n.local, err = sandboxes.OpenLocal(ctx, n.sandboxes(c, c.otlp, log), runtime, n.uplink.Report)
	if err != nil {
		return nil, errors.Join(err, runtime.Close())
	}
	n.resolve = func(names []string) {
		if err := runtime.Resolve(names); err != nil {
			log.Warn("functions do not find each other by their hosts", "error", err)
		}
	}
	standIn := relay.New(relay.Config{Whole: true, Node: name, ControlPlane: n.uplink.Followed(), StateFile: c.state("gateway.pb"), Activity: n.uplink, Refused: n.uplink.Refused,
		Metrics: relay.NewMetrics(registry), Log: log})
	return &platform{
		sandboxes: n.local.Set,
		serve: func(ctx context.Context, g *errgroup.Group) {
			serveRelay(ctx, g, c, standIn)
			g.Go(func() error { return trimLogs(ctx, runtime, log) })
		},
		close: func() error { n.local.Close(); return runtime.Close() },
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
