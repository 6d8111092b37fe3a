package kube

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

// senders are the pods of a node that requests can come from to its daemon.
type senders struct {
	gateways int
	callers  map[string]int // by namespace: those with a socket
}

// noteSender counts a pod that has come, by 1, or gone, by -1; mu is held. Who has taken a node over can
// make mirror pods there, of any namespace, and no others.
func (p *Platform) noteSender(pod *object.Pod, by int) {
	if pod == nil || pod.Node == "" || pod.Ended || pod.Mirror || !pod.Gateway && pod.RuntimeClass != object.RuntimeClass {
		return
	}
	s := p.senders[pod.Node]
	if s == nil {
		s = &senders{callers: map[string]int{}}
		p.senders[pod.Node] = s
	}
	if pod.Gateway {
		s.gateways += by
	}
	if pod.RuntimeClass == object.RuntimeClass {
		if s.callers[pod.Namespace] += by; s.callers[pod.Namespace] == 0 {
			delete(s.callers, pod.Namespace)
		}
	}
	if s.gateways == 0 && len(s.callers) == 0 {
		delete(p.senders, pod.Node)
	}
}

// maySend tells whether a request for the function can have come to the node: from a gateway, from a pod
// whose namespace the function lets call, or from the function's stream; mu is held.
func (p *Platform) maySend(node string, f *function) bool {
	s := p.senders[node]
	if f.Policy.Trigger != "" || s != nil && s.gateways > 0 {
		return true
	}
	if s != nil {
		for namespace := range s.callers {
			if f.Admits(namespace) {
				return true
			}
		}
	}
	return false
}

// namespaces are sets of namespaces, by a key.
type namespaces map[string]map[string]bool

func (n namespaces) add(by, namespace string) {
	if n[by] == nil {
		n[by] = map[string]bool{}
	}
	n[by][namespace] = true
}

// Tenants are, by node, the namespaces whose functions may be on it, or may be called from there, sorted: it may have
// their inputs. Pods that the node itself can have made do not count. Streams do not either: a node that only consumes
// one has its inputs from the store.
func (p *Platform) Tenants() map[string][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	sets := namespaces{}   // by node
	called := namespaces{} // by the namespace of pods that may call them
	for _, f := range p.functions {
		own, _, _ := strings.Cut(f.Name, "/")
		for _, in := range f.instances {
			if !in.mirror {
				sets.add(in.Node, own)
			}
		}
		called.add(own, own)
		for _, namespace := range f.Policy.CallerNamespaces() {
			called.add(namespace, own)
		}
	}
	for node, s := range p.senders {
		if s.gateways > 0 {
			sets.add(node, capability.AllNamespaces)
			continue
		}
		for namespace := range s.callers {
			for own := range called[namespace] {
				sets.add(node, own)
			}
		}
	}
	for _, own := range p.own {
		if !own.mirror {
			sets.add(own.node, own.namespace)
		}
	}
	tenants := make(map[string][]string, len(sets))
	for node, set := range sets {
		if tenants[node] = slices.Sorted(maps.Keys(set)); set[capability.AllNamespaces] {
			tenants[node] = []string{capability.AllNamespaces}
		}
	}
	return tenants
}

func notFrom(r platform.Request) *platform.Refusal {
	return refuse(http.StatusForbidden, reasonNodeNotAllowed, fmt.Sprintf(
		"node %s has no gateway of Headstart's, and no pod that may call the function", r.Node))
}
