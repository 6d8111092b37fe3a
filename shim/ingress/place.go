package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// placements is how often a request is placed at most. With the pauses between, which
	// are 3 s in all, that is longer than the control plane takes to see that an instance
	// is gone, or a daemon to be restarted.
	placements = 7
	pauseFirst = 50 * time.Millisecond
)

// place has the request bound to an instance and brought there. It is placed again while it
// has reached nobody: an instance can be gone by then, since its node is drained, say, or
// its function was changed.
func (in *Ingress) place(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked) error {
	pause := &backoff.ExponentialBackOff{InitialInterval: in.pause, MaxInterval: 32 * in.pause, Multiplier: 2}
	pause.Reset()
	for placed := 1; ; placed++ {
		in.fetch(ctx, p)
		err := in.placeOnce(ctx, w, r, p)
		wait := pause.NextBackOff()
		if !isUndelivered(err) || placed == placements || !p.body.whole() || time.Until(p.deadline) < wait {
			return err
		}
		if in.rest(ctx, wait) != nil {
			return err
		}
		trace.SpanFromContext(ctx).AddEvent(tracing.EventPlacedAgain, trace.WithAttributes(tracing.Reason.String(problem.Of(err).Title)))
		in.metrics.placedAgain(p.function.GetName(), err)
	}
}

func (in *Ingress) placeOnce(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked) error {
	bound, err := in.activate(ctx, p)
	if err != nil {
		return err
	}
	trace.SpanFromContext(ctx).SetAttributes(tracing.FaaSColdStart.Bool(bound.GetCold()), tracing.Instance.String(bound.GetInstance()))
	switch {
	case bound.GetRelayAddress() != "":
		return in.relay(ctx, w, r, p, bound)
	case bound.GetPeerAddress() != "":
		return in.handOver(ctx, w, r, p, bound)
	}
	return in.deliver(ctx, w, r, p, bound.GetInstance())
}

// rest waits, as long as anybody waits for the request.
func (in *Ingress) rest(ctx context.Context, d time.Duration) error {
	ctx, cancel := in.waiting(ctx)
	defer cancel()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// undelivered marks the failure of one placement in which nobody got the request: the
// instance is gone, or takes no connections.
type undelivered struct{ error }

func (e undelivered) Unwrap() error { return e.error }

func isUndelivered(err error) bool {
	_, is := errors.AsType[undelivered](err)
	return is
}
