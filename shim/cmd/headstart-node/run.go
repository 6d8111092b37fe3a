package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/connections"
	"github.com/headstart-mesh/headstart/shim/curator"
	"github.com/headstart-mesh/headstart/shim/databuffer"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/inputs"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/metrics"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/nodeapi/writes"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/site"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/observed"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/probe"
	"github.com/headstart-mesh/headstart/shim/processors"
	"github.com/headstart-mesh/headstart/shim/proxy"
	"github.com/headstart-mesh/headstart/shim/s3proxy"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/stores"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/uplink"
	"github.com/headstart-mesh/headstart/shim/volume"
	"github.com/headstart-mesh/headstart/shim/workflow"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

const (
	// shutdownTimeout bounds the end of the daemon: requests under way get this long.
	shutdownTimeout = 5 * time.Second
	// drainTimeout is how long a daemon that another has taken over from has for the requests
	// that wait in it. The chart's terminationGracePeriodSeconds is longer.
	drainTimeout = 25 * time.Second
	// writesMost is how many objects may be written behind at a time: each costs two files.
	writesMost = 10_000
	// writtenPatience is how long a request waits for an object that another node has yet to upload: less than SDKs wait for
	// an answer, of which Java's has 30 s.
	writtenPatience = 20 * time.Second
	// volumesDir has the versions of volumes. Shims know them by this name.
	volumesDir = "volumes"
)

// run is the node, from the stores to the gateway: first what fetches and starts,
// then who asks for it, and how all of it ends.
func run(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	asked := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	early := context.AfterFunc(asked, stop)
	me, err := c.party(log)
	if err != nil {
		return err
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceNode, nodeapi.Version, c.otlp, c.otlpCredentials(me))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, stopTracing)) }()
	if err := os.MkdirAll(c.runDir, 0o755); err != nil {
		return fmt.Errorf("making the directory for sockets: %w", err)
	}
	registry := metrics.NewRegistry()

	// Inputs: stores -> objects -> buffer.
	kept, err := inputs.Open(c.inputsOf(log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()
	registry.MustRegister(buffer.NewCollector(kept.Buffer))
	allowed, err := stores.Open(c.secretsDir, c.stores)
	if err != nil {
		return err
	}
	defer allowed.Close()
	// The other nodes of the site, and what this one has for them.
	around := peers.Config{Node: me.name, Client: me.peer, Registry: registry, Log: log}
	own := &site.Own{}
	if c.cacheShare {
		around.Objects = own
	}
	near := peers.New(around)
	defer near.Close()
	written := writeback.Open(writeback.Config{Dir: c.state(writes.Directory), Bytes: c.writeBackLimit,
		Writes: writesMost, Node: me.name,
		Store:    func(name string) (writeback.Store, string, error) { return allowed.API(name) },
		Patience: writtenPatience, Holders: near, Log: log})
	defer written.Close()
	registry.MustRegister(writeback.NewCollector(written))
	allowed.Pend(written, c.writeBackAfter)
	cached := objects.Config{Sources: allowed.Source, Rule: allowed.Rule, Buffer: kept.Buffer,
		Age: c.cacheAge, Metrics: objects.NewMetrics(registry)}
	if c.cacheShare {
		cached.Neighbours = near
	}
	placed := &volume.Placed{}
	versions, err := tree.Open(c.state(volumesDir), placed, kept.Succeeds)
	if err != nil {
		return err
	}
	defer versions.Close()
	if kept.Succeeds {
		cached.Inherit = kept.Inherit
	}
	cached.Drop, cached.Spared = versions.Drop, c.platform == platformKubernetes
	cached.Damaged = volume.Damaged(versions.Damaged, registry, log)
	fetches := objects.New(cached)
	own.Cache, own.Writes, placed.Cache = fetches, written, fetches
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, fetches.Close)) }()

	// The control planes. They are told of the instances from their adoption on.
	up := uplink.New(uplink.NewNames(c.controlPlane, c.controlPlaneAny, me.controlPlane), log)
	registry.MustRegister(uplink.NewCollector(up))

	// Sandboxes, with what they need: those that containerd runs for us, or Kubernetes.
	functions := ingress.NewFunctions()
	var platform *platform
	var s3 *s3proxy.Server
	var workflows *workflow.Owner
	sockets := functionapi.New(functionapi.Config{Function: functions.Get, Succeeds: kept.Succeeds,
		Store: func(ctx context.Context, sandbox, file string, to source.Reference, header http.Header) (string, error) {
			return s3.Store(ctx, sandbox, file, to, header)
		},
		Job:    func(ctx context.Context, sandbox string) error { return platform.awaitJob(ctx, sandbox) },
		Caller: func(ctx context.Context, sandbox string) string { return platform.caller(ctx, sandbox) },
		Late: func(sandbox string) {
			if platform.sandboxes.IsClosed(sandbox) { // else another daemon may know what it works on
				workflows.Late(functions.Lookup(platform.sandboxes.Function(sandbox)))
			}
		},
		Metrics: functionapi.NewMetrics(registry), Log: log})
	volumes := volume.New(versions, registry, log)
	defer volumes.Close()
	s3 = s3proxy.New(s3proxy.Config{
		Await: allowed.Await,
		Store: func(function, name string) (s3proxy.Store, error) { return allowed.S3(function, name) },
		Rule:  allowed.Rule, Objects: fetches, Writes: written, Event: up.Event,
		Function: func(sandbox string) string { return platform.sandboxes.Function(sandbox) },
		Adopt:    func(sandbox string) error { return platform.sandboxes.Adopt(sandbox) }, Traceparent: sockets.Traceparent,
		Learned: c.state("s3-learned.json"), Metrics: s3proxy.NewMetrics(registry), Log: log})
	defer s3.Close()
	joins := streams.NewHub(log)
	if joins.Callers, err = c.noteCallers(kept.Succeeds); err != nil {
		log.Warn("while daemons follow each other, the one before may be refused by programs that run ahead", "error", err)
	}
	ahead := databuffer.New(databuffer.Config{Current: sockets.Current, Turn: sockets.Turn, Works: sockets.Works, Dir: c.state("redis"),
		Metrics: databuffer.NewMetrics(registry), Log: log})
	defer ahead.Close()
	connected, err := connections.New(connections.Config{Shims: joins, SecretsDir: c.secretsDir, List: c.destinations,
		Event: up.Event, Traceparent: sockets.Traceparent, Next: sockets.Next, Buffer: ahead, Metrics: connections.NewMetrics(registry), Log: log})
	if err != nil {
		return err
	}
	defer connected.Close()
	joins.Connect, joins.Lapse, joins.Rekeyed = connected.Connect, connected.Lapse, connected.Rekeyed
	registry.MustRegister(connections.NewCollector(connected))
	load, err := processors.Open()
	if err != nil {
		return err
	}
	workflows = workflow.New(workflow.Config{Find: functions.Find, Outside: connected.Outside, Store: connected.State, Busy: load.Busy, Event: up.Event,
		Metrics: workflow.NewMetrics(registry)})
	defer workflows.Close()
	watched := observed.New()
	curated := curator.New(fetches, versions, s3.Learned, workflows.Records, watched.List, log)
	defer curated.Close()
	jobs := job.New(job.Config{Objects: fetches, Deliveries: sockets, Log: log})
	defer jobs.Close()
	platform, err = c.open(ctx, below{node: me.name, otlp: c.otlpCredentials(me), functions: functions,
		uplink: up, jobs: jobs, registry: registry,
		sandboxes: sandboxes.Config{Dir: c.state("instances"), Memory: kept.Memory, Succeeds: kept.Succeeds,
			Providers: []sandboxes.Provider{sockets, s3, connected}, Jobs: jobs, Volumes: volumes,
			Callers: joins.Callers, Stop: joins.Stop, Open: joins.Open, Alone: kept.Alone,
			OTLP: c.shimsOTLP(), Event: up.Event, Log: log}, log: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, platform.close()) }()

	// Requests: from gateways, other nodes and streams.
	traffic := probe.NewTraffic()
	handOver := proxy.NewPeerTransport(me.peer, traffic.Opened)
	defer handOver.CloseIdleConnections()
	requests := ingress.New(ingress.Config{Node: me.name, Functions: functions, ControlPlane: up,
		Instances: platform.sandboxes, Objects: fetches, Peers: handOver, Mesh: platform.mesh, Deliveries: sockets,
		Observed: watched, Allowed: allowed.Allowed, Foresee: s3.Foresee, Workflows: workflows, Busy: load.Busy,
		Metrics: ingress.NewMetrics(registry), Log: log})
	process := rand.Text() // no other daemon of the node has this name
	var gone func(consumer string) bool
	if !kept.Succeeds { // else the other daemon may still end what it has taken
		gone = trigger.Earlier(me.name, process)
	}
	triggers := trigger.New(trigger.Config{Gateway: requests.Gateway(), Function: functions.Lookup,
		Open: func(t *nodeapi.Trigger, consumer string) (trigger.Stream, error) {
			return allowed.Stream(t, consumer, gone)
		},
		Node: me.name, Process: process, Events: up, Metrics: trigger.NewMetrics(registry), Log: log})
	prober := probe.NewProber(probe.Config{Plan: probe.NewPlan(me.name), Asker: probe.NewConnections(me.client),
		Traffic: traffic, Tell: up.RoundTrips, Registry: registry, Log: log})

	// What the control plane says goes to all of them.
	joined := platform.join(node.Parts{Functions: functions, Stores: allowed, Destinations: connected, Workflows: workflows, Ingress: requests,
		Observed: watched, Relay: platform.relay, Triggers: triggers, Prober: prober, Peers: near, Curator: curated,
		Register: func() *nodeapi.Register { return c.register(process) }})

	// The ways in: this node's gateway and its filter, the shims, the other nodes.
	g, ctx := errgroup.WithContext(ctx)
	overHTTP := func(h http.Handler, options ...func(*http.Server)) serve.Server {
		return serve.HTTP(ctx, h, shutdownTimeout, log, options...)
	}
	shims := serve.NewGRPC()
	nodeapi.RegisterSandboxesServer(shims, platform.sandboxes)
	var gateway net.Listener
	serve.Go(g, noted(&gateway, c.gatewaySocket("ingress.sock")),
		overHTTP(platform.gateway(requests), serve.H2C, serve.ForGateways))
	filters := http.NewServeMux()
	filters.Handle("/", requests.Hints())
	filters.Handle(filterapi.ExpectationsPath, platform.relay.Expectations())
	serve.Go(g, c.gatewaySocket("hints.sock"), overHTTP(platform.filters(requests, filters), serve.ForGateways))
	serve.Go(g, serve.Unix(c.socket("node.sock")), serve.GRPC(ctx, shims))
	serve.Go(g, serve.Unix(descriptors.Path(c.socket("node.sock"))),
		descriptors.Serve(ctx, platform.sandboxes.Descriptors, log))
	serve.Go(g, serve.Unix(endpoints.Path(c.socket("node.sock"))), endpoints.Serve(ctx, s3, log))
	serve.Go(g, serve.UnixPackets(streams.Path(c.socket("node.sock"))), joins.Serve(ctx))
	serve.Go(g, serve.TLS(c.peerListen, probe.Offer(me.server, peers.Protocol)),
		overHTTP(me.admit(near.Beside(requests.Peers())), probe.NewResponder(prober.Plan.Point).Register, peers.Register))
	if c.metricsListen != "" {
		serve.Go(g, serve.TCP(c.metricsListen, serve.Strangers), overHTTP(serve.Metrics(registry)))
	}
	g.Go(func() error { sockets.Run(ctx, requests.Gateway()); return nil })
	serveRelay(ctx, g, c, platform.relay)
	platform.serve(ctx, g)

	// The end. What is not taken any more, another node takes at once; the requests that wait are
	// answered while the servers still let them be.
	context.AfterFunc(asked, triggers.Stop)
	g.Go(func() error { <-ctx.Done(); near.Close(); requests.Close(); return nil })
	g.Go(func() error { endTriggers(ctx, triggers, allowed, log); return nil })
	g.Go(func() error { leave(asked, ctx, stop, gateway, requests, connected); return nil })
	early() // from here on it is leave that ends all

	g.Go(func() error { node.GiveBack(ctx); return nil })
	g.Go(func() error { me.run(ctx); return nil })
	g.Go(func() error { prober.Run(ctx); return nil })
	g.Go(func() error { load.Watch(ctx); return nil })
	g.Go(func() error { node.TellSignals(ctx, joined, up.Signals); return nil })
	g.Go(func() error { allowed.Watch(ctx, up.StoreProblems, log); return nil })
	g.Go(func() error { connected.Watch(ctx, up.DestinationProblems); return nil })
	g.Go(func() error { connected.TellUnused(ctx, up.Unused); return nil })
	g.Go(func() error { curated.Watch(ctx, up.Keeps); return nil })
	g.Go(func() error { up.Run(ctx, joined.Register, joined); return nil })
	log.Info("node is up", "node", me.name, "version", nodeapi.Version)
	return g.Wait()
}

// noted also puts the listener where at says.
func noted(at *net.Listener, listen serve.Listen) serve.Listen {
	return func() (l net.Listener, err error) {
		l, err = listen()
		*at = l
		return l, err
	}
}

// leave stops the daemon when it is asked to. While Kubernetes updates a daemon, a node has two,
// which share directories: one that the new one has taken the sockets over from ends its requests
// first, for which it needs all that it has.
func leave(asked, ctx context.Context, stop func(), gateway net.Listener, requests *ingress.Ingress, connected *connections.Server) {
	defer stop()
	select {
	case <-asked.Done():
	case <-ctx.Done(): // something else has failed
		return
	}
	if gateway == nil || !serve.TakenOver(gateway) {
		return
	}
	drain, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var passed sync.WaitGroup
	passed.Go(func() { connected.Drain(drain) })
	serve.HandOver(drain, gateway)
	requests.Drain(drain)
	passed.Wait()
}

// endTriggers lets go of the streams when the daemon ends: what functions work on has the
// same time as their other requests. Then servers that do not answer are not waited for.
func endTriggers(ctx context.Context, triggers *trigger.Set, s *stores.Stores, log *slog.Logger) {
	<-ctx.Done()
	if err := serve.Bounded(ctx, shutdownTimeout, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, s.EndStreams)()
		return triggers.Close(ctx)
	}); err != nil {
		log.Warn("entries of streams stay pending; they are delivered again", "error", err)
	}
}
