package kube

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// instance is a pod with a node, as one function sees it.
type instance struct {
	platform.Instance
	failure *object.Failure // why it does not come up
	sound   bool            // its node is ready, or its daemon says so by being connected
	ready   bool            // also if it is withdrawn
	ending  bool            // it has been told to end
	mirror  bool            // the node itself can have made it
	gate    *gate           // nil: the function does not run ahead
}

// podID is an instance's id: the pod as the kubelet names its log directory.
func podID(pod *object.Pod) string {
	return pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
}

// podChanged looks at the pod as a job, and at the functions that select it; mu is held.
func (p *Platform) podChanged(before, now *object.Pod) {
	p.noteOwn(before, now)
	p.noteSender(before, -1)
	p.noteSender(now, 1)
	if !p.open {
		return
	}
	for _, pod := range []*object.Pod{before, now} {
		if pod == nil || pod == now && before != nil && maps.Equal(before.Labels, now.Labels) {
			continue
		}
		for _, f := range p.inside[pod.Namespace] {
			if catalog.Matches(f.Selector, pod.Labels) {
				p.refresh(f)
			}
		}
	}
}

// nodeChanged looks at all functions when a node comes, goes, or changes its state; mu is
// held.
func (p *Platform) nodeChanged(before, now *object.Node) {
	if now == nil {
		p.gone[before.Name] = time.Now()
	} else {
		delete(p.gone, now.Name)
	}
	if !p.open || before != nil && now != nil && before.Ready == now.Ready && before.Lost == now.Lost {
		return
	}
	for _, f := range p.functions {
		p.refresh(f)
	}
}

// endpointsChanged looks at the functions of Knative's; mu is held.
func (p *Platform) endpointsChanged(before, now *object.Endpoints) {
	for _, e := range []*object.Endpoints{before, now} {
		if e == nil || !p.open {
			continue
		}
		for _, f := range p.inside[e.Namespace] {
			if f.Relay != nil && f.Revision == e.Service {
				p.refresh(f)
			}
		}
	}
}

// refreshAll looks at all functions of a workload; the caller holds mu.
func (p *Platform) refreshAll(w *workload) {
	for _, f := range w.functions {
		p.refresh(f)
	}
}

// refresh looks at the function's instances anew; the caller holds mu.
func (p *Platform) refresh(f *function) {
	defer f.wake()
	namespace, _, _ := strings.Cut(f.Name, "/")
	if f.Relay != nil {
		if endpoints := p.endpointsOf(namespace, f); !slices.Equal(f.endpoints, endpoints) {
			f.endpoints = endpoints
			p.changed()
		}
		return
	}
	var instances []*instance
	f.pending, f.lost = nil, 0
	for _, pod := range p.mirrors.pods.Of(namespace) {
		switch {
		case pod.Ended || !catalog.Matches(f.Selector, pod.Labels):
		case pod.Node == "":
			if !pod.Terminating() {
				f.pending = append(f.pending, pod)
			}
		default:
			if in := p.instanceOf(f, pod); in != nil {
				instances = append(instances, in)
			} else if p.unheard(pod.Node) {
				f.pending = append(f.pending, pod)
			} else if !pod.Terminating() {
				f.lost++
			}
		}
	}
	slices.SortFunc(instances, func(a, b *instance) int { return cmp.Compare(a.ID, b.ID) })
	if !slices.EqualFunc(f.instances, instances, func(a, b *instance) bool { return reflect.DeepEqual(a, b) }) {
		p.noteReadiness(f, instances)
		f.instances = instances
		p.changed()
	}
}

// noteReadiness begins the idle window of instances that have become ready; the caller
// holds mu.
func (p *Platform) noteReadiness(f *function, instances []*instance) {
	for _, in := range instances {
		if in.Phase == platform.Ready && !slices.ContainsFunc(f.instances, func(old *instance) bool { return old.ID == in.ID && old.Phase == platform.Ready }) {
			p.activity.Touch(f.Name)
		}
	}
}

// instanceOf is the pod as an instance of the function, nil if its node is lost; the
// caller holds mu.
//
// That the cluster has no word of a node is not enough for that: an API server that was
// away comes back with all nodes unheard of for a minute, and takes no pod out of any
// Service then. With a node that is really lost, its pods are made not ready, and its
// daemon's connection ends.
func (p *Platform) instanceOf(f *function, pod *object.Pod) *instance {
	node := p.mirrors.nodes.Get("", pod.Node)
	if node == nil || node.Lost && !pod.Ready && !p.joined[pod.Node] {
		return nil
	}
	in := &instance{failure: pod.Failure, sound: node.Ready || node.Lost && p.joined[pod.Node], ready: pod.Ready, ending: pod.Terminating(), mirror: pod.Mirror, Instance: platform.Instance{
		ID: podID(pod), Function: f.Name, Node: pod.Node, Phase: platform.Starting, Address: address(pod, f.Target)}}
	if pod.MeshTLS {
		in.MeshSNI = fmt.Sprintf("outbound_.%d_._.%s", f.ServicePort, f.Service)
	}
	if f.Policy.RunsAhead {
		in.gate = p.gateOf(f, pod)
	}
	switch {
	case pod.Terminating() || f.workload != nil && p.withdrawn(f.workload, string(pod.UID)):
		in.Phase = platform.Stopping
	case pod.Ready && in.Address.IsValid():
		in.Phase = platform.Ready
	}
	return in
}

// unheard says that the watch of nodes has not told of this one yet, as it may lag behind
// that of pods; the caller holds mu.
func (p *Platform) unheard(node string) bool {
	_, gone := p.gone[node]
	return !gone && p.mirrors.nodes.Get("", node) == nil
}

// withdrawn says that the workload's pod is not to be used any more; the caller holds mu.
func (p *Platform) withdrawn(w *workload, uid string) bool {
	_, doomed := w.doomed[uid]
	return w.down != nil || doomed || p.current(w).Replicas == 0
}

// address is where the pod takes the function's requests, if that is known.
func address(pod *object.Pod, target intstr.IntOrString) netip.AddrPort {
	return addressOf(pod.IP, portOf(pod, target))
}

// portOf is the port in the pod that a Service means; 0: the pod has none of that name.
func portOf(pod *object.Pod, target intstr.IntOrString) int32 {
	if target.Type == intstr.String {
		return pod.Ports[target.StrVal]
	}
	return target.IntVal
}

// addressOf is zero unless both are known.
func addressOf(ip netip.Addr, port int32) netip.AddrPort {
	if !ip.IsValid() || port <= 0 || port > math.MaxUint16 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(port))
}

// endpointsOf are where a function of Knative's takes requests: its pods, or the activator
// while Knative has that in their way; the caller holds mu.
func (p *Platform) endpointsOf(namespace string, f *function) []platform.Endpoint {
	var all []platform.Endpoint
	for _, slice := range p.mirrors.endpoints.Of(namespace) {
		if slice.Service != f.Revision {
			continue
		}
		for _, e := range slice.Ready {
			at := addressOf(e.IP, slice.Port)
			if !at.IsValid() {
				continue
			}
			pod := p.mirrors.pods.Get(e.PodNamespace, e.Pod)
			all = append(all, platform.Endpoint{Function: f.Name, Address: at,
				Node: e.Node, MeshTLS: pod != nil && pod.MeshTLS, Relay: e.PodNamespace != namespace})
		}
	}
	slices.SortFunc(all, func(a, b platform.Endpoint) int { return a.Address.Compare(b.Address) })
	return slices.CompactFunc(all, func(a, b platform.Endpoint) bool { return a.Address == b.Address })
}
