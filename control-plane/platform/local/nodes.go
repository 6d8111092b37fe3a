package local

import (
	"maps"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// NodeJoined takes over what the node says it runs; what nobody needs is stopped.
func (p *Platform) NodeJoined(node string, statuses []*nodeapi.InstanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, node)
	runs := map[string]bool{}
	for _, s := range statuses {
		runs[s.GetId()] = true
		if in, known := p.instances[s.GetId()]; known && in.Phase == platform.Stopping {
			// The node was away when it was to stop this one, or still is to.
			p.drainLater(in)
		}
		if _, known := p.instances[s.GetId()]; !known {
			if _, wanted := p.functions[s.GetFunction()]; !wanted || p.usable(s.GetFunction(), []string{node}) != nil {
				p.stop(node, s.GetId(), 0)
				continue
			}
			p.instances[s.GetId()] = &platform.Instance{ID: s.GetId(), Function: s.GetFunction(), Node: node, Phase: platform.Starting}
			p.activity.touch(s.GetFunction())
		}
		p.apply(node, s)
	}
	for id, in := range p.instances {
		if in.Node == node && !runs[id] {
			delete(p.instances, id)
		}
	}
	known := p.awaited[node]
	if delete(p.awaited, node); known && len(p.awaited) == 0 {
		p.recover()
	}
	if !known {
		if err := p.save(p.functions); err != nil {
			p.log.Error("a node could not be written down; a restart will not wait for it", "node", node, "error", err)
		}
	}
	p.changed()
}

// recover ends the wait for the nodes from before a restart; the caller holds mu.
func (p *Platform) recover() {
	select {
	case <-p.recovered:
	default:
		clear(p.awaited)
		close(p.recovered)
	}
}

// Recovered is closed when State can be believed: right away on a first start, else
// when the nodes from before have told what runs, or have had their time to.
func (p *Platform) Recovered() <-chan struct{} { return p.recovered }

// NodeLeft remembers since when the node's instances are out of reach. They may go on
// serving, so they stay in State for a while.
func (p *Platform) NodeLeft(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[node] = time.Now()
	p.activity.report("node/"+node, nil)
}

// InstanceChanged takes a node's word on one of its instances.
func (p *Platform) InstanceChanged(node string, s *nodeapi.InstanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(node, s)
	p.changed()
}

// apply takes a node's word; the caller holds mu.
func (p *Platform) apply(node string, s *nodeapi.InstanceStatus) {
	in, ok := p.instances[s.GetId()]
	if !ok || in.Node != node {
		return
	}
	switch s.GetPhase() {
	case nodeapi.Phase_PHASE_READY:
		in.Address = s.GetAddress()
		if in.Phase == platform.Starting {
			in.Phase = platform.Ready
			p.activity.touch(in.Function)
		}
	case nodeapi.Phase_PHASE_FAILED, nodeapi.Phase_PHASE_STOPPED:
		delete(p.instances, in.ID)
	}
	if s.GetReason() != "" {
		p.events.Add(in.Function, event.Event{Reason: s.GetReason(), Message: s.GetMessage(), Field: s.GetField(), Node: node})
	}
}

// Load takes a node's word on the requests that it holds or delivers.
func (p *Platform) Load(node string, inFlight map[string]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	busy := make(map[string]uint64, len(inFlight))
	for f, n := range inFlight {
		busy[f] = uint64(max(n, 0))
	}
	p.activity.report("node/"+node, busy)
}

// Routed takes a gateway's word on the requests that it sent straight to instances:
// under way now, or begun since its last report.
func (p *Platform) Routed(gateway string, busy map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.activity.report("gateway/"+gateway, busy)
}

// knownNodes are those that a restarted control plane should wait for.
func (p *Platform) knownNodes() []string {
	names := map[string]bool{}
	for _, n := range p.nodes.Names() {
		names[n] = true
	}
	for n := range p.awaited {
		names[n] = true
	}
	return slices.Collect(maps.Keys(names))
}
