package local

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// settleTimeout bounds the wait for gateways to stop using an instance. One that
	// does not answer is cut off from instances, not from the daemon's retry.
	settleTimeout = 5 * time.Second
	// drainQuiet is how long an instance that is withdrawn must have been without
	// requests: longer than a gateway may be silent about the last ones, which it reports each
	// second, and to a daemon that is restarted within a few.
	drainQuiet = 6500 * time.Millisecond
	// stopGrace is what a function's program gets to end by itself, as Kubernetes gives it.
	stopGrace = 30 * time.Second
)

// retire withdraws the function's instances; the caller holds mu.
func (p *Platform) retire(f platform.Function) {
	for _, in := range p.instances {
		if in.Function == f.Name && in.Phase != platform.Stopping {
			p.withdraw(in, f)
		}
	}
}

// withdraw takes an instance of f out of routing and, in the background, stops it when
// nothing uses it any more; the caller holds mu.
func (p *Platform) withdraw(in *instance, f platform.Function) {
	longest := f.RequestTimeout
	if in.Phase == platform.Starting { // there may be requests that wait for it
		longest += f.Policy.ReadyTimeout
	}
	in.Phase = platform.Stopping
	p.changed()
	p.tellWithdrawn(in)
	if p.life.Err() != nil {
		return // the next control plane adopts the instance, or stops it
	}
	p.draining.Go(func() {
		if !p.drain(p.life, in, longest) {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if in.drained = true; p.has(in) {
			p.stop(in.Node, in.ID)
		}
	})
}

// tellWithdrawn has the instance's node give it no further requests. One that is away is told when it joins.
func (p *Platform) tellWithdrawn(in *instance) {
	_ = p.nodes.Send(in.Node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Withdraw{Withdraw: &nodeapi.WithdrawInstance{Id: in.ID}}})
}

// drain waits until no gateway routes to the instance and the requests on it are over,
// for at most as long as they may take. It is false when ctx ends before.
func (p *Platform) drain(ctx context.Context, in *instance, longest time.Duration) bool {
	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	err := p.routes.Settled(settling)
	cancel()
	if err != nil && ctx.Err() == nil {
		p.log.Warn("a gateway did not confirm that it withdrew an instance", "instance", in.ID, "error", err)
	}
	// Until here requests may have come that nobody has reported yet.
	settled := time.Now()
	deadline := time.NewTimer(longest)
	defer deadline.Stop()
	tick := time.NewTicker(idleTick)
	defer tick.Stop()
	for p.quiet(in, settled) < drainQuiet {
		select {
		case <-tick.C:
		case <-deadline.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// quiet is how long the instance has certainly had no request, by what was heard from
// since on. One that is gone has been quiet for long enough.
func (p *Platform) quiet(in *instance, since time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.has(in) {
		return drainQuiet
	}
	return min(time.Since(since), p.activity.Idle(in.Function))
}

// has tells whether the instance is not gone; the caller holds mu.
func (p *Platform) has(in *instance) bool { return p.instances[in.ID] == in }

// stop tells the node; one that is away is told when it joins. The caller holds mu.
func (p *Platform) stop(node, id string) {
	err := p.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Stop{Stop: &nodeapi.StopInstance{Id: id, Grace: durationpb.New(stopGrace)}}})
	if err != nil {
		p.log.Warn("an instance could not be stopped; its node is told when it joins", "instance", id, "node", node, "error", err)
	}
}
