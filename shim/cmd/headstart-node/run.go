package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/probe"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

const (
	// shutdownTimeout bounds the end of the daemon: requests under way get this long.
	shutdownTimeout = 5 * time.Second
	// drainTimeout is how long a daemon that another has taken over from has for the requests
	// that wait in it. The chart's terminationGracePeriodSeconds is longer.
	drainTimeout = 25 * time.Second
)

// run is the node, from the stores to the gateway: first what fetches and starts,
// then who asks for it.
func run(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	asked := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	early := context.AfterFunc(asked, stop)
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
	buf, err := c.openInputs(log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, buf.Close()) }()
	registry.MustRegister(bufferCollector{buf.Buffer})
	stores, err := openStores(c.secretsDir)
	if err != nil {
		return err
	}
	defer stores.Close()
	fetches := engine.New(stores.source, buf.Buffer, observeFetches(registry))
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, fetches.Close)) }()

	// The control planes. They are told of the instances from their adoption on.
	me, err := c.party(log)
	if err != nil {
		return err
	}
	streams := newStreams(stores.secrets)
	defer streams.Close()
	node := &node{functions: ingress.NewFunctions(), stores: stores, streams: streams, process: c.process(), inputs: buf}
	node.uplink = uplink.New(newControlPlanes(c.controlPlane, c.controlPlaneAny, me.controlPlane), func() *nodeapi.Register {
		node.prober.Plan.Again() // the control plane may know nothing
		return node.register(c)
	}, node, log)
	registry.MustRegister(connectedControlPlanes(node.uplink))

	// The functions' own sockets, which instances are made with.
	node.sockets = functionapi.New(functionapi.Config{Function: node.functions.Get, Job: node.awaitJob, Succeeds: buf.succeeds, Metrics: functionapi.NewMetrics(registry), Log: log})

	node.jobs = job.New(job.Config{Engine: fetches, Deliveries: node.sockets, Log: log})
	defer node.jobs.Close()

	// Instances: those that containerd runs for us, or Kubernetes.
	platform, err := c.open(ctx, node, me.name, registry, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, platform.close()) }()

	// The ways in: this node's gateway and its filter, the shims, the other nodes.
	traffic := probe.NewTraffic()
	peers := ingress.NewPeerTransport(me.client, traffic.Opened)
	defer peers.CloseIdleConnections()
	node.ingress = ingress.New(ingress.Config{Node: me.name, Functions: node.functions, ControlPlane: node.uplink, Instances: platform.sandboxes,
		Engine: fetches, Peers: peers, Mesh: platform.mesh, Deliveries: node.sockets, Metrics: ingress.NewMetrics(registry), Log: log})
	process := newProcess()
	if !buf.succeeds { // else the other daemon may still end what it has taken
		streams.gone = trigger.Earlier(me.name, process)
	}
	node.triggers = trigger.New(trigger.Config{Gateway: node.ingress.Gateway(), Function: node.functions.Lookup, Open: node.streams.open,
		Node: me.name, Process: process, Events: node.uplink, Metrics: trigger.NewMetrics(registry), Log: log})
	node.prober = probe.NewProber(probe.Config{Plan: probe.NewPlan(me.name), Asker: probe.NewConnections(me.client), Traffic: traffic,
		Tell: func(r probe.Report) { node.uplink.RoundTrips(roundTrips(r)) }, Registry: registry, Log: log})
	// What is not taken any more, another node takes at once.
	context.AfterFunc(asked, node.triggers.Stop)
	g, ctx := errgroup.WithContext(ctx)
	overHTTP := func(h http.Handler, options ...func(*http.Server)) serve.Server {
		return serve.HTTP(ctx, h, shutdownTimeout, log, options...)
	}
	shims := grpc.NewServer()
	nodeapi.RegisterSandboxesServer(shims, platform.sandboxes)
	var requests net.Listener
	serve.Go(g, kept(&requests, c.gatewaySocket("ingress.sock")), overHTTP(node.ingress.Gateway(), serve.H2C))
	serve.Go(g, c.gatewaySocket("hints.sock"), overHTTP(node.ingress.Hints()))
	serve.Go(g, serve.Unix(c.socket("node.sock")), serve.GRPC(ctx, shims))
	serve.Go(g, serve.Unix(descriptors.Path(c.socket("node.sock"))), descriptors.Serve(ctx, platform.sandboxes.Descriptors, log))
	serve.Go(g, serve.TLS(c.peerListen, probe.Offer(me.server)), overHTTP(node.ingress.Peers(), probe.NewResponder(node.prober.Plan.Point).Register))
	if c.metricsListen != "" {
		serve.Go(g, serve.TCP(c.metricsListen), overHTTP(serve.Metrics(registry)))
	}
	g.Go(func() error { node.sockets.Run(ctx, node.ingress.Gateway()); return nil })
	platform.serve(ctx, g)
	// The requests that wait are answered while the servers still let them be.
	g.Go(func() error { <-ctx.Done(); node.ingress.Close(); return nil })
	g.Go(func() error { endTriggers(ctx, node.triggers, streams, log); return nil })
	g.Go(func() error { leave(asked, ctx, stop, requests, node.ingress); return nil })
	early() // from here on it is leave that ends all
	g.Go(func() error { me.run(ctx); return nil })
	g.Go(func() error { node.prober.Run(ctx); return nil })
	g.Go(func() error { tellSignals(ctx, node); return nil })
	g.Go(func() error { stores.watch(ctx, node.uplink.StoreProblems, log); return nil })
	g.Go(func() error { node.uplink.Run(ctx); return nil })
	log.Info("node is up", "node", me.name, "version", nodeapi.Version)
	return g.Wait()
}

func (c config) party(log *slog.Logger) (party, error) {
	if c.platform == platformKubernetes {
		return issuedParty(c, log)
	}
	return localParty(c)
}

func (c config) open(ctx context.Context, n *node, name string, registry prometheus.Registerer, log *slog.Logger) (*platform, error) {
	if c.platform == platformKubernetes {
		return openPods(ctx, c, n, name, registry, log)
	}
	return openLocal(ctx, c, n, name, registry, log)
}
