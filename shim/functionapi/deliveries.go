package functionapi

import (
	"context"
	"errors"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// deliveries are the requests that the node's instances work on, by instance.
type deliveries struct {
	mu sync.Mutex
	of map[string][]*delivery
	// waits are told the trace of the next one.
	waits map[chan string]string // by the instance
	// last are the attempts that instances have answered since they got another request: what their programs still do is of those.
	last map[string]*attempt.Attempt
	// calling are how many calls wait for the turns of attempts.
	calling map[*attempt.Attempt]int
}

// delivery is one of them. Its context ends with it.
type delivery struct {
	sandboxes.Delivery
	trace trace.TraceID
	ctx   context.Context
}

// errOver is why a read ends whose request is over.
var errOver = errors.New("the request whose input it is is over")

func (d *deliveries) begin(instance string, what sandboxes.Delivery) (end func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	own := &delivery{Delivery: what, ctx: ctx, trace: traceOf(propagation.MapCarrier{"traceparent": what.Traceparent})}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[instance] = append(d.of[instance], own)
	delete(d.last, instance)
	for heard, of := range d.waits {
		if of == instance {
			heard <- what.Traceparent
			delete(d.waits, heard)
		}
	}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		cancel(errOver)
		if own.Attempt != nil {
			d.last[instance] = own.Attempt
			if d.calling[own.Attempt] > 0 { // in its turn it would have heard the answer
				own.Attempt.Squash()
			}
		}
		left := slices.DeleteFunc(d.of[instance], func(other *delivery) bool { return other == own })
		if len(left) == 0 {
			delete(d.of, instance)
			return
		}
		d.of[instance] = left
	}
}

// current is the attempt whose turn has not come, of those that an instance works on, or has worked on last.
func (d *deliveries) current(instance string) *attempt.Attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, own := range d.of[instance] {
		if own.Attempt != nil && !own.Attempt.InTurn() {
			return own.Attempt
		}
	}
	if last := d.last[instance]; last != nil && !last.InTurn() {
		return last
	}
	return nil
}

// idle tells whether an instance has answered all its requests, the last one of which began before its turn. What is left of one that it was
// to give up may come later.
func (d *deliveries) idle(instance string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last[instance]
	return len(d.of[instance]) == 0 && last != nil && last.IsAnswered()
}

// forget lets go of an instance that is no more.
func (d *deliveries) forget(instance string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.last, instance)
}

// turn waits until what an instance does may have effects, or until a channel is closed: until then, others see nothing of it. An attempt whose program does not wait
// for that is squashed: in its turn it would not have had to.
func (d *deliveries) turn(ctx context.Context, instance string, until <-chan struct{}) error {
	d.mu.Lock()
	attempts := []*attempt.Attempt{d.last[instance]}
	for _, own := range d.of[instance] {
		attempts = append(attempts, own.Attempt)
	}
	attempts = slices.DeleteFunc(attempts, func(a *attempt.Attempt) bool { return a == nil })
	for _, a := range attempts {
		d.calling[a]++
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, a := range attempts {
			if d.calling[a]--; d.calling[a] == 0 {
				delete(d.calling, a)
			}
		}
	}()
	for _, a := range attempts {
		select {
		case <-a.Turn():
		case <-a.Squashed():
			return attempt.ErrSquashed
		case <-until:
			return nil
		case <-ctx.Done():
			a.Squash()
			return ctx.Err()
		}
	}
	return nil
}

func (d *deliveries) next(ctx context.Context, instance string) (traceparent string) {
	heard := make(chan string, 1)
	d.mu.Lock()
	d.waits[heard] = instance
	d.mu.Unlock()
	select {
	case traceparent = <-heard:
	case <-ctx.Done():
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waits, heard)
	}
	return traceparent
}

// find returns a request that the instance works on.
func (d *deliveries) find(instance, request string) (*delivery, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.of[instance], func(own *delivery) bool { return own.Request == request })
	if i < 0 {
		return nil, false
	}
	return d.of[instance][i], true
}

// origin is what a call comes from.
type origin struct {
	// depth is how many calls led to it.
	depth int
	// traceparent is the trace to continue if the call says none, empty if that is not
	// known.
	traceparent string
}

// origin finds the request for which an instance makes a call: the one that the call names,
// or those of its trace, or any. Of several it is the deepest, so that functions that tell
// nothing cannot go deeper without end either.
func (d *deliveries) origin(instance, request string, of trace.TraceID) origin {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.of[instance]
	for _, may := range []func(*delivery) bool{
		func(own *delivery) bool { return own.Request == request },
		func(own *delivery) bool { return of.IsValid() && own.trace == of },
		func(*delivery) bool { return true },
	} {
		var o origin
		n := 0
		for _, own := range all {
			if may(own) {
				n++
				o = origin{depth: max(o.depth, own.Depth), traceparent: own.Traceparent}
			}
		}
		if n > 1 {
			o.traceparent = "" // which of them is not known
		}
		if n > 0 {
			return o
		}
	}
	return origin{}
}

// traceOf is the trace that headers name, invalid for none.
func traceOf(h propagation.TextMapCarrier) trace.TraceID {
	ctx := propagation.TraceContext{}.Extract(context.Background(), h)
	return trace.SpanContextFromContext(ctx).TraceID()
}
