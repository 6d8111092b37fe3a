package kube

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

const (
	reasonDestinationNotGranted = "DestinationNotGranted"
	// knativePort is the name of the port in the container that a revision's requests end in.
	knativePort = "user-port"
)

// withoutConnections are the annotations that a pod cannot start without.
func withoutConnections(annotations map[string]string) map[string]string {
	rest := maps.Clone(annotations)
	delete(rest, policy.KeyConnections)
	delete(rest, policy.KeyConnectionsBy)
	return rest
}

// renote looks again at whose the pods of a namespace with connections are; the caller holds mu.
func (p *Platform) renote(namespace string) {
	for _, pod := range p.mirrors.pods.Of(namespace) {
		if pod.Annotations[policy.KeyConnections] != "" {
			p.noteOwn(pod, pod)
		}
	}
}

// connectionsOf are what the pod's node is told of its connections, nil if it asks for none. Wrong annotations keep no
// container from starting. The caller holds mu.
func (p *Platform) connectionsOf(pod *object.Pod) (*nodeapi.Connections, refusal) {
	if pod.Annotations[policy.KeyConnections] == "" || !p.open {
		return nil, refusal{}
	}
	function, container := p.connected(pod)
	given := map[string]string{policy.KeyConnections: pod.Annotations[policy.KeyConnections]}
	if by, says := pod.Annotations[policy.KeyConnectionsBy]; says {
		given[policy.KeyConnectionsBy] = by
	}
	asked, err := policy.ParseJob(given, nil, p.destinations.For(pod.Namespace))
	if err != nil {
		return &nodeapi.Connections{Id: podID(pod)}, p.refusalOf(pod, function, err) // so that nobody waits for them
	}
	return asked.Connections.Message(podID(pod), cmp.Or(function, pod.Namespace+"/"+pod.Name), container), refusal{}
}

// connected are the function that the pod is of, empty for none, and the name of the container with the function's port, else
// of the pod's main one. Of several functions it is the first by name whose port a container has. The caller holds mu.
func (p *Platform) connected(pod *object.Pod) (function, container string) {
	main := pod.Main
	if pod.Annotations[policy.KeyInput] != "" {
		return "", main // a job
	}
	inside := p.inside[pod.Namespace]
	for _, name := range slices.Sorted(maps.Keys(inside)) {
		f := inside[name]
		target := f.Target
		switch {
		case f.Withdrawn:
			continue
		case f.Relay != nil && pod.Labels[knativeRevision] == f.Revision:
			target = intstr.FromString(knativePort)
		case !catalog.Matches(f.Selector, pod.Labels):
			continue
		}
		if c, ok := pod.ContainerWith(target); ok {
			return name, c
		}
		function = cmp.Or(function, name)
	}
	return function, main
}

// refusal is what is wrong with a pod's connections.
type refusal struct{ function, reason, message, field string }

func (p *Platform) refusalOf(pod *object.Pod, function string, err error) refusal {
	r := refusal{function: function, reason: reasonRefused, message: err.Error(), field: policy.KeyConnections}
	if all, ok := errors.AsType[field.Errors](err); ok {
		r.field = all[0].Field
		if d, known := p.destinations.Get(all[0].Value); known && !d.Grants(pod.Namespace) {
			r.reason, r.message = reasonDestinationNotGranted, notGranted(d, pod.Namespace).Error()
		}
	}
	r.message += "; the container starts without its connections"
	return r
}

// tellRefusal has the function's owner know; the caller holds mu.
func (p *Platform) tellRefusal(pod *object.Pod, r refusal) {
	f := p.functions[r.function]
	if f == nil { // events are about Services
		p.log.Warn("a pod has wrong annotations", "pod", pod.Namespace+"/"+pod.Name, "problem", r.message)
		return
	}
	p.events.Add(r.function, event.Event{Reason: r.reason, Message: r.message, Field: r.field})
	p.report(r.function, f.Relay != nil, r.reason, r.message)
}

func notGranted(d destinations.Destination, namespace string) *field.Error {
	return &field.Error{Field: policy.KeyConnections, Value: d.Name, Problem: "is not for namespace " + namespace,
		Fix: fmt.Sprintf("use another destination, or ask the operator to add %q to the destination's namespaces", namespace)}
}
