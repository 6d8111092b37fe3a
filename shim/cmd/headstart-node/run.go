package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/instance/containerd"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

const (
	// shutdownTimeout bounds the end of the daemon: requests under way get this long.
	shutdownTimeout = 5 * time.Second
	// streamKeepalive finds a control plane that went without a word.
	streamKeepalive = 10 * time.Second
	// trimInterval is how often the functions' logs are looked at; at disk speed a log
	// can be over its limit by a few hundred megabytes until then.
	trimInterval = 5 * time.Second
	// headTimeout bounds how long a caller may take for a request's headers.
	headTimeout = 10 * time.Second
)

// run is the node, from the stores to the gateway: first what fetches and starts,
// then who asks for it.
func run(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceNode, nodeapi.Version, c.otlp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bounded(ctx, stopTracing)) }()
	if err := os.MkdirAll(c.runDir, 0o755); err != nil {
		return fmt.Errorf("making the directory for sockets: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	// Inputs: stores -> engine -> buffer.
	buf, err := buffer.Open(c.state("buffer"), c.bufferLimit)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	stores, err := openStores(c.secretsDir)
	if err != nil {
		return err
	}
	defer stores.Close()
	fetches := engine.New(stores.source, buf, observeFetches(registry, buf))
	defer func() { err = errors.Join(err, bounded(ctx, fetches.Close)) }()

	// Sandboxes: containerd -> instances.
	subnet, err := c.subnet()
	if err != nil {
		return err
	}
	runtime, err := containerd.New(containerd.Config{Socket: c.containerd, StateDir: c.stateDir, PluginDir: c.cniPlugins, Bridge: c.bridge, PodSubnet: subnet})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runtime.Close()) }()
	node := &node{functions: ingress.NewFunctions(), stores: stores, log: log}
	node.instances, err = instance.Open(ctx, runtime, c.state("instances"), func(s *nodeapi.InstanceStatus) { node.uplink.Report(s) }, log)
	if err != nil {
		return err
	}
	defer node.instances.Close()

	// The control plane, and the other nodes.
	serverTLS, clientTLS, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+c.controlPlane, grpc.WithTransportCredentials(credentials.NewTLS(peertls.ClientFor(clientTLS, c.controlName))),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: streamKeepalive, Timeout: streamKeepalive}))
	if err != nil {
		return fmt.Errorf("connecting to the control plane: %w", err)
	}
	defer conn.Close()
	node.uplink = uplink.New(nodeapi.NewControlPlaneClient(conn), func() *nodeapi.Register {
		return &nodeapi.Register{Version: nodeapi.Version, PeerAddress: c.peerListen, IngressSocket: c.socket("ingress.sock"),
			HintSocket: c.socket("hints.sock"), Instances: node.instances.Statuses()}
	}, node, log)

	// The ways in.
	name := serverTLS.Certificates[0].Leaf.Subject.CommonName
	node.ingress = ingress.New(name, node.functions, node.uplink, node.instances, fetches, ingress.NewPeerTransport(clientTLS), ingress.NewMetrics(registry), log)
	defer node.ingress.Close()
	g, ctx := errgroup.WithContext(ctx)
	shims := grpc.NewServer()
	nodeapi.RegisterSandboxesServer(shims, &sandboxes{instances: node.instances, otlp: c.otlp})
	if err := errors.Join(
		serveUnix(ctx, g, c.socket("ingress.sock"), serveHTTP(ctx, node.ingress.Gateway(), log)),
		serveUnix(ctx, g, c.socket("hints.sock"), serveHTTP(ctx, node.ingress.Hints(), log)),
		serveUnix(ctx, g, c.socket("node.sock"), serveGRPC(ctx, shims)),
		serveTLS(ctx, g, c.peerListen, serverTLS, serveHTTP(ctx, node.ingress.Peers(), log)),
		serveMetrics(ctx, g, c.metricsListen, registry, log),
	); err != nil {
		return err
	}
	g.Go(func() error { node.uplink.Run(ctx); return nil })
	g.Go(func() error { return trimLogs(ctx, runtime, log) })
	log.Info("node is up", "node", name, "version", nodeapi.Version)
	return g.Wait()
}

// bounded runs a shutdown step that ctx's end must not cut short, nor it the daemon's.
func bounded(ctx context.Context, step func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	return step(ctx)
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

// A server serves one listener until ctx ends.
type server func(net.Listener) error

func serveUnix(_ context.Context, g *errgroup.Group, path string, serve server) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing an earlier socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("closing a socket to others: %w", err), l.Close())
	}
	g.Go(func() error { return serve(l) })
	return nil
}

func serveTLS(_ context.Context, g *errgroup.Group, address string, conf *tls.Config, serve server) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening for other nodes: %w", err)
	}
	g.Go(func() error { return serve(tls.NewListener(l, conf)) })
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
	g.Go(func() error { return serveHTTP(ctx, mux, log)(l) })
	return nil
}

func serveHTTP(ctx context.Context, h http.Handler, log *slog.Logger) server {
	return func(l net.Listener) error {
		s := &http.Server{Handler: h, ReadHeaderTimeout: headTimeout, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
		return untilDone(ctx, func() error { return s.Serve(l) }, func(ctx context.Context) error {
			if err := s.Shutdown(ctx); err != nil {
				return s.Close()
			}
			return nil
		})
	}
}

func serveGRPC(ctx context.Context, s *grpc.Server) server {
	return func(l net.Listener) error {
		return untilDone(ctx, func() error { return s.Serve(l) }, func(context.Context) error { s.Stop(); return nil })
	}
}

// untilDone serves until ctx ends, then stops and waits.
func untilDone(ctx context.Context, serve func() error, stop func(context.Context) error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		err := bounded(ctx, stop)
		<-served
		return err
	}
}
