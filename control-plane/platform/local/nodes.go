package local

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// NodeJoined takes over what the node says it runs; what nobody needs is stopped.
func (p *Platform) NodeJoined(node string, statuses []*nodeapi.InstanceStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined[node] = true
	delete(p.left, node)
	runs := map[string]bool{}
	for _, s := range statuses {
		if hasEnded(s) {
			p.ended(node, s)
			continue
		}
		runs[s.GetId()] = true
		switch in, known := p.instances[s.GetId()]; {
		case p.jobs[s.GetId()] != nil:
		case !known:
			p.adopt(node, s)
		case in.Node == node && in.drained: // perhaps the node was away when it was told
			p.stop(node, in.ID)
		case in.Node == node && in.Phase == platform.Stopping: // likewise
			p.tellWithdrawn(in)
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

func hasEnded(s *nodeapi.InstanceStatus) bool {
	return s.GetPhase() == nodeapi.Phase_PHASE_FAILED || s.GetPhase() == nodeapi.Phase_PHASE_STOPPED
}

// ended takes the word on what ended while the node had no stream. The caller holds mu.
func (p *Platform) ended(node string, s *nodeapi.InstanceStatus) {
	if p.jobs[s.GetId()] == nil && p.instances[s.GetId()] == nil { // it was another control plane's
		p.happened(s.GetFunction(), eventOf(node, s))
		return
	}
	p.apply(node, s)
}

// eventOf is what a status tells the operator.
func eventOf(node string, s *nodeapi.InstanceStatus) event.Event {
	return event.Event{Reason: s.GetReason(), Message: s.GetMessage(), Field: s.GetField(), Node: node, Instance: s.GetId(),
		Log: nodeapi.LastLines(strings.Join(s.GetLog(), "\n"))}
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
	superfluous := f.Deleting || len(p.usable(f.Name)) >= most(f) || !strings.HasPrefix(s.GetId(), idPrefix(f))
	in := &instance{Instance: platform.Instance{ID: s.GetId(), Function: f.Name, Node: node, Phase: platform.Starting}}
	p.instances[in.ID] = in
	p.activity.Touch(f.Name)
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
		for node := range p.awaited {
			p.left[node] = time.Now() // or late
		}
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
// serving, so they stay in State for a while, and its gateway may go on sending requests, so that
// its word on these counts as long.
func (p *Platform) NodeLeft(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.joined, node)
	p.left[node] = time.Now()
}

// NodesAway tells whether nodes have left that may be back at once, with gateways that go on meanwhile.
func (p *Platform) NodesAway() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.left) > 0
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
	e := eventOf(node, s)
	in, ok := p.instances[s.GetId()]
	if !ok || in.Node != node {
		if len(e.Log) > 0 { // of an instance that ended a moment ago
			p.events.Explain(node, s.GetId(), e.Log)
		}
		return
	}
	if e.Reason != "" {
		p.happened(in.Function, e)
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
	at, err := netip.ParseAddrPort(address)
	if err == nil && at.Port() == 0 {
		err = fmt.Errorf("%.64q has no port", address)
	}
	if err != nil {
		// The gateways would take no update at all with it.
		p.log.Error("a node names no address of an instance; it is withdrawn", "instance", in.ID, "node", in.Node, "error", err)
		if in.Phase != platform.Stopping {
			p.withdraw(in, p.functions[in.Function])
		}
		return
	}
	in.Address = at
	if in.Phase == platform.Starting {
		in.Phase = platform.Ready
		p.activity.Touch(in.Function)
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

// Load takes a node's word on the functions in use: by requests that it holds or delivers, and by those
// that its gateway sends straight to instances.
func (p *Platform) Load(node string, inFlight map[string]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	busy := platform.BusyOf(inFlight)
	maps.DeleteFunc(busy, func(f string, _ bool) bool { return !p.known(f) })
	p.activity.Report(node, busy, p.known)
}

// known tells whether there is such a function; the caller holds mu.
func (p *Platform) known(function string) bool {
	_, ok := p.functions[function]
	return ok
}

// knownNodes are those that a restarted control plane should wait for; the caller holds
// mu.
func (p *Platform) knownNodes() []string {
	names := maps.Clone(p.joined)
	maps.Copy(names, p.awaited)
	return slices.Collect(maps.Keys(names))
}
