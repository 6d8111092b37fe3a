package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/trigger"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
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
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	allowed, err := c.allowedStores()
	if err != nil {
		return err
	}
	serverTLS, _, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)

	// Traces: everybody's spans come here, the control plane's own too.
	traces, err := collect(ctx, g, c.otlpForward, serve.Unix(c.socket("otlp.sock")), log)
	if err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceControlPlane, nodeapi.Version, "unix:"+c.socket("otlp.sock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, stopTracing)) }()

	// Nodes and gateways -> platform -> nodes and gateways.
	daemons := nodes.New(log)
	cp := &controlPlane{nodes: daemons, triggers: trigger.NewTeller(daemons), survey: survey.New(daemons, registry, log), events: &event.Log{}, stores: allowed, traces: traces, gatewayPort: c.gatewayPort, largestInput: c.largestInput, runDir: c.runDir, stateDir: c.stateDir, log: log}
	cp.planner = routing.New(cp.survey, registry)
	cp.gateways = xds.New(xds.Config{ListenPort: c.gatewayPort, FilterPath: c.filter, RouteFilterPath: c.routeFilter, OTLPSocket: c.socket("otlp.sock"), TraceSampling: c.traceSampling,
		Verify: verifyGateway, OnLoad: cp.routed}, log)
	cp.platform, err = local.Open(filepath.Join(c.stateDir, "functions.json"), cp.nodes, cp, cp.events, log)
	if err != nil {
		return err
	}
	cp.activator = activation.New(cp.platform, cp.nodes, registry, log)
	cp.nodes.SetHandler(cp)
	cp.nodes.SetObserver(cp.survey)
	cp.tellNodes()

	// The ways in.
	server := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(serverTLS)), grpc.WaitForHandlers(true))...)
	defer cp.nodes.Wait()
	nodeapi.RegisterControlPlaneServer(server, cp.nodes)
	cp.gateways.Register(server)
	serve.Go(g, serve.TCP(c.listen), serve.GRPC(ctx, server))
	serve.Go(g, serve.Unix(c.socket("admin.sock")), serve.HTTP(ctx, admin.Handler(cp), shutdownTimeout, log))
	if c.metrics != "" {
		serve.Go(g, serve.TCP(c.metrics), serve.HTTP(ctx, serve.Metrics(registry), shutdownTimeout, log))
	}
	g.Go(func() error { cp.platform.Run(ctx); return nil })
	g.Go(func() error { cp.publishChanges(ctx); return nil })
	g.Go(func() error { cp.survey.Run(ctx); return nil })
	log.Info("control plane is up", "listen", c.listen, "version", nodeapi.Version)
	return g.Wait()
}

// collect serves the embedded trace collector, which forwards to target unless that is
// empty.
func collect(ctx context.Context, g *errgroup.Group, target string, listen serve.Listen, log *slog.Logger) (*trace.Store, error) {
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
	server := grpc.NewServer(grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: collectorAge, MaxConnectionAgeGrace: collectorAge}))
	collectorpb.RegisterTraceServiceServer(server, trace.Plain(sink))
	serve.Go(g, listen, serve.GRPC(ctx, server))
	return store, nil
}
