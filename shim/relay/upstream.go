package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	// Gateways go on with what they have, but every new instance waits to be found.
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second
	// settling is how long expectations are held back. All of them are composed into one text for each change, and
	// the control plane sends the next change after the relay's answer: at most ten times a second. The numbers are of
	// the last seconds; a tenth of one does not make them old.
	settling = 100 * time.Millisecond
	// wildcard subscribes to all functions, those to come among them.
	wildcard = "*"
)

var errNotAsked = errors.New("resources of this type were not asked for")

// source is a stream of the control plane's.
type source struct {
	kinds []*resources // that come by it
	open  func(context.Context) (incoming, error)
	// settling is how long a response is held back.
	settling time.Duration
	// away is said when there is none.
	away string
	// connected hears whether the control plane speaks.
	connected func(bool)
}

// incoming is an open stream.
type incoming interface {
	Send(*discovery.DeltaDiscoveryRequest) error
	Recv() (*discovery.DeltaDiscoveryResponse, error)
}

// aggregated is the source of what gateways cannot be without.
func (r *Relay) aggregated(kinds ...*resources) source {
	return source{kinds: kinds, away: "the control plane is away; gateways keep the endpoints they have",
		open: func(ctx context.Context) (incoming, error) {
			return discovery.NewAggregatedDiscoveryServiceClient(r.cfg.ControlPlane).DeltaAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(maxBytes))
		},
		connected: func(is bool) {
			r.gateways.follow(is)
			if is {
				r.cfg.Metrics.connected.Set(1)
				return
			}
			r.cfg.Metrics.connected.Set(0)
		}}
}

// expected is the source of what the route filter expects. It is apart from the other: a control
// plane that is older has no such thing.
func (r *Relay) expected(kind *resources) source {
	return source{kinds: []*resources{kind}, settling: settling, away: "the control plane sends no expectations; gateways go by what they have, and by weight",
		open: func(ctx context.Context) (incoming, error) {
			return extension.NewExtensionConfigDiscoveryServiceClient(r.cfg.ControlPlane).DeltaExtensionConfigs(ctx, grpc.MaxCallRecvMsgSize(maxBytes))
		},
		connected: func(bool) {}}
}

// follow keeps one stream open until ctx ends.
func (r *Relay) follow(ctx context.Context, s source) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	level := slog.LevelWarn
	for {
		heard, err := r.connect(ctx, s)
		if ctx.Err() != nil {
			return
		}
		if heard {
			wait.Reset()
			level = slog.LevelWarn
		}
		r.cfg.Log.Log(ctx, level, s.away, "error", err)
		level = slog.LevelDebug // one warning until it is back
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// connect is one stream, until it ends. heard tells whether the control plane said
// anything.
func (r *Relay) connect(ctx context.Context, s source) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.connected(false)
	stream, err := s.open(ctx)
	if err != nil {
		return false, fmt.Errorf("opening the stream: %w", err)
	}
	// An error of Send says less than Recv's, which follows.
	for i, k := range s.kinds {
		ask := &discovery.DeltaDiscoveryRequest{TypeUrl: k.typeURL, ResourceNamesSubscribe: []string{wildcard}, InitialResourceVersions: k.versions()}
		if i == 0 {
			ask.Node = &core.Node{Id: r.cfg.Node}
		}
		_ = stream.Send(ask)
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return heard, fmt.Errorf("receiving: %w", err)
		}
		heard = true
		select {
		case <-time.After(s.settling):
		case <-ctx.Done():
			return heard, ctx.Err()
		}
		verdict := r.take(response, s)
		s.connected(true)
		_ = stream.Send(verdict)
	}
}

// take applies a response of s, and returns the word on it.
func (r *Relay) take(response *discovery.DeltaDiscoveryResponse, s source) *discovery.DeltaDiscoveryRequest {
	verdict := &discovery.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}
	err := errNotAsked
	if k := r.kind(response.GetTypeUrl()); slices.Contains(s.kinds, k) {
		err = k.apply(response)
	}
	if err != nil {
		r.cfg.Log.Error("what the control plane says is refused; gateways keep what they have", "error", err)
		r.cfg.Metrics.updates.WithLabelValues(updateRefused).Inc()
		verdict.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		return verdict
	}
	r.cfg.Metrics.updates.WithLabelValues(updateAccepted).Inc()
	r.count()
	return verdict
}
