package ingress

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// here binds the request to the node's own instances of a function that takes one request at a time, if there are any: whichever
// is free first gets it, and no control plane is asked. If all are at work, it is told. Nil: there are none.
func (in *Ingress) here(p *parked) *nodeapi.Bound {
	if !p.function.GetOneAtATime() {
		return nil
	}
	all, _, free := in.slots.Load(p.function.GetName())
	if all == 0 {
		return nil
	}
	if free == 0 && in.stopping.Err() == nil {
		in.ahead.Go(func() { in.ask(context.Background(), &nodeapi.Activate{Function: p.function.GetName(), More: true}) })
	}
	return &nodeapi.Bound{Request: p.id}
}

// take waits until an instance has no other request: the one that the request is bound to, or any of the node's. It has it until
// free is called.
func (in *Ingress) take(ctx context.Context, p *parked, bound string) (instance string, free func(), err error) {
	ctx, cancel := in.waiting(ctx, p.deadline)
	defer cancel()
	if bound != "" {
		if _, err := in.ready(ctx, p, bound); err != nil {
			return "", nil, err
		}
	}
	instance, free, err = in.slots.Take(ctx, p.function.GetName(), bound, p.attempt)
	if isLate(ctx, err) {
		err = busyTooLong(p.function)
	}
	return instance, free, err
}

// prepareEvery is how often a node asks for an instance of a function ahead of requests: one that had an instance then has it
// still, since no function is scaled to zero sooner.
const prepareEvery = time.Second

// prepare has a function have an instance, for a request that is likely to come.
func (in *Ingress) prepare(ctx context.Context, function, caller string) {
	in.ask(ctx, &nodeapi.Activate{Function: function, Caller: caller, Traceparent: tracing.Traceparent(ctx)})
}

// ask asks for an instance that no request is bound to. If there is none, the request that comes hears why.
func (in *Ingress) ask(ctx context.Context, a *nodeapi.Activate) {
	if !in.prepared.due(a.GetFunction(), time.Now()) {
		return
	}
	ctx, cancel := in.waiting(ctx, time.Now().Add(placementTimeout))
	defer cancel()
	a.Request = nodeapi.NewRequestID()
	_, _ = in.config.ControlPlane.Activate(ctx, a)
}

// prepared are the functions of which an instance was asked for ahead of a request, and when.
type prepared struct {
	mu sync.Mutex
	at map[string]time.Time
}

// due tells whether one may be asked for again, and notes that it is.
func (p *prepared) due(function string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.at, func(_ string, at time.Time) bool { return now.Sub(at) >= prepareEvery })
	if _, is := p.at[function]; is {
		return false
	}
	p.at[function] = now
	return true
}
