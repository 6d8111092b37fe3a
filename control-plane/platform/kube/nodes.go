package kube

import (
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// NodeJoined says that a node's daemon is connected.
func (p *Platform) NodeJoined(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined[node] = true
	delete(p.left, node)
	p.lookAgain(node)
}

// NodeLeft says that a node's daemon is away. Its pods go on, and so do the gateway's
// requests to pods, of which nobody hears meanwhile.
func (p *Platform) NodeLeft(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.joined, node)
	p.left[node] = time.Now()
	p.activity.Report(node, nil, p.known)
	p.activity.Pause(0)
	p.lookAgain(node)
}

// lookAgain looks at all functions if it matters for them whether the node's daemon is
// connected; the caller holds mu.
func (p *Platform) lookAgain(node string) {
	n := p.mirrors.nodes.Get("", node)
	if !p.open || n == nil || !n.Lost {
		return
	}
	for _, f := range p.functions {
		p.refresh(f)
	}
}

// Drifted is how many nodes have lost the runtime that the installer has put there.
func (p *Platform) Drifted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, node := range p.mirrors.nodes.Of("") {
		if node.Drifted {
			n++
		}
	}
	return n
}

// Load takes a node's word on the requests that it holds or delivers, and on those that
// its gateway has had since a moment ago.
func (p *Platform) Load(node string, inFlight map[string]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A node may know functions first, and does not repeat what it said.
	p.activity.Report(node, platform.BusyOf(inFlight), p.known)
}

// Event records what a node tells of a function.
func (p *Platform) Event(function string, e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known(function) {
		p.events.Add(function, e)
	}
}

// known says whether there is such a function; the caller holds mu.
func (p *Platform) known(function string) bool { return p.deployed(function) != nil }

// Message is the function as nodes know it. What only a sandbox's maker needs stays out:
// here that is the kubelet.
func Message(f platform.Function) *nodeapi.Function {
	m := &nodeapi.Function{
		Name: f.Name, Generation: f.Generation, Hosts: f.Hosts, Port: f.Port, ProbePath: f.ProbePath,
		PlatformReadiness: f.PlatformReadiness, RequestTimeout: durationpb.New(f.RequestTimeout), Http2: f.HTTP2,
	}
	f.Policy.Tell(m)
	m.Workflow, m.OneAtATime, m.RunsAhead, m.Revision = f.Runs(), f.OneAtATime, f.Policy.RunsAhead, f.Template
	return m
}

// InstancesOf are the instances of the node, for its daemon. A pod that cannot come up is
// FAILED with the reason, as long as it cannot; one that has been told to end is STOPPED,
// and one that is only withdrawn is not: it may be taken back.
func (p *Platform) InstancesOf(node string) *nodeapi.Instances {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &nodeapi.Instances{}
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		for _, in := range p.functions[name].instances {
			if in.Node == node {
				m.Instances = append(m.Instances, in.message())
			}
		}
	}
	p.tellOwn(node, m)
	return m
}

func (in *instance) message() *nodeapi.InstanceStatus {
	s := &nodeapi.InstanceStatus{
		Id: in.ID, Function: in.Function, Phase: nodeapi.Phase_PHASE_STARTING, MeshSni: in.MeshSNI,
	}
	if in.Address.IsValid() {
		s.Address = in.Address.String()
	}
	if in.gate != nil {
		s.Gate = &nodeapi.Gate{Container: in.gate.container, Port: uint32(in.gate.port), Sidecar: in.gate.sidecar, Open: in.gate.open}
	}
	switch {
	case in.ending:
		s.Phase = nodeapi.Phase_PHASE_STOPPED
	case in.ready:
		s.Phase = nodeapi.Phase_PHASE_READY
	case in.failure != nil:
		s.Phase, s.Reason, s.Message = nodeapi.Phase_PHASE_FAILED, in.failure.Reason, in.failure.Message
	}
	return s
}
