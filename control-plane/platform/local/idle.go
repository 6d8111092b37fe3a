package local

import (
	"context"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

const (
	// idleTick is how often idleness is looked at: often within the shortest idle window.
	idleTick = time.Second / 4
	// recoverTimeout is how long a restarted control plane waits for the nodes of
	// before; they reconnect within a second.
	recoverTimeout = 3 * time.Second
	// nodeGrace is how long the instances of a node that is away are still routed to:
	// its daemon may only be restarting, and hot functions do not need it.
	nodeGrace = 10 * time.Second
)

// Run scales idle functions to zero and forgets nodes that stay away, until ctx ends.
// What is draining then is left to the next control plane. It is called once.
func (p *Platform) Run(ctx context.Context) {
	defer p.close()
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

func (p *Platform) close() {
	p.mu.Lock()
	p.end() // under mu: no drain begins after this
	p.mu.Unlock()
	p.draining.Wait()
}

func (p *Platform) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for node, since := range p.left {
		if time.Since(since) >= nodeGrace {
			p.forgetNode(node)
		}
	}
	for _, in := range p.instances {
		f := p.functions[in.Function]
		if idle := p.activity.Idle(f.Name); in.Phase == platform.Ready && idle >= f.Policy.ScaleToZero {
			p.log.Info("scaling to zero", "function", f.Name, "idle", idle.String())
			p.withdraw(in, f)
		}
	}
}

// forgetNode drops what was on a node that stays away; the caller holds mu.
func (p *Platform) forgetNode(node string) {
	delete(p.left, node)
	p.activity.Report(node, nil, p.known)
	for _, in := range p.instances {
		if in.Node == node {
			p.remove(in)
		}
	}
	p.jobsLost(node, func(string) bool { return true })
}
