package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/coordinator"
	"github.com/headstart-mesh/headstart/control-plane/identity"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/metrics"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// shutdownTimeout bounds each step of the end.
const shutdownTimeout = 3 * time.Second

// collectorAge is how long a connection for spans lasts until its daemon makes a new one. It
// leads to one of several control planes, and to none that is being replaced: what such a one is
// told goes with it.
const collectorAge = 5 * time.Second

// runLocal is the control plane of one machine, from what it is told to what it tells.
func runLocal(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.runDir, 0o755); err != nil {
		return fmt.Errorf("making the directory for sockets: %w", err)
	}
	registry := metrics.NewRegistry()
	allowed, err := c.allowedStores()
	if err != nil {
		return err
	}
	reachable, err := c.allowedDestinations(destinations.Node)
	if err != nil {
		return err
	}
	serverTLS, _, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return err
	}
	key, err := identity.SigningKey(serverTLS.Certificates[0].PrivateKey)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)

	// Traces: everybody's spans come here, the control plane's own too.
	traces, err := collect(ctx, g, c.otlpForward, serve.Unix(c.socket("otlp.sock")), nil, log)
	if err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceControlPlane, nodeapi.Version, "unix:"+c.socket("otlp.sock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, stopTracing)) }()

	// Nodes and gateways -> platform -> nodes and gateways.
	cp, err := coordinator.NewLocal(
		coordinator.LocalConfig{StateDir: c.stateDir, RunDir: c.runDir, LargestInput: c.largestInput},
		coordinator.Parts{Stores: allowed, Destinations: reachable, Traces: traces, Key: key, Metrics: registry, Log: log})
	if err != nil {
		return err
	}

	// The ways in.
	server := serve.NewGRPC(append(xds.ServerOptions(),
		grpc.Creds(credentials.NewTLS(serverTLS)), grpc.WaitForHandlers(true))...)
	defer cp.Nodes.Wait()
	nodeapi.RegisterControlPlaneServer(server, cp.Nodes)
	cp.Gateways.Register(server)
	serve.Go(g, serve.TCP(c.listen, serve.Parties), serve.GRPC(ctx, server))
	serve.Go(g, serve.Unix(c.socket("admin.sock")), serve.HTTP(ctx, admin.Handler(cp), shutdownTimeout, log))
	if c.metrics != "" {
		serve.Go(g, serve.TCP(c.metrics, serve.Strangers),
			serve.HTTP(ctx, serve.Metrics(registry), shutdownTimeout, log))
	}
	g.Go(func() error { cp.Platform.Run(ctx); return nil })
	g.Go(func() error { cp.Run(ctx); return nil })
	g.Go(func() error { cp.Survey.Run(ctx); return nil })
	log.Info("control plane is up", "listen", c.listen, "version", nodeapi.Version)
	return g.Wait()
}

// collect serves the embedded trace collector, which forwards to target unless that is
// empty. By mutual callers may say which node they are; nil: none does.
func collect(
	ctx context.Context, g *errgroup.Group, target string, listen serve.Listen, mutual *tls.Config, log *slog.Logger,
) (*trace.Store, error) {
	store := trace.NewStore()
	var sink collectorpb.TraceServiceServer = store
	if target != "" {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("--otlp-forward: %w", err)
		}
		forward := trace.Forward(store, conn, log)
		g.Go(func() error {
			<-ctx.Done()
			return errors.Join(serve.Bounded(ctx, shutdownTimeout, forward.Close), conn.Close())
		})
		sink = forward
	}
	age := keepalive.ServerParameters{MaxConnectionAge: collectorAge, MaxConnectionAgeGrace: collectorAge}
	options := []grpc.ServerOption{grpc.KeepaliveParams(age)}
	if mutual != nil {
		options = append(options, grpc.Creds(trace.Credentials(credentials.NewTLS(mutual))))
	}
	server := serve.NewGRPC(options...)
	collectorpb.RegisterTraceServiceServer(server, trace.Nodes(trace.Plain(sink)))
	serve.Go(g, listen, serve.GRPC(ctx, server))
	return store, nil
}
