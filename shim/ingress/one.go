package ingress

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// here binds the request to an instance of the node's own, without a question to the control plane: to the only one that there is, or
// to whichever is free first of those that take one request at a time. Nil: there is none, or others may have more.
func (in *Ingress) here(p *parked) *nodeapi.Bound {
	f := p.function
	if !f.GetOneAtATime() && !f.GetOneInstance() {
		return nil
	}
	ids, _ := in.config.Instances.Serving(f.GetName())
	switch {
	case len(ids) == 0:
		return nil
	case f.GetOneAtATime():
		return &nodeapi.Bound{Request: p.id, Node: in.config.Node}
	}
	return &nodeapi.Bound{Request: p.id, Instance: ids[0], Node: in.config.Node}
}

// take waits until an instance has no other request: the one that the request is bound to, or any of the node's. It has it until
// free is called. If all are at work, the control plane is told.
func (in *Ingress) take(ctx context.Context, p *parked, bound string) (instance string, free func(), err error) {
	ctx, cancel := in.waiting(ctx, p.deadline)
	defer cancel()
	if bound != "" {
		if _, err := in.ready(ctx, p, bound); err != nil {
			return "", nil, err
		}
	}
	if _, _, idle := in.slots.Load(p.function.GetName()); idle == 0 && p.attempt == nil {
		in.beside.begin(func() { in.ask(context.Background(), &nodeapi.Activate{Function: p.function.GetName(), More: true}) })
	}
	instance, free, err = in.slots.Take(ctx, p.function.GetName(), bound, p.attempt)
	if isLate(ctx, err) {
		err = busyTooLong(p.function)
	}
	return instance, free, err
}

// beside is what an ingress does beside the requests that its callers wait for. Its zero value is ready to use.
type beside struct {
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// begin does something; false: the ingress is closed.
func (b *beside) begin(do func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.running.Go(do)
	}
	return !b.closed
}

// close has nothing begin any more.
func (b *beside) close(stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	stop()
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
