package sandboxes

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// gatedName is a file with the name of the container for whose program the pod's sandbox is closed.
	gatedName = "gated"
	// stopTimeout bounds the search for the shim that is to end a program: one looks for a new daemon twice a second.
	stopTimeout = 10 * time.Second
	// stopAgain is how long a program that was killed may take to be made again, until it is killed once more: it may have been about to
	// start. The kubelet waits for up to 5 minutes with one that is killed often.
	stopAgain = 30 * time.Second
	// knownPatience is how long programs are not replaced for want of a control plane.
	knownPatience = 30 * time.Second
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
	if !k.note(in.id, container) {
		in.closed = false
	}
}

// note notes the container for which a pod's sandbox is closed; the caller holds mu.
func (k *Kubelet) note(id, container string) (ok bool) {
	err := k.tree.write(id, gatedName, []byte(container))
	if err != nil {
		k.config.Log.Error("a pod works on requests in their turn only", "instance", id, "error", err)
	}
	return err == nil
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
	for _, id := range slices.Collect(maps.Keys(k.gated)) { // which each of them changes
		k.wg.Go(func() { k.adoptOne(id) })
	}
}

func (k *Kubelet) adoptOne(id string) {
	if k.config.Alone != nil {
		select {
		case <-k.config.Alone:
		case <-k.ctx.Done():
			return
		}
	}
	// Without the control plane's word the sandbox would not be closed when the program is started again.
	known := k.awaitKnown(k.ctx, knownPatience)
	if err := k.again(id); err != nil {
		k.config.Log.Warn("a pod goes without what it had", "instance", id, "error", err)
	}
	k.mu.Lock()
	gone := known && !k.has(id)
	if gone {
		delete(k.gated, id)
	}
	k.mu.Unlock()
	if !gone {
		k.stop(id)
	}
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

// stop ends the program for which a pod's sandbox is closed, until it is made again. Without a shim that listens the sandbox is not closed:
// its program was started while no daemon was there, say.
func (k *Kubelet) stop(id string) {
	for {
		ctx, cancel := context.WithTimeout(k.ctx, stopTimeout)
		err := k.config.Stop(ctx, id)
		cancel()
		if err != nil && k.ctx.Err() == nil {
			k.config.Log.Warn("a program is not replaced, and works on requests in their turn only", "instance", id, "error", err)
			k.believeOpen(id)
			return
		}
		select {
		case <-time.After(stopAgain):
		case <-k.ctx.Done():
			return
		}
		k.mu.Lock()
		p, waits := k.pods[id], k.gated[id] != ""
		held := p != nil && p.held != "" || p == nil && waits && !k.known
		k.mu.Unlock()
		if !held {
			return
		}
	}
}

// believeOpen has a pod take requests in their turn.
func (k *Kubelet) believeOpen(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.note(id, "")
	delete(k.gated, id)
	if p := k.pods[id]; p != nil {
		p.held, p.closed, p.withdrawn, p.renewed, p.phase = "", false, false, false, p.said
		p.notify()
		k.serve(p.instance)
		k.probe(p)
	}
}

// opened has a pod's sandbox be open again whose function may run ahead no more; the caller holds mu.
func (k *Kubelet) opened(p *pod) {
	if p.gate != nil || p.held != "" || k.ctx.Err() != nil || !p.closed {
		return
	}
	p.closed = false
	k.note(p.id, "")
	k.wg.Go(func() {
		ctx, cancel := context.WithTimeout(k.ctx, stopTimeout)
		defer cancel()
		if err := k.config.Open(ctx, p.id); err != nil && k.ctx.Err() == nil {
			k.config.Log.Error("a pod is asked by nobody but this node, until it is started again", "instance", p.id, "error", err)
		}
	})
}

// remade notes that a pod's container is being made, perhaps once more.
func (k *Kubelet) remade(id, container string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.noted(id) == container {
		k.note(id, "") // until it is closed once more
	}
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
		p.renewed, p.phase = false, p.said
		p.notify()
		k.serve(p.instance)
	}
}
