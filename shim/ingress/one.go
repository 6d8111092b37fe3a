package ingress

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/slots"
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
// free is called. If all are at work for long, the control plane is told.
func (in *Ingress) take(ctx context.Context, p *parked, bound string) (instance string, free func(), err error) {
	ctx, cancel := in.waiting(ctx, p.deadline)
	defer cancel()
	if bound != "" {
		if _, err := in.ready(ctx, p, bound); err != nil {
			return "", nil, err
		}
	}
	if p.attempt == nil {
		waits, got := context.WithCancel(ctx)
		defer got()
		late := time.AfterFunc(askAfter, func() { in.beside.begin(func() { in.askForMore(waits, p.function.GetName()) }) })
		defer late.Stop()
	}
	instance, free, err = in.slots.Take(ctx, p.function.GetName(), bound, p.attempt)
	switch {
	case errors.Is(err, slots.ErrNone): // it was there a moment ago
		err = undelivered{problem.InstanceGone()}
	case isLate(ctx, err):
		err = busyTooLong(p.function)
	}
	return instance, free, err
}

// askAfter is how long a request in its turn waits for an instance that is free until there are to be more of them. One takes several times
// as long to start, and the start takes processors from those that are at work.
const askAfter = 50 * time.Millisecond

// startsBelow is how busy the node's processors may be for that: a start takes a good part of one for as long as it lasts. With busier ones a
// request that waits for an instance waits for them. Each time that a request has waited for startsAnyway, an instance starts all the same:
// others may keep the processors busy for long.
const (
	startsBelow  = 0.8
	startsAnyway = 3 * time.Second
)

// askForMore asks for further instances of a function as long as a request waits for one that is free, if there are processors to start them, or when
// it has waited for long.
func (in *Ingress) askForMore(ctx context.Context, function string) {
	again, began := time.NewTicker(prepareEvery), time.Now()
	defer again.Stop()
	for ctx.Err() == nil {
		late := time.Since(began) >= startsAnyway
		if _, _, free := in.slots.Load(function); free == 0 && (late || in.canStart()) {
			if late {
				began = time.Now()
			}
			in.ask(ctx, &nodeapi.Activate{Function: function, More: true})
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// canStart tells whether the node has processors to start something.
func (in *Ingress) canStart() bool { return in.config.Busy == nil || in.config.Busy() < startsBelow }

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
	if !in.prepared.due(asked{a.GetFunction(), a.GetMore()}, time.Now()) {
		return
	}
	ctx, cancel := in.waiting(ctx, time.Now().Add(placementTimeout))
	defer cancel()
	a.Request = nodeapi.NewRequestID()
	_, _ = in.config.ControlPlane.Activate(ctx, a)
}

// prepared is when an instance was asked for that no request is bound to.
type prepared struct {
	mu sync.Mutex
	at map[asked]time.Time
}

// asked is what was asked for: an instance of a function, or one more.
type asked struct {
	function string
	more     bool
}

// due tells whether one may be asked for again, and notes that it is.
func (p *prepared) due(what asked, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.at, func(_ asked, at time.Time) bool { return now.Sub(at) >= prepareEvery })
	if _, is := p.at[what]; is {
		return false
	}
	p.at[what] = now
	return true
}
