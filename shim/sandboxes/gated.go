package sandboxes

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// gatedName is a file with the name of the container for whose program the pod's sandbox is closed.
	gatedName = "gated"
	// stopTimeout bounds the search for the shim that is to end a program: one looks for a new daemon twice a second.
	stopTimeout = 10 * time.Second
	// renewedMost is how long a cluster may take to notice that a program has ended, which takes the kubelet about a second.
	renewedMost = 10 * time.Second
)

// gateOf is how a pod's sandbox is to be closed for one of its containers; nil: it is not.
func (k *Kubelet) gateOf(id, container string, sb Sandbox) *nodeapi.Gate {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[id]
	if p == nil || p.gate.GetContainer() != container || p.gate.GetOpen() != "" {
		return nil
	}
	f := k.functions(p.function)
	if !f.GetRunsAhead() {
		return nil
	}
	if p.open = opens(f, sb.S3, sb.Connections); p.open != "" {
		return nil
	}
	return p.gate
}

// isOpen tells whether the owner of a pod's function is to hear why that works on requests in their turn only; the caller holds mu.
func (k *Kubelet) isOpen(p *pod) bool {
	if p.gate == nil || p.toldOpen || !k.functions(p.function).GetRunsAhead() {
		return false
	}
	switch {
	case p.gate.GetOpen() != "":
		p.open = p.gate.GetOpen()
	case p.phase != nodeapi.Phase_PHASE_READY || p.closed || p.held != "":
		return false
	case p.open == "":
		p.open = "its pod was started before this node had heard of that; start the pod again"
	}
	p.toldOpen = true
	return true
}

// closed notes whether a sandbox is closed, for a later daemon; the caller holds mu.
func (k *Kubelet) closed(in *instance, container string) {
	if !in.closed {
		container = ""
	}
	if err := k.tree.write(in.id, gatedName, []byte(container)); err != nil {
		in.closed = false
		k.config.Log.Error("a pod works on requests in their turn only", "instance", in.id, "error", err)
	}
}

// noted is the container for which a pod's sandbox is closed; empty: it is not.
func (k *Kubelet) noted(id string) string {
	b, err := k.tree.read(id, gatedName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.config.Log.Error("what is noted of a pod cannot be read", "instance", id, "error", err)
	}
	return string(b)
}

// adoptGated takes over the pods whose sandboxes are closed, when no other daemon has them any more: their programs may be at work on
// something before its turn, of which nobody knows then. They are replaced.
func (k *Kubelet) adoptGated() {
	if len(k.gated) == 0 {
		return
	}
	k.wg.Go(func() {
		if k.config.Alone != nil {
			select {
			case <-k.config.Alone:
			case <-k.ctx.Done():
				return
			}
		}
		k.mu.Lock()
		var all []string
		for id := range k.gated {
			all = append(all, id)
		}
		k.mu.Unlock()
		for _, id := range all {
			if err := k.again(id); err != nil {
				k.config.Log.Warn("a pod goes without what it had", "instance", id, "error", err)
			}
			k.stop(id)
		}
	})
}

// replace has the kubelet start an instance's program again.
func (k *Kubelet) replace(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pods[id]
	if p == nil || k.ctx.Err() != nil {
		return
	}
	if p.held = p.gate.GetContainer(); p.held == "" {
		p.held = k.noted(id)
	}
	p.stopProbing()
	p.probed, p.renewed = false, true
	if p.phase == nodeapi.Phase_PHASE_READY {
		p.phase = nodeapi.Phase_PHASE_STARTING
	}
	p.notify()
	k.serve(p.instance)
	k.wg.Go(func() { k.stop(id) })
}

// stop ends the program for which a pod's sandbox is closed.
func (k *Kubelet) stop(id string) {
	ctx, cancel := context.WithTimeout(k.ctx, stopTimeout)
	defer cancel()
	err := k.config.Stop(ctx, id)
	k.mu.Lock()
	known := k.pods[id] != nil
	k.mu.Unlock()
	if err != nil && known && k.ctx.Err() == nil {
		k.config.Log.Error("a program that is to be replaced goes on, and gets no requests", "instance", id, "error", err)
	}
}

// remade notes that a pod's container is being made, perhaps once more.
func (k *Kubelet) remade(id, container string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gated[id] == container {
		delete(k.gated, id)
	}
	p := k.pods[id]
	if p == nil || p.held != container && p.gate.GetContainer() != container {
		return
	}
	p.held, p.withdrawn, p.closed = "", false, false
	p.notify()
	if p.renewed && k.ctx.Err() == nil {
		k.wg.Go(func() { k.believe(p) })
	}
	k.serve(p.instance)
	k.probe(p)
}

// believe has what the control plane says of a pod's readiness count after a while, if it does not say that the pod was not ready meanwhile.
func (k *Kubelet) believe(p *pod) {
	t := time.NewTimer(renewedMost)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.ctx.Done():
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.renewed && p.held == "" && p.failure == nil {
		p.renewed, p.phase = false, nodeapi.Phase_PHASE_READY
		p.notify()
		k.serve(p.instance)
	}
}
