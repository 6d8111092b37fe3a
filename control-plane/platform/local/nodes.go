package local

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Reporters of activity: a node's daemon and its gateway.
func nodeReporter(node string) string    { return "node/" + node }
func gatewayReporter(node string) string { return "gateway/" + node }

// NodeJoined takes over what the node says it runs; what nobody needs is stopped.
func (p *Platform) NodeJoined(node string, statuses []*nodeapi.InstanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined[node] = true
	delete(p.left, node)
	runs := map[string]bool{}
	for _, s := range statuses {
		runs[s.GetId()] = true
		switch in, known := p.instances[s.GetId()]; {
		case p.jobs[s.GetId()] != nil:
		case !known:
			p.adopt(node, s)
		case in.Node == node && in.drained: // perhaps the node was away when it was told
			p.stop(node, in.ID)
		}
		p.apply(node, s)
	}
	for id, in := range p.instances {
		if in.Node == node && !runs[id] {
			p.remove(in)
		}
	}
	p.jobsLost(node, func(id string) bool { return !runs[id] })
	known := p.awaited[node]
	if delete(p.awaited, node); known && len(p.awaited) == 0 {
		p.recover()
	}
	if !known {
		p.saveNodes()
	}
	p.changed()
}

// adopt takes over an instance that this control plane has not started, or has given
// up. One that is not the function's to use gets the time to finish what it has in
// hand; the caller holds mu.
func (p *Platform) adopt(node string, s *nodeapi.InstanceStatus) {
	f, ok := p.functions[s.GetFunction()]
	if !ok {
		p.stop(node, s.GetId())
		return
	}
	superfluous := f.Deleting || p.usable(f.Name) != nil || !strings.HasPrefix(s.GetId(), idPrefix(f))
	in := &instance{Instance: platform.Instance{ID: s.GetId(), Function: f.Name, Node: node, Phase: platform.Starting}}
	p.instances[in.ID] = in
	p.activity.touch(f.Name)
	if superfluous {
		p.withdraw(in, f)
	}
}

// recover ends the wait for the nodes from before a restart; the caller holds mu.
func (p *Platform) recover() {
	select {
	case <-p.recovered:
		return
	default:
	}
	if len(p.awaited) > 0 { // they are gone for good, as far as one can tell
		clear(p.awaited)
		p.saveNodes()
	}
	close(p.recovered)
}

// saveNodes writes down which nodes there are; the caller holds mu.
func (p *Platform) saveNodes() {
	if err := p.save(p.functions, p.generation); err != nil {
		p.log.Error("the nodes could not be written down; a restart may not wait for all of them", "error", err)
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
	delete(p.joined, node)
	p.left[node] = time.Now()
	p.activity.report(nodeReporter(node), nil)
}

// InstanceChanged takes a node's word on one of its instances.
func (p *Platform) InstanceChanged(node string, s *nodeapi.InstanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.apply(node, s)
}

// apply takes a node's word; the caller holds mu.
func (p *Platform) apply(node string, s *nodeapi.InstanceStatus) {
	if j := p.jobs[s.GetId()]; j != nil && j.node == node {
		j.apply(s)
		return
	}
	log := nodeapi.LastLines(strings.Join(s.GetLog(), "\n"))
	in, ok := p.instances[s.GetId()]
	if !ok || in.Node != node {
		if len(log) > 0 { // of an instance that ended a moment ago
			p.events.Explain(node, s.GetId(), log)
		}
		return
	}
	if s.GetReason() != "" {
		p.happened(in.Function, event.Event{Reason: s.GetReason(), Message: s.GetMessage(), Field: s.GetField(), Node: node, Instance: in.ID, Log: log})
	}
	switch s.GetPhase() {
	case nodeapi.Phase_PHASE_READY:
		p.ready(in, s.GetAddress())
	case nodeapi.Phase_PHASE_FAILED, nodeapi.Phase_PHASE_STOPPED:
		p.remove(in)
	}
}

// ready gives the instance its address; the caller holds mu.
func (p *Platform) ready(in *instance, address string) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		// The gateways would take no update at all with it.
		p.log.Error("a node names no address of an instance; it is withdrawn", "instance", in.ID, "node", in.Node, "error", err)
		if in.Phase != platform.Stopping {
			p.withdraw(in, p.functions[in.Function])
		}
		return
	}
	in.Address = address
	if in.Phase == platform.Starting {
		in.Phase = platform.Ready
		p.activity.touch(in.Function)
	}
	p.changed()
}

// Event records what a node tells of a function.
func (p *Platform) Event(function string, e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.happened(function, e)
}

// happened keeps the events of what is deployed; the caller holds mu.
func (p *Platform) happened(function string, e event.Event) {
	if _, ok := p.deployed(function); ok {
		p.events.Add(function, e)
	}
}

// Load takes a node's word on the requests that it holds or delivers.
func (p *Platform) Load(node string, inFlight map[string]int32) {
	busy := make(map[string]uint64, len(inFlight))
	for f, n := range inFlight {
		busy[f] = uint64(max(n, 0))
	}
	p.report(nodeReporter(node), busy)
}

// Routed takes a gateway's word on the requests that it sent straight to instances:
// under way now, or begun since its last report.
func (p *Platform) Routed(gateway string, busy map[string]uint64) {
	p.report(gatewayReporter(gateway), busy)
}

func (p *Platform) report(reporter string, busy map[string]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(busy, func(f string, _ uint64) bool { _, ok := p.functions[f]; return !ok })
	p.activity.report(reporter, busy)
}

// knownNodes are those that a restarted control plane should wait for; the caller holds
// mu.
func (p *Platform) knownNodes() []string {
	names := maps.Clone(p.joined)
	maps.Copy(names, p.awaited)
	return slices.Collect(maps.Keys(names))
}
