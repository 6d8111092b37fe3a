package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// Server serves each gateway its own resources.
type Server struct {
	cfg    Config
	log    *slog.Logger
	cache  cache.SnapshotCache
	ledger *ledger
	peers  *peers
	// streams counts them.
	streams atomic.Int64

	mu        sync.Mutex // one Update at a time
	gateways  map[string]Gateway
	functions map[string]bool
	unused    []routing.Problem // of the weights
}

// New returns a server without gateways. It needs cfg.Verify and cfg.OnLoad.
func New(cfg Config, logger *slog.Logger) *Server {
	return &Server{
		cfg:      cfg,
		log:      logger,
		cache:    cache.NewSnapshotCache(true, cache.IDHash{}, nil),
		ledger:   newLedger(),
		peers:    &peers{kind: "gateway", verify: cfg.Verify, log: logger},
		gateways: map[string]Gateway{},
	}
}

// readBuffer is for what gateways and nodes say, which is short; gRPC's own 32 KiB for each
// of a thousand connections would be much of what they cost.
const readBuffer = 4 << 10

// window is fixed, gRPC's own least: with one that grows, gRPC measures the way by a ping
// for each message, which is a third of what a change costs here.
const window = 64 << 10

// silence is how long a gateway may leave a ping unanswered: an Envoy that compiles its filters
// answers none, for 15 s where cores are short. It counts as connected all that time, so that
// a deployment waits until the gateway has the function.
const silence = 25 * time.Second

// ServerOptions are what a gRPC server for gateways needs: pings, so that a gateway that
// fell silent counts as disconnected, and leave for theirs, which are more frequent than
// gRPC by itself would bear.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ReadBufferSize(readBuffer),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveInterval, Timeout: silence}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveInterval / 2, PermitWithoutStream: true}),
	}
}

// Register adds the discovery (ADS, delta only) and load reporting services. Their
// streams stay open until the peer closes them or g stops: use g.Stop.
func (s *Server) Register(g *grpc.Server) {
	discovery.RegisterAggregatedDiscoveryServiceServer(g, &adsService{server: s})
	loadstats.RegisterLoadReportingServiceServer(g, &loadService{server: s})
}

// Update publishes the platform's state and w to the gateways; those for which nothing
// changes hear nothing. Upon an error, all keep what they have. A gateway that gateways
// no longer lists is served on while its Envoy is connected: a daemon's restart must
// not cut its node's gateway off.
func (s *Server) Update(st platform.State, w routing.Weights, gateways []Gateway) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	served := make(map[string]Gateway, len(gateways))
	for _, gw := range gateways {
		served[gw.ID] = gw
	}
	for id, gw := range s.gateways {
		if _, listed := served[id]; listed {
			continue
		}
		if s.ledger.retire(id, s.cache.ClearSnapshot) {
			delete(s.gateways, id)
		} else {
			served[id] = gw
		}
	}
	snapshots := make(map[string]*cache.Snapshot, len(served))
	unused := routing.Problems{}
	for id, gw := range served {
		snapshot, err := s.snapshot(gw, st, w, unused)
		if err != nil {
			return fmt.Errorf("gateway %q: %w", id, err)
		}
		snapshots[id] = snapshot
	}
	s.gateways, s.unused = served, unused.Sorted()
	s.functions = make(map[string]bool, len(st.Functions))
	for _, f := range st.Functions {
		s.functions[f.Name] = true
	}
	for id, snapshot := range snapshots {
		if err := s.publish(id, snapshot); err != nil {
			return fmt.Errorf("publishing to gateway %q: %w", id, err)
		}
	}
	return nil
}

func (s *Server) snapshot(gw Gateway, st platform.State, w routing.Weights, unused routing.Problems) (*cache.Snapshot, error) {
	if gw.ID == "" {
		return nil, errors.New("has no name")
	}
	snapshot, found, err := Resources(s.cfg, gw, st, w)
	if err != nil {
		return nil, err
	}
	for function, why := range found {
		unused.Add(function, why, gw.ID)
	}
	if err := snapshot.Consistent(); err != nil {
		return nil, err
	}
	return snapshot, snapshot.ConstructVersionMap()
}

func (s *Server) publish(id string, snapshot *cache.Snapshot) error {
	hashes := make(map[key]string)
	for typeURL, names := range snapshot.VersionMap {
		for name, hash := range names {
			hashes[key{typeURL, name}] = hash
		}
	}
	// Before the first response of this snapshot can be acknowledged.
	p, changed := s.ledger.publish(id, hashes)
	if !changed {
		return nil
	}
	for k := range hashes {
		snapshot.VersionMap[k.typeURL][k.name] = p.version(k)
	}
	for i := range snapshot.Resources {
		snapshot.Resources[i].Version = strconv.FormatUint(p.seq, 10)
	}
	return s.cache.SetSnapshot(context.Background(), id, snapshot)
}

// Settled returns when every connected gateway has acknowledged everything that was
// published before the call. Nothing that an Update took away is then chosen for a new
// request; requests in flight go on, so leave them a moment before stopping what served
// them. It returns an error when ctx ends, or when a gateway refuses what it was sent.
// Gateways that are not connected are not waited for; after a start, that is all of
// them until they reconnect.
func (s *Server) Settled(ctx context.Context) error { return s.ledger.settled(ctx) }

// Problems returns what of the Weights cannot be used, and what connected gateways have
// refused: they keep what they had of that type.
func (s *Server) Problems() []routing.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.ledger.refusals(), s.unused)
}

func (s *Server) isFunction(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.functions[name]
}
