package kube

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// ownScaler is the Scaler of functions that this platform scales itself.
const ownScaler = "Headstart"

// About is what an operator asks of a function beyond its State.
type About struct {
	Workload string // kind and name of what has its pods; empty: nothing, or several
	Scaler   string // who scales that: Headstart itself, another autoscaler, or empty for nobody
	// Instances are those of a function of Knative's, which State does not have: requests
	// find their way to them by Knative.
	Instances []platform.Instance
	// Connections are the destinations of those of its pods that have a node.
	Connections []string
}

// About returns what is known of a function, nothing of one that is none.
func (p *Platform) About(name string) About {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.deployed(name)
	if f == nil {
		return About{}
	}
	a := About{Scaler: f.scaler()}
	if f.workload != nil {
		a.Workload = f.workload.kind + " " + f.workload.name
	}
	switch {
	case f.workload == nil || !f.workload.wakes:
	case a.Scaler == "":
		a.Scaler = ownScaler
	default:
		a.Scaler = ownScaler + ", " + a.Scaler
	}
	for _, pod := range p.revisionPods(f) {
		in := platform.Instance{ID: podID(pod), Function: f.Name, Node: pod.Node, Phase: platform.Starting, Address: address(pod, intstr.FromInt32(f.Port))}
		switch {
		case pod.Terminating():
			in.Phase = platform.Stopping
		case pod.Ready:
			in.Phase = platform.Ready
		}
		a.Instances = append(a.Instances, in)
	}
	for _, own := range p.own {
		if own.connections.GetName() == name {
			a.Connections = append(a.Connections, own.connections.GetDestinations()...)
		}
	}
	slices.Sort(a.Connections)
	a.Connections = slices.Compact(a.Connections)
	slices.SortFunc(a.Instances, func(a, b platform.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return a
}

// revisionPods are the pods with a node of a function of Knative's; the caller holds mu.
func (p *Platform) revisionPods(f *function) []*object.Pod {
	if f.Relay == nil {
		return nil
	}
	var pods []*object.Pod
	namespace, _, _ := strings.Cut(f.Name, "/")
	for _, pod := range p.mirrors.pods.Of(namespace) {
		if pod.Labels[knativeRevision] == f.Revision && !pod.Ended && pod.Node != "" {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Refused are the names of those that run as if they had not opted in, because of what
// their events say; sorted.
func (p *Platform) Refused() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, problems := range p.problems {
		for _, problem := range problems {
			if problem.Refused && p.deployed(problem.Function) == nil {
				names = append(names, problem.Function)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
