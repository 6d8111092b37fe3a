package local

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// idleTick is how often idleness is looked at: the shortest idle window.
	idleTick = time.Second / 4
	// recoverTimeout is how long a restarted control plane waits for the nodes of
	// before; they reconnect within a second.
	recoverTimeout = 3 * time.Second
	// nodeGrace is how long the instances of a node that is away are still routed to:
	// its daemon may only be restarting, and hot functions do not need it.
	nodeGrace = 10 * time.Second
	// settleTimeout bounds the wait for gateways to stop using an instance. One that
	// does not answer is cut off from instances, not from the daemon's retry.
	settleTimeout = 5 * time.Second
	// drainQuiet is how long an instance that is withdrawn must have been without
	// requests: longer than the interval of the gateways' load reports, so that the
	// last requests have been reported.
	drainQuiet = 1500 * time.Millisecond
	// stopGrace is what a function's program gets to finish its requests, as Kubernetes gives it.
	stopGrace = 30 * time.Second
)

// activity is when each function was last busy, by the word of gateways and nodes.
type activity struct {
	last map[string]time.Time
	busy map[string]map[string]uint64 // by reporter, then function
}

func newActivity() activity {
	return activity{last: map[string]time.Time{}, busy: map[string]map[string]uint64{}}
}

func (a activity) touch(function string) { a.last[function] = time.Now() }

// report replaces what one reporter said before. A function that it no longer calls
// busy was so until now.
func (a activity) report(reporter string, busy map[string]uint64) {
	for f := range a.busy[reporter] {
		a.touch(f)
	}
	for f, n := range busy {
		if n == 0 {
			delete(busy, f)
			continue
		}
		a.touch(f)
	}
	if len(busy) == 0 {
		delete(a.busy, reporter)
		return
	}
	a.busy[reporter] = busy
}

// idle is how long the function has had no request.
func (a activity) idle(function string) time.Duration {
	for _, busy := range a.busy {
		if busy[function] > 0 {
			return 0
		}
	}
	return time.Since(a.last[function])
}

// Run scales idle functions to zero and forgets nodes that stay away, until ctx ends.
// Then it waits for what it has begun.
func (p *Platform) Run(ctx context.Context) {
	defer p.retiring.Wait()
	defer close(p.closing)
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	late := time.NewTimer(recoverTimeout)
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			p.mu.Lock()
			p.recover()
			p.mu.Unlock()
		case <-tick.C:
			p.sweep()
		}
	}
}

func (p *Platform) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, since := range p.left {
		if time.Since(since) < nodeGrace {
			continue
		}
		delete(p.left, node)
		for id, in := range p.instances {
			if in.Node == node {
				delete(p.instances, id)
			}
		}
		p.changed()
	}
	for _, in := range p.instances {
		f := p.functions[in.Function]
		if in.Phase == platform.Ready && p.activity.idle(in.Function) >= f.Policy.ScaleToZero {
			p.log.Info("scaling to zero", "function", in.Function, "idle", p.activity.idle(in.Function).String())
			p.retire(in.Function)
		}
	}
}

// retire withdraws the function's instances and, in the background, stops them when
// nothing uses them any more; the caller holds mu.
func (p *Platform) retire(function string) {
	for _, in := range p.instances {
		if in.Function == function && in.Phase != platform.Stopping {
			in.Phase = platform.Stopping
			p.drainLater(in)
		}
	}
	p.changed()
}

// drainLater drains in the background; the caller holds mu.
func (p *Platform) drainLater(in *platform.Instance) {
	id, node, function := in.ID, in.Node, in.Function
	longest := p.functions[function].RequestTimeout // none when the function was deleted
	p.retiring.Go(func() { p.drain(id, node, function, longest) })
}

// drain waits until no gateway routes to the instance and the requests on it are
// over, for at most as long as a request may take, and stops it.
func (p *Platform) drain(id, node, function string, longest time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if err := p.routes.Settled(ctx); err != nil {
		p.log.Warn("a gateway did not confirm that it withdrew an instance", "instance", id, "error", err)
	}
	deadline := time.NewTimer(longest)
	defer deadline.Stop()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for p.quiet(function) < drainQuiet {
		select {
		case <-tick.C:
			continue
		case <-deadline.C:
		case <-p.closing:
			return // the next control plane adopts the instance, or stops it
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop(node, id, stopGrace)
}

func (p *Platform) quiet(function string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.activity.idle(function)
}

// stop tells the node; one that is away is told when it joins. The caller holds mu.
func (p *Platform) stop(node, id string, grace time.Duration) {
	err := p.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Stop{Stop: &nodeapi.StopInstance{Id: id, Grace: durationpb.New(grace)}}})
	if err != nil {
		p.log.Warn("an instance could not be stopped", "instance", id, "node", node, "error", err)
	}
}
