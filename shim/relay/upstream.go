package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	// Gateways go on with what they have, but every new instance waits to be found.
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second
	// wildcard subscribes to all functions, those to come among them.
	wildcard = "*"
)

var errNotAsked = errors.New("resources of this type were not asked for")

// follow keeps one stream open until ctx ends.
func (r *Relay) follow(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	level := slog.LevelWarn
	for {
		heard, err := r.connect(ctx)
		r.cfg.Metrics.connected.Set(0)
		if ctx.Err() != nil {
			return
		}
		if heard {
			wait.Reset()
			level = slog.LevelWarn
		}
		r.cfg.Log.Log(ctx, level, "the control plane is away; gateways keep the endpoints they have", "error", err)
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
func (r *Relay) connect(ctx context.Context) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(r.cfg.ControlPlane).DeltaAggregatedResources(ctx, grpc.MaxCallRecvMsgSize(maxBytes))
	if err != nil {
		return false, fmt.Errorf("opening the stream: %w", err)
	}
	// An error of Send says less than Recv's, which follows.
	for i, k := range r.kinds {
		ask := &discovery.DeltaDiscoveryRequest{TypeUrl: k.typeURL, ResourceNamesSubscribe: []string{wildcard}, InitialResourceVersions: k.versions()}
		if i == 0 {
			ask.Node = &core.Node{Id: r.cfg.Node}
		}
		_ = stream.Send(ask)
	}
	defer r.absence.begin()
	for {
		response, err := stream.Recv()
		if err != nil {
			return heard, fmt.Errorf("receiving: %w", err)
		}
		heard = true
		r.absence.end()
		_ = stream.Send(r.take(response))
	}
}

// take applies a response, and returns the word on it.
func (r *Relay) take(response *discovery.DeltaDiscoveryResponse) *discovery.DeltaDiscoveryRequest {
	verdict := &discovery.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}
	err := errNotAsked
	if k := r.kind(response.GetTypeUrl()); k != nil {
		err = k.apply(response)
	}
	if err != nil {
		r.cfg.Log.Error("endpoints of the control plane are refused; gateways keep what they have", "error", err)
		r.cfg.Metrics.updates.WithLabelValues(updateRefused).Inc()
		verdict.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		return verdict
	}
	r.cfg.Metrics.connected.Set(1)
	r.cfg.Metrics.updates.WithLabelValues(updateAccepted).Inc()
	r.count()
	return verdict
}
