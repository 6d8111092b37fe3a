package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/stores"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// shutdownTimeout bounds each step of the end.
	shutdownTimeout = 3 * time.Second
	headTimeout     = 5 * time.Second
)

// run is the control plane, from what it is told to what it tells.
func run(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.runDir, 0o755); err != nil {
		return fmt.Errorf("making the directory for sockets: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var allowed stores.Stores
	if c.stores != "" {
		if allowed, err = stores.Load(c.stores); err != nil {
			return err
		}
	}
	serverTLS, _, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)

	// Traces: everybody's spans come here, the control plane's own too.
	traces, err := collect(ctx, g, c, log)
	if err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceControlPlane, nodeapi.Version, "unix:"+c.socket("otlp.sock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bounded(ctx, stopTracing)) }()

	// Nodes and gateways -> platform -> nodes and gateways.
	cp := &controlPlane{nodes: nodes.New(log), events: &event.Log{}, stores: allowed, traces: traces, gatewayPort: c.gatewayPort, log: log}
	cp.gateways = xds.New(xds.Config{ListenPort: c.gatewayPort, FilterPath: c.filter, OTLPSocket: c.socket("otlp.sock"), TraceSampling: c.traceSampling,
		Verify: verifyGateway, OnLoad: cp.routed}, log)
	cp.platform, err = local.Open(filepath.Join(c.stateDir, "functions.json"), cp.nodes, cp, cp.events, log)
	if err != nil {
		return err
	}
	cp.activator = activation.New(cp.platform, cp.nodes, registry, log)
	cp.nodes.SetHandler(cp)
	cp.tellNodes()

	// The ways in.
	server := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(serverTLS)))...)
	nodeapi.RegisterControlPlaneServer(server, cp.nodes)
	cp.gateways.Register(server)
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("listening for nodes and gateways: %w", err)
	}
	g.Go(func() error { return serveGRPC(ctx, server, l) })
	if err := errors.Join(serveAdmin(ctx, g, c.socket("admin.sock"), admin.Handler(cp), log), serveMetrics(ctx, g, c.metrics, registry, log)); err != nil {
		return err
	}
	g.Go(func() error { cp.platform.Run(ctx); return nil })
	g.Go(func() error { cp.publishChanges(ctx); return nil })
	log.Info("control plane is up", "listen", l.Addr().String(), "version", nodeapi.Version)
	return g.Wait()
}

// collect serves the embedded trace collector.
func collect(ctx context.Context, g *errgroup.Group, c config, log *slog.Logger) (*trace.Store, error) {
	store := trace.NewStore()
	var sink collectorpb.TraceServiceServer = store
	if c.otlpForward != "" {
		conn, err := grpc.NewClient(c.otlpForward, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, fmt.Errorf("--otlp-forward: %w", err)
		}
		forward := trace.Forward(store, conn, log)
		g.Go(func() error {
			<-ctx.Done()
			return errors.Join(bounded(ctx, forward.Close), conn.Close())
		})
		sink = forward
	}
	l, err := listenUnix(c.socket("otlp.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, sink)
	g.Go(func() error { return serveGRPC(ctx, server, l) })
	return store, nil
}

// bounded runs a shutdown step that ctx's end must not cut short.
func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return step(ctx)
}

func listenUnix(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing an earlier socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing a socket to others: %w", err), l.Close())
	}
	return l, nil
}

func serveAdmin(ctx context.Context, g *errgroup.Group, path string, h http.Handler, log *slog.Logger) error {
	l, err := listenUnix(path)
	if err != nil {
		return err
	}
	g.Go(func() error { return serveHTTP(ctx, h, l, log) })
	return nil
}

func serveMetrics(ctx context.Context, g *errgroup.Group, address string, registry *prometheus.Registry, log *slog.Logger) error {
	if address == "" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	g.Go(func() error { return serveHTTP(ctx, mux, l, log) })
	return nil
}

func serveHTTP(ctx context.Context, h http.Handler, l net.Listener, log *slog.Logger) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: headTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	return untilDone(ctx, func() error { return s.Serve(l) }, func() { _ = bounded(ctx, s.Shutdown) })
}

func serveGRPC(ctx context.Context, s *grpc.Server, l net.Listener) error {
	return untilDone(ctx, func() error { return s.Serve(l) }, s.Stop)
}

// untilDone serves until ctx ends, then stops and waits.
func untilDone(ctx context.Context, serve func() error, stop func()) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		stop()
		<-served
		return nil
	}
}
