package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// sweepTick is how often idleness is looked at: often within the shortest idle window.
	sweepTick = time.Second / 4
	// drainQuiet is how long a workload that is withdrawn must have been without requests
	// before it is scaled to zero: longer than gateways take to hear of it (a second, when
	// a daemon has to connect again) and than the last requests, which they may have begun
	// just before, take to be reported (2 s, and the second between two reports).
	drainQuiet = 4 * time.Second
	// doomedFor is how long the pods of a workload that was scaled to zero are taken as
	// going, although their controller has not told them yet, when it is scaled up again.
	// It may also keep them, if it was not fast enough to notice.
	doomedFor = 5 * time.Second
	// startGrace is how long nodes have to connect after a start, before they are taken as
	// silent because they have nothing to say. Those that have another control plane find this
	// one by its name: name servers remember for half a minute who was there, and daemons ask
	// every 10 s.
	startGrace = 45 * time.Second
	// stillMost is how late a sweep may be: from then on nodes may have taken this control plane
	// for one that hangs (shim/uplink).
	stillMost = time.Second
	// awayMost is how long a daemon that is away keeps the idle windows from running: its
	// gateway's requests are not reported, which does not mean that there are none.
	awayMost = time.Minute
	// goneMost is how long a node that is no more is remembered: its pods go within
	// minutes.
	goneMost = time.Hour
)

// withdrawal is a workload on its way to zero.
type withdrawal struct {
	since time.Time
	asked bool // by an operator: requests that go on do not end it, new activations do
	// committed: the cluster is being told. done: it was; version is what it made of it.
	committed, done bool
	// keeping: its number of replicas is being written; kept is when it was.
	keeping bool
	kept    time.Time
	ended   time.Time
	version string
}

// sweep scales idle workloads to zero, and notes what is wrong with the mirrors.
func (p *Platform) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchMirrors()
	if !p.open {
		return
	}
	p.watchNodes()
	p.watchCharge()
	p.watchItself()
	p.forgetWithdrawn()
	p.judgeAll()
	for _, w := range p.workloads {
		p.forgetDoomed(w)
		switch replicas, _ := p.desired(w); {
		case !p.charge:
			p.takeBack(w) // whoever is in charge now decides anew
		case w.down != nil:
			p.drain(w)
		case w.window > 0 && replicas > 0 && w.up == nil && p.idle(w) >= w.window:
			p.log.Info("withdrawing idle instances", "kind", w.kind, "namespace", w.namespace, "name", w.name, "idle", w.window)
			p.withdraw(w, false)
		}
	}
}

// watchNodes keeps idle windows from running while a daemon is away; the caller holds mu.
func (p *Platform) watchNodes() {
	for node, since := range p.left {
		n := p.mirrors.nodes.Get("", node)
		if n == nil || !n.Ready || time.Since(since) > awayMost {
			delete(p.left, node)
			continue
		}
		p.activity.Pause(0)
	}
	for node, since := range p.gone {
		if time.Since(since) > goneMost {
			delete(p.gone, node)
		}
	}
}

// watchCharge notices when scaling to zero becomes this control plane's. Its nodes may have
// been another's until then, and have to connect first. The caller holds mu.
func (p *Platform) watchCharge() {
	before := p.charge
	if p.charge = p.inCharge(); p.charge && !before {
		p.activity.Pause(startGrace)
	}
}

// watchItself notices that this process has stood still. Nodes have followed another control plane
// then, which does not know what is withdrawn, and what they said is yet to be heard. The caller
// holds mu.
func (p *Platform) watchItself() {
	now := time.Now()
	if !p.swept.IsZero() && now.Sub(p.swept) > stillMost {
		p.activity.Pause(0)
	}
	p.swept = now
}

// idle is how long no function of the workload has had a request; the caller holds mu.
func (p *Platform) idle(w *workload) time.Duration {
	idle := time.Duration(1<<63 - 1)
	for _, f := range w.functions {
		idle = min(idle, p.activity.Idle(f.Name))
	}
	return idle
}

// withdraw takes the workload's instances out of routing; the caller holds mu.
func (p *Platform) withdraw(w *workload, asked bool) {
	w.down = &withdrawal{since: time.Now(), asked: asked}
	p.keepFor(w)
	p.refreshAll(w)
}

// takeBack ends a withdrawal, unless the cluster is being told already; the caller holds
// mu.
func (p *Platform) takeBack(w *workload) {
	if w == nil || w.down == nil || w.down.committed {
		return
	}
	w.down = nil
	p.refreshAll(w)
}

// drain goes on with a withdrawal; the caller holds mu.
func (p *Platform) drain(w *workload) {
	d := w.down
	idle := p.idle(w)
	switch {
	case d.done && time.Since(d.ended) > seenTimeout:
		w.down = nil // the watch has missed it, or somebody has scaled it up in between
		p.refreshAll(w)
	case d.committed:
	case w.window == 0:
		p.takeBack(w) // it is not ours any more
	case !d.asked && idle < time.Since(d.since):
		p.takeBack(w)
	case min(idle, time.Since(d.since)) >= drainQuiet && p.keepFor(w):
		p.commit(w)
	}
}

// commit scales the workload to zero; the caller holds mu.
func (p *Platform) commit(w *workload) {
	if p.life.Err() != nil {
		return
	}
	now := p.current(w)
	if now.Replicas == 0 {
		w.down = nil
		return
	}
	d := w.down
	d.committed = true
	p.background.Go(func() {
		version, err := p.setScale(w.workloadKey, scaleOf(w.workloadKey, now.ResourceVersion, 0), func(replicas int32) bool { return replicas == now.Replicas })
		p.mu.Lock()
		defer p.mu.Unlock()
		p.committed(w, d, version, err)
	})
}

// doom notes which pods go with a scale of zero; the caller holds mu.
func (p *Platform) doom(w *workload) {
	for _, f := range w.functions {
		for _, in := range f.instances {
			w.doomed[in.ID[strings.LastIndexByte(in.ID, '_')+1:]] = time.Now().Add(doomedFor)
		}
	}
}

// committed takes the cluster's answer; the caller holds mu.
func (p *Platform) committed(w *workload, d *withdrawal, version string, err error) {
	if err == nil {
		p.log.Info("scaled to zero", "kind", w.kind, "namespace", w.namespace, "name", w.name)
		d.done, d.ended, d.version = true, time.Now(), version
		if p.current(w).Replicas == 0 { // the watch was faster
			w.down = nil
		}
	} else {
		w.down = nil
		for _, f := range w.functions {
			p.activity.Touch(f.Name) // it is tried again after another idle window
			if !errors.Is(err, errOther) {
				p.events.Add(f.Name, event.Event{Reason: reasonScaleToZeroFailed, Message: fmt.Sprintf("%s %s could not be scaled to zero: %v", w.kind, w.name, err)})
			}
		}
		p.log.Warn("a workload could not be scaled to zero; its instances are used again", "kind", w.kind, "namespace", w.namespace, "name", w.name, "error", err)
	}
	p.refreshAll(w)
}

// forgetDoomed takes pods as kept that are still there; the caller holds mu.
func (p *Platform) forgetDoomed(w *workload) {
	forgotten := false
	for uid, until := range w.doomed {
		if time.Now().After(until) {
			delete(w.doomed, uid)
			forgotten = true
		}
	}
	if !forgotten {
		return
	}
	p.refreshAll(w)
}

// ScaleToZero implements platform.Platform. It also waits for requests under way, however
// long they take.
func (p *Platform) ScaleToZero(_ context.Context, function string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.deployed(function)
	switch {
	case f == nil:
		return refuse(http.StatusNotFound, reasonFunctionUnknown, fmt.Sprintf("function %q is not deployed", function))
	case f.Relay != nil || f.Scaler != "" && !f.ScalesToZero:
		return refuse(http.StatusConflict, reasonScaledByAnother, "another autoscaler has the function: "+f.scaler())
	case f.workload == nil || f.workload.window == 0:
		return &platform.Refusal{Status: http.StatusConflict, Reason: reasonScaleToZeroNotAllowed, Field: policy.KeyScaleToZero,
			Message: "Headstart does not scale the function: add the annotation " + policy.KeyScaleToZero + " to its Service"}
	}
	if replicas, _ := p.desired(f.workload); replicas > 0 && f.workload.down == nil {
		p.withdraw(f.workload, true)
	}
	return nil
}

func (f *function) scaler() string {
	if f.Relay != nil {
		return "Knative"
	}
	return f.Scaler
}
