package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/instance/containerd"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

const (
	// shutdownTimeout bounds the end of the daemon: requests under way get this long.
	shutdownTimeout = 5 * time.Second
	// streamKeepalive finds a control plane that went without a word.
	// gRPC's own back-off goes up to two minutes; parked requests do not wait that long
	// for a control plane that is back. The uplink paces its attempts itself.
	redialFirst, redialLongest = 50 * time.Millisecond, time.Second
	// redialTimeout is for a TLS handshake over a slow edge link.
	redialTimeout   = 5 * time.Second
	streamKeepalive = 10 * time.Second
	// trimInterval is how often the functions' logs are looked at; at disk speed a log
	// can be over its limit by a few hundred megabytes until then.
	trimInterval = 5 * time.Second
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
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, stopTracing)) }()
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
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, fetches.Close)) }()

	// The control plane. It is told of the instances from their adoption on.
	serverTLS, clientTLS, err := peertls.Load(c.cert, c.key, c.ca)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+c.controlPlane, grpc.WithTransportCredentials(credentials.NewTLS(peertls.ClientFor(clientTLS, c.controlName))),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: streamKeepalive, Timeout: streamKeepalive}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: redialTimeout,
			Backoff: backoff.Config{BaseDelay: redialFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: redialLongest}}))
	if err != nil {
		return fmt.Errorf("connecting to the control plane: %w", err)
	}
	defer conn.Close()
	node := &node{functions: ingress.NewFunctions(), stores: stores}
	node.uplink = uplink.New(nodeapi.NewControlPlaneClient(conn), func() *nodeapi.Register {
		return &nodeapi.Register{Version: nodeapi.Version, PeerAddress: c.peerListen, IngressSocket: c.socket("ingress.sock"),
			HintSocket: c.socket("hints.sock"), Instances: node.instances.Statuses()}
	}, node, log)

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
	node.instances, err = instance.Open(ctx, runtime, c.state("instances"), node.uplink.Report, log)
	if err != nil {
		return err
	}
	defer node.instances.Close()

	// The ways in: this node's gateway and its filter, the shims, the other nodes.
	name := serverTLS.Certificates[0].Leaf.Subject.CommonName
	peers := ingress.NewPeerTransport(clientTLS)
	defer peers.CloseIdleConnections()
	node.ingress = ingress.New(name, node.functions, node.uplink, node.instances, fetches, peers, ingress.NewMetrics(registry), log)
	g, ctx := errgroup.WithContext(ctx)
	overHTTP := func(h http.Handler) serve.Server { return serve.HTTP(ctx, h, shutdownTimeout, log) }
	shims := grpc.NewServer()
	nodeapi.RegisterSandboxesServer(shims, &sandboxes{instances: node.instances, otlp: c.otlp})
	serve.Go(g, serve.Unix(c.socket("ingress.sock")), overHTTP(node.ingress.Gateway()))
	serve.Go(g, serve.Unix(c.socket("hints.sock")), overHTTP(node.ingress.Hints()))
	serve.Go(g, serve.Unix(c.socket("node.sock")), serve.GRPC(ctx, shims))
	serve.Go(g, serve.TLS(c.peerListen, serverTLS), overHTTP(node.ingress.Peers()))
	if c.metricsListen != "" {
		serve.Go(g, serve.TCP(c.metricsListen), overHTTP(serve.Metrics(registry)))
	}
	// The requests that wait are answered while the servers still let them be.
	g.Go(func() error { <-ctx.Done(); node.ingress.Close(); return nil })
	g.Go(func() error { node.uplink.Run(ctx); return nil })
	g.Go(func() error { return trimLogs(ctx, runtime, log) })
	log.Info("node is up", "node", name, "version", nodeapi.Version)
	return g.Wait()
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
