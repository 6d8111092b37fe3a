package ingress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// activate asks for an instance, until then. An input that cannot be had fails the request now,
// not after the placement.
func (in *Ingress) activate(ctx context.Context, p *parked, until time.Time) (*nodeapi.Bound, error) {
	ctx, cancel := in.waiting(ctx, p.deadline, until)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	watch, seen := context.WithCancel(ctx)
	for _, input := range p.inputs() {
		g.Go(func() error { return untilFailed(watch, input) })
	}
	var bound *nodeapi.Bound
	began := time.Now()
	g.Go(func() (err error) {
		defer seen()
		refs := p.references()
		bound, err = in.config.ControlPlane.Activate(ctx, &nodeapi.Activate{Request: p.id,
			Function:    p.function.GetName(),
			Traceparent: tracing.Traceparent(ctx), Input: refs[""], Inputs: refs.Named(),
			Caller: p.caller, HandsOver: true})
		return err
	})
	err := g.Wait()
	if bound.GetCold() {
		in.config.Metrics.scheduled(ctx, p.function.GetName(), time.Since(began))
	}
	return bound, err
}

// deliver waits for instance and input, and hands the request to the function.
func (in *Ingress) deliver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, instance string) (err error) {
	if p.function.GetOneAtATime() {
		taken, free, err := in.take(ctx, p, instance)
		if err != nil {
			return err
		}
		defer free()
		instance = taken
	}
	ready := false
	if in.config.Foresee != nil && p.function.GetS3Learn() {
		end := in.config.Foresee(p.function.GetName(), instance, r.URL.RequestURI(), r.Header)
		defer func() { end(ready) }()
	}
	at, err := in.ready(ctx, p, instance)
	if err != nil {
		return err
	}
	ready = true
	files, remove, err := in.publish(ctx, p, instance)
	if err != nil {
		return err
	}
	defer remove() // before the inputs are released, whose bytes the files share
	defer in.begin(ctx, p, instance)()
	p.tell(progressDelivering)
	p.begun()
	delivered := time.Now()
	end := in.tally.begin(p.function.GetName(), delivered.Sub(p.began))
	defer func() {
		took := time.Since(delivered)
		end(took, err != nil && r.Context().Err() == nil && p.inTurn())
		in.config.Metrics.worked.WithLabelValues(p.function.GetName()).Add(took.Seconds())
	}()
	if p.attempt != nil {
		return in.forwardAhead(ctx, p, instance, at, func(ctx context.Context) error { return in.forward(ctx, w, r, p, instance, at, files) })
	}
	return in.forward(ctx, w, r, p, instance, at, files)
}

func (in *Ingress) ready(ctx context.Context, p *parked, instance string) (at sandboxes.Endpoint, err error) {
	before, cancel := in.waiting(ctx, p.deadline)
	defer cancel()
	g, ctx := errgroup.WithContext(before)
	watch, seen := context.WithCancel(ctx)
	var came, ready time.Time
	g.Go(func() (err error) {
		defer seen()
		came = time.Now()
		at, err = in.config.Instances.Ready(ctx, instance)
		ready = time.Now()
		switch {
		case err == nil:
			return nil
		case isGone(err):
			return undelivered{reported{err}}
		}
		return reported{err}
	})
	for _, one := range p.stored {
		if one.input != nil {
			g.Go(func() error { return one.input.Wait(ctx) })
		}
	}
	if p.received != nil { // which need not be complete
		g.Go(func() error { return untilFailed(watch, p.received) })
	}
	if err = g.Wait(); err == nil && p.inTurn() && p.metCold(ready.Sub(came)) {
		in.config.Metrics.started(before, p.function.GetName(), came, ready, p.inputs())
	}
	if isLate(before, err) {
		late := tooLate(p.function, p.stored.late(), at.Address.IsValid())
		return at, source.Because(late, before.Err()) // not reported by the instance yet
	}
	return at, err
}

// metCold tells whether the instance was not ready when the request came, which waited so long for it. Where it was placed
// knows that; another node's daemon goes by the time.
func (p *parked) metCold(waited time.Duration) bool {
	if p.bound != nil {
		return p.bound.GetCold()
	}
	return waited >= startLeast
}

// isGone tells whether an instance failed in a way that another one need not.
func isGone(err error) bool {
	if _, late := errors.AsType[problem.TooLate](err); late {
		return true
	}
	reason := problem.ReasonOf(err)
	return reason == problem.ReasonInstanceGone || reason == problem.ReasonInstanceStopped
}

// isLate tells whether err is the end of a wait at its deadline, and says nothing more.
func isLate(before context.Context, err error) bool {
	_, said := errors.AsType[*problem.Problem](err)
	return err != nil && !said && errors.Is(before.Err(), context.DeadlineExceeded)
}

// busyTooLong says of a request that all instances were at work until its deadline.
func busyTooLong(f *nodeapi.Function) *problem.Problem {
	return problem.New(http.StatusServiceUnavailable, "FunctionBusy", "spec.template.spec.containerConcurrency",
		fmt.Sprintf("all instances were at work on other requests for %s, and each takes one at a time; allow more of them (max-scale)",
			f.GetReadyTimeout().AsDuration()))
}

// tooLate says what a request still waited for at its deadline: the instance, or the input of that
// name.
func tooLate(f *nodeapi.Function, input string, ready bool) *problem.Problem {
	within := f.GetReadyTimeout().AsDuration()
	if !ready { // and the instance, which others may wait for, has longer
		return problem.New(http.StatusGatewayTimeout, "ReadyTimeout", filterapi.AnnotationReadyTimeout,
			fmt.Sprintf("the function was not ready within %s of the request's arrival; fix its start, or allow it more time", within))
	}
	late := source.TimedOut(f.GetStore())
	late.Field = filterapi.InputKey(input)
	late.Detail += fmt.Sprintf(
		"; %s, now %s, bounds the wait for the input, too", filterapi.AnnotationReadyTimeout, within,
	)
	return late
}
