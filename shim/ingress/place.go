package ingress

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
	"github.com/headstart-mesh/headstart/shim/workflow"
)

const (
	// placementTimeout bounds the wait for an instance's binding, if the request's deadline
	// does not: control plane restarts take about a second, and nobody waits much longer
	// without a word. All placements of a request, and their connections that do not come
	// about, have it together.
	placementTimeout = 15 * time.Second
	// placements is how often a request is placed at most. With the pauses between, which
	// are 3 s in all, that is longer than the control plane takes to see that an instance
	// is gone, or a daemon to be restarted.
	placements = 7
	pauseFirst = 50 * time.Millisecond
	// failedStarts is how many instances that were starting for a request may fail by themselves
	// before it is answered with that. One of them may have failed before the request was bound
	// to it, or been stopped just when it was ready; another that does was started after that,
	// by whoever knew of the first, and the next would be no better.
	failedStarts = 2
)

// run has a workflow answer the request.
func (in *Ingress) run(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked) error {
	p.begun()
	if in.config.Workflows == nil {
		return problem.New(http.StatusServiceUnavailable, "WorkflowUnknown", "", "the node runs no workflows")
	}
	return in.config.Workflows.Serve(ctx, w, r, workflow.Request{ID: p.id, Workflow: p.function, Depth: p.depth,
		Ingress: in.Gateway(), Ahead: in.Ahead, Load: in.slots.Load, Prepare: in.prepare})
}

// place has the request bound to an instance and brought there. It is placed again while it
// has reached nobody: an instance can be gone by then, since its node is drained, say, or
// its function was changed.
func (in *Ingress) place(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked) error {
	if p.function.GetWorkflow() != nil {
		return in.run(ctx, w, r, p)
	}
	pause := &backoff.ExponentialBackOff{InitialInterval: in.pause, MaxInterval: 32 * in.pause, Multiplier: 2}
	pause.Reset()
	until := time.Now().Add(placementTimeout)
	var before error    // why the last placement was to no avail
	var failed []string // instances that were starting for the request, and failed by themselves
	for placed := 1; ; placed++ {
		if placed > 1 { // it waits again
			p.begun()
			p.begun = in.config.Metrics.waits(p.function.GetName(), p.attempt == nil)
		}
		in.fetch(ctx, p)
		bound := in.here(p)
		var err error
		if bound == nil {
			bound, err = in.activate(ctx, p, until)
		}
		if err != nil && before != nil && !time.Now().Before(until) {
			return before // says more than that the time is over
		}
		if err == nil {
			began := time.Now()
			err = in.bring(ctx, w, r, p, bound)
			if !proxy.IsDial(err) { // an instance that started was worth the wait
				until = until.Add(time.Since(began))
			}
		}
		if bound.GetCold() && failedByItself(err) && !slices.Contains(failed, bound.GetInstance()) {
			failed = append(failed, bound.GetInstance())
		}
		wait := pause.NextBackOff()
		again := time.Now().Add(wait)
		if !isUndelivered(err) || placed == placements || len(failed) == failedStarts || !p.body.Whole() || again.After(until) || again.After(p.deadline) {
			return err
		}
		if in.rest(ctx, wait) != nil {
			return err
		}
		before = err
		trace.SpanFromContext(ctx).AddEvent(tracing.EventPlacedAgain, trace.WithAttributes(tracing.Reason.String(problem.Of(err).Title)))
		in.config.Metrics.placedAgain(p.function.GetName(), err)
	}
}

// failedByItself tells whether a placement was to no avail by the instance's own fault: its
// program ended, or takes no connections. One that is gone, or whose daemon is, may have been
// drained, evicted, or lost with its containerd.
func failedByItself(err error) bool {
	return isUndelivered(err) && problem.FaultOf(problem.Of(err)) != problem.FaultNobody
}

// bring takes the request to where it is bound.
func (in *Ingress) bring(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, bound *nodeapi.Bound) error {
	p.bound = bound
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

// unlessDelivered marks the failure if err says that no connection came about.
func unlessDelivered(err, failure error) error {
	if proxy.IsDial(err) && !isUndelivered(failure) {
		return undelivered{failure}
	}
	return failure
}
