// Package relay stands between the control plane and the gateways of its node: it keeps
// the functions' endpoints, on disk too, and serves them to each Envoy, so that a gateway
// starts and goes on while the control plane is away. In return the gateways' access logs
// tell it which functions are in use.
package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/delta/v3"
	"google.golang.org/grpc"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"

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
	// maxMessageBytes holds what Envoy says of itself in a first message, and a batch of
	// access logs: Envoy sends one when it has 16 KiB of them.
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

// Config is what a relay needs; all fields but StateFile must be set.
type Config struct {
	// Node is the node's name, which the control plane knows the connection by.
	Node string
	// ControlPlane is the connection to the control plane.
	ControlPlane grpc.ClientConnInterface
	// StateFile keeps the endpoints over restarts; its directory must exist. Empty: they
	// are not kept.
	StateFile string
	Activity  Activity
	Metrics   *Metrics
	Log       *slog.Logger
}

// Relay is one node's. Its zero value is not usable.
type Relay struct {
	cfg       Config
	endpoints *endpoints
	activity  *activity
	streams   delta.Server
	limits    *limits
}

// New returns a relay that serves what StateFile has until the control plane says more.
// A file that cannot be used is logged and ignored.
func New(cfg Config) *Relay {
	e := newEndpoints()
	r := &Relay{cfg: cfg, endpoints: e, activity: newActivity(cfg.Activity), limits: &limits{},
		streams: delta.NewServer(context.Background(), e.cache, nil, delta.DeactivateLegacyWildcard())}
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
	if err := r.endpoints.apply(before); err != nil {
		return err
	}
	r.cfg.Metrics.assignments.Set(float64(len(before.GetResources())))
	r.endpoints.saved() // nothing is new yet
	return nil
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

// Register adds endpoint discovery (delta, by EDS and ADS) and Envoy's access log service.
// Their streams stay open until the peer closes them or g stops: use g.Stop.
func (r *Relay) Register(g *grpc.Server) {
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, &edsService{relay: r})
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &adsService{relay: r})
	accesslog.RegisterAccessLogServiceServer(g, &logService{relay: r})
}

// SetFunctions says which functions there are; requests to others are not heard of.
func (r *Relay) SetFunctions(functions []*nodeapi.Function) { r.activity.setFunctions(functions) }

// Run follows the control plane and keeps StateFile up to date until ctx ends.
func (r *Relay) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { r.follow(ctx) })
	wg.Go(func() { r.activity.expire(ctx) })
	if r.cfg.StateFile != "" {
		wg.Go(func() { r.keep(ctx) })
	}
	wg.Wait()
}
