package ingress

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/source"
)

// activate asks for an instance, until then. An input that cannot be had fails the request now,
// not after the placement.
func (in *Ingress) activate(ctx context.Context, p *parked, until time.Time) (*nodeapi.Bound, error) {
	ctx, cancel := in.waiting(ctx)
	defer cancel()
	ctx, overdue := context.WithDeadline(ctx, p.deadline)
	defer overdue()
	ctx, late := context.WithDeadline(ctx, until)
	defer late()
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	g, ctx := errgroup.WithContext(ctx)
	watch, seen := context.WithCancel(ctx)
	for _, input := range p.inputs() {
		g.Go(func() error { return untilFailed(watch, input) })
	}
	var bound *nodeapi.Bound
	g.Go(func() (err error) {
		defer seen()
		bound, err = in.controlPlane.Activate(ctx, &nodeapi.Activate{Request: p.id, Function: p.function.GetName(), Traceparent: carrier["traceparent"], Input: p.reference})
		return err
	})
	err := g.Wait()
	return bound, err
}

// deliver waits for instance and input, and hands the request to the function.
func (in *Ingress) deliver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, instance string) (err error) {
	at, err := in.ready(ctx, p, instance)
	if err != nil {
		return err
	}
	file, remove, err := in.publish(ctx, p, instance)
	if err != nil {
		return err
	}
	defer remove() // before the input is released, whose bytes the file shares
	defer in.begin(ctx, p, instance)()
	p.tell(progressDelivering)
	delivered := time.Now()
	end := in.tally.begin(p.function.GetName(), delivered.Sub(p.began))
	defer func() { end(time.Since(delivered), err != nil && r.Context().Err() == nil) }()
	return in.forward(ctx, w, r, p, instance, at, file)
}

func (in *Ingress) ready(ctx context.Context, p *parked, instance string) (at sandboxes.Endpoint, err error) {
	ctx, cancel := in.waiting(ctx)
	defer cancel()
	before, overdue := context.WithDeadline(ctx, p.deadline)
	defer overdue()
	g, ctx := errgroup.WithContext(before)
	watch, seen := context.WithCancel(ctx)
	g.Go(func() (err error) {
		defer seen()
		at, err = in.instances.Ready(ctx, instance)
		switch {
		case err == nil:
			return nil
		case isGone(err):
			return undelivered{reported{err}}
		}
		return reported{err}
	})
	if p.input != nil {
		g.Go(func() error { return p.input.Wait(ctx) })
	}
	if p.body.input != nil { // which need not be complete
		g.Go(func() error { return untilFailed(watch, p.body.input) })
	}
	err = g.Wait()
	if _, said := errors.AsType[*problem.Problem](err); err != nil && !said && errors.Is(before.Err(), context.DeadlineExceeded) {
		return at, because(tooLate(p.function, at.Address.IsValid()), before.Err()) // not reported by the instance yet
	}
	return at, err
}

// isGone tells whether an instance failed in a way that another one need not.
func isGone(err error) bool {
	if _, late := errors.AsType[problem.TooLate](err); late {
		return true
	}
	reason := problem.Of(err).Title
	return reason == problem.ReasonInstanceGone || reason == problem.ReasonInstanceStopped
}

// tooLate says what a request still waited for at its deadline.
func tooLate(f *nodeapi.Function, ready bool) *problem.Problem {
	within := f.GetReadyTimeout().AsDuration()
	if !ready { // and the instance, which others may wait for, has longer
		return problem.New(http.StatusGatewayTimeout, "ReadyTimeout", filterapi.AnnotationReadyTimeout,
			fmt.Sprintf("the function was not ready within %s of the request's arrival; mend its start, or allow it more time", within))
	}
	late := source.TimedOut(f.GetStore())
	late.Field = filterapi.AnnotationInput
	late.Detail += fmt.Sprintf("; %s, now %s, bounds the wait for the input, too", filterapi.AnnotationReadyTimeout, within)
	return late
}

// publish makes the input appear in the sandbox, complete, if that has a directory for
// it; file tells whether it has. remove takes it out again.
func (in *Ingress) publish(ctx context.Context, p *parked, instance string) (file bool, remove func(), err error) {
	if p.input == nil {
		return false, func() {}, nil
	}
	_, span := tracer.Start(ctx, tracing.Transfer, trace.WithAttributes(tracing.TransferKind.String(tracing.TransferLocal)))
	defer func() { endSpan(span, err) }()
	dir, known := in.instances.Inputs(instance)
	if !known {
		return false, nil, undelivered{problem.InstanceGone()}
	}
	if dir == nil {
		return false, func() {}, nil
	}
	ctx, cancel := in.waiting(ctx) // it may have to be copied
	defer cancel()
	before, overdue := context.WithDeadline(ctx, p.deadline)
	defer overdue()
	switch err := p.input.Link(before, dir, p.id); {
	case errors.Is(err, buffer.ErrNoFile):
		trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNoFile))
		return false, func() {}, nil
	case errors.Is(err, os.ErrClosed) || errors.Is(err, fs.ErrNotExist):
		return false, nil, undelivered{problem.InstanceGone()} // its directory went with it just now
	case err != nil && ctx.Err() == nil && before.Err() != nil:
		return false, nil, because(tooLate(p.function, true), err)
	case err != nil:
		return false, nil, fmt.Errorf("giving the input to the sandbox: %w", err)
	}
	return true, func() {
		// The directory is gone with its instance when this fails.
		_ = dir.Remove(p.id)
	}, nil
}
