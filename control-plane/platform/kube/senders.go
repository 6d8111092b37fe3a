package kube

import (
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// senders are the pods of a node that requests can come from to its daemon.
type senders struct {
	gateways int
	callers  map[string]int // by namespace: those with a socket
}

// noteSender counts a pod that has come, by 1, or gone, by -1; mu is held. Who has taken a node over can
// make mirror pods there, of any namespace, and no others.
func (p *Platform) noteSender(pod *object.Pod, by int) {
	if pod == nil || pod.Node == "" || pod.Ended || pod.Mirror || !pod.Gateway && pod.RuntimeClass != runtimeClass {
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
	if pod.RuntimeClass == runtimeClass {
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

func notFrom(r platform.Request) *platform.Refusal {
	return refuse(http.StatusForbidden, reasonNodeNotAllowed, fmt.Sprintf(
		"node %s has no gateway of Headstart's, and no pod that may call the function", r.Node))
}
