// Package relay stands between the control plane and the gateways of its node: it keeps
// what the control plane said last, on disk too, and serves it to each Envoy, so that a
// gateway starts and goes on while the control plane is away. That is the functions' endpoints and
// what the gateways' route filter is to expect of them, and in return the gateways' access logs tell
// it which functions are in use, and how their instances do. Where the gateway is the node's own, and
// no mesh's, the relay makes the rest of its configuration, too.
package relay

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	olderlog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Limits on what a peer can make the daemon hold. Whoever may open the gateways' socket
// is one: any process with the gateways' user id.
const (
	// maxStreams is for all peers together. Envoy opens one stream for each function.
	maxStreams = 8192
	// maxNames is how many endpoints all streams together may ask for, each by a name of at
	// most maxNameBytes: namespace, name and port, whose lengths Kubernetes limits to 63.
	maxNames     = 1 << 16
	maxNameBytes = 256
	// maxMessageBytes holds what Envoy says of itself in a first message, and a batch of access
	// logs: Envoy sends one when it has accesslog.Batch bytes of them.
	maxMessageBytes = 256 << 10
	// maxHeaderBytes and connectTimeout bound what comes before a message.
	maxHeaderBytes = 16 << 10
	connectTimeout = 10 * time.Second
)

// Activity hears which functions the node's gateways send requests to.
type Activity interface {
	// Seen is called when a function comes into use and when it has gone out of use, in
	// turn. It must not block.
	Seen(function string, active bool)
}

// Config is what a relay needs; all fields but Gateway, Keys and StateFile must be set, and
// Confirmed with Gateway.
type Config struct {
	// Gateway is the node's own; nil: its gateways are a mesh's.
	Gateway Own
	// Keys stand in the daemon's own endpoints of a mesh's clusters, and streams need one; nil: none do.
	Keys Keys
	// Confirmed hears that the own gateway has all that was said before Confirm. It must not block.
	Confirmed func(id int64)
	// WeightsAlone decide where requests go: gateways pick no endpoint per request.
	WeightsAlone bool
	// Node is the node's name, which the control plane knows the connection by.
	Node string
	// ControlPlane is the connection to the control plane.
	ControlPlane grpc.ClientConnInterface
	// StateFile keeps it over restarts; its directory must exist. Empty: it is not kept.
	StateFile string
	Activity  Activity
	// Refused hears what gateways refuse, all of it at each change. It must not block.
	Refused func(*nodeapi.GatewayRefusals)
	Metrics *Metrics
	Log     *slog.Logger
}

// Relay is one node's. Its zero value is not usable.
type Relay struct {
	cfg          Config
	kinds        []*resources // by type
	sources      []source
	expectations *expectations
	over         chan struct{} // closed when Run ends
	changed      chan struct{}
	gateways     *gateways
	own          *own // nil in a mesh
	activity     *activity
	refusals     *refusals
	limits       *limits
}

// New returns a relay that serves what StateFile has until the control plane says more.
// A file that cannot be used is logged and ignored.
func New(cfg Config) *Relay {
	r := &Relay{cfg: cfg, changed: make(chan struct{}, 1), refusals: newRefusals(), limits: &limits{},
		over:     make(chan struct{}),
		activity: newActivity(cfg.Activity, newSent(cfg.Metrics, time.Now()))}
	types := []string{resource.EndpointType}
	if cfg.Gateway != nil {
		types, r.own = ownTypes, &own{relay: r, known: make(chan struct{})}
	}
	r.gateways = newGateways(cfg.Confirmed, types...)
	endpoints := newResources(resource.EndpointType, r.changed, r.serveEndpoints)
	r.expectations = newExpectations(cfg, r.changed, r.pick)
	r.kinds = []*resources{endpoints, r.expectations.resources}
	r.sources = []source{r.aggregated(endpoints)}
	if !cfg.WeightsAlone {
		r.sources = append(r.sources, r.expected(r.expectations.resources))
	}
	for _, t := range types {
		cfg.Metrics.refused.WithLabelValues(short(t)) // the first one refused is an increase, too
	}
	if cfg.StateFile != "" {
		if err := r.load(); err != nil {
			cfg.Log.Warn("the endpoints of before cannot be used; gateways wait for the control plane", "error", err)
		}
	}
	return r
}

func (r *Relay) load() error {
	before, err := stateFile(r.cfg.StateFile).load()
	if err != nil || before == nil {
		return err
	}
	byType := make(map[string]*discovery.DeltaDiscoveryResponse, len(r.kinds))
	for _, k := range r.kinds {
		byType[k.typeURL] = &discovery.DeltaDiscoveryResponse{TypeUrl: k.typeURL}
	}
	for _, res := range before.GetResources() {
		if r.own != nil && res.GetResource().MessageIs(&nodeapi.Functions{}) {
			var m nodeapi.Functions
			if err := res.GetResource().UnmarshalTo(&m); err != nil {
				return fmt.Errorf("the functions of before: %w", err)
			}
			r.SetFunctions(m.GetFunctions())
			continue
		}
		of := byType[res.GetResource().GetTypeUrl()]
		if of == nil {
			return fmt.Errorf("%.*q is of a type that is not kept", maxNameBytes, res.GetName())
		}
		of.Resources = append(of.Resources, res)
	}
	for _, k := range r.kinds {
		if err := k.apply(byType[k.typeURL]); err != nil {
			return err
		}
	}
	r.count()
	r.unsaved() // nothing is new yet
	return nil
}

// kind is what is kept of a type; nil if nothing is.
func (r *Relay) kind(typeURL string) *resources {
	if i := slices.IndexFunc(r.kinds, func(k *resources) bool { return k.typeURL == typeURL }); i >= 0 {
		return r.kinds[i]
	}
	return nil
}

func (r *Relay) count() { r.cfg.Metrics.assignments.Set(float64(r.kind(resource.EndpointType).len())) }

// all is everything as one message, which load takes.
func (r *Relay) all() *discovery.DeltaDiscoveryResponse {
	all := &discovery.DeltaDiscoveryResponse{}
	for _, k := range r.kinds {
		all.Resources = append(all.Resources, k.all()...)
	}
	if r.own == nil {
		return all
	}
	if functions := r.own.all(); functions != nil {
		all.Resources = append(all.Resources, functions)
	}
	return all
}

// unsaved takes the token of changed, and tells whether there was one.
func (r *Relay) unsaved() bool {
	select {
	case <-r.changed:
		return true
	default:
		return false
	}
}

// ServerOptions are what a gRPC server for gateways needs besides Register.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectTimeout),
		// A fixed window: gRPC would let a fast peer's grow.
		grpc.InitialWindowSize(64 << 10),
		grpc.WaitForHandlers(true),
	}
}

// Register adds discovery (delta, by ADS and EDS) and the services for access logs, OpenTelemetry's
// and Envoy's. Streams stay open until the peer closes them or g stops: use g.Stop.
func (r *Relay) Register(g *grpc.Server) {
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, &edsService{relay: r})
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &adsService{relay: r})
	logs.RegisterLogsServiceServer(g, &logService{relay: r})
	olderlog.RegisterAccessLogServiceServer(g, &olderLogService{relay: r})
}

// SetFunctions says which functions there are; requests to others are not heard of.
func (r *Relay) SetFunctions(functions []*nodeapi.Function) {
	r.activity.setFunctions(functions)
	if r.own != nil {
		r.own.setFunctions(functions)
		signal(r.changed)
	}
}

// Confirm has Confirmed called when the own gateway has taken or refused all that was said before,
// or is not connected.
func (r *Relay) Confirm(id int64) { r.gateways.ask(id) }

// serveEndpoints hands endpoints on. Those of an own gateway have the daemon below them, where
// requests go while no instance takes them: a mesh's control plane knows the daemon's socket itself.
func (r *Relay) serveEndpoints(added map[string]*discovery.Resource, removed []string) error {
	all := make(map[string]*anypb.Any, len(added))
	for name, res := range added {
		all[name] = res.GetResource()
	}
	if r.own == nil {
		for name, a := range all {
			keyed, err := r.keyed(name, a)
			if err != nil {
				return err
			}
			all[name] = keyed
		}
		r.gateways.set(resource.EndpointType, all, removed)
		return nil
	}
	below, err := r.cfg.Gateway.Daemon()
	if err != nil {
		return err
	}
	for name, a := range all { // messages are merged by appending one to the other
		all[name] = &anypb.Any{TypeUrl: a.GetTypeUrl(), Value: slices.Concat(a.GetValue(), below)}
	}
	r.gateways.set(resource.EndpointType, all, removed)
	r.own.rebuild()
	return nil
}

// pick hears of which clusters the route filter picks the endpoints.
func (r *Relay) pick(clusters []string) {
	r.cfg.Metrics.picked.Set(float64(len(clusters)))
	if r.own != nil {
		r.own.setPicked(clusters)
	}
}

// Signals are of the requests that gateways sent to instances since it was called last.
func (r *Relay) Signals(now time.Time) []*nodeapi.RoutedSignals { return r.activity.sent.report(now) }

// Run follows the control plane and keeps StateFile up to date until ctx ends. It is called once.
func (r *Relay) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { <-ctx.Done(); close(r.over) })
	for _, s := range r.sources {
		wg.Go(func() { r.follow(ctx, s) })
	}
	wg.Go(func() { r.activity.expire(ctx) })
	wg.Go(func() { r.tellRefusals(ctx) })
	if r.cfg.StateFile != "" {
		wg.Go(func() { r.keep(ctx) })
	}
	wg.Wait()
}
