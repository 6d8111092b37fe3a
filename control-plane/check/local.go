package check

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// What all objects of manifests bear.
const (
	partOf   = "app.kubernetes.io/part-of"
	partOfUs = "headstart"
)

// lookLocalGateways looks for nodes whose callers get no answer: Kubernetes drops what is for
// a Service with internalTrafficPolicy Local where no pod of it is ready.
func lookLocalGateways(ctx context.Context, l *look) Outcome {
	pods, err := l.gatewayPods(ctx)
	if err != nil {
		return unknown("the gateways", err)
	}
	services, err := objects.List[corev1.Service](ctx, l.Objects, objects.Services, "", "")
	if err != nil {
		return unknown("Services", err)
	}
	nodes, err := l.nodes(ctx)
	if err != nil {
		return unknown("the nodes", err)
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), keepsAway)
	var problems []Problem
	local := 0
	for _, s := range services {
		at, ok := localTo(s, pods)
		if !ok {
			continue
		}
		local++
		for _, n := range nodes {
			if !at[n.Name] {
				problems = append(problems, Problem{Object: "Node " + n.Name, Message: fmt.Sprintf(
					"it has no gateway of Service %s/%s that is ready: its pods get no answer there", s.Namespace, s.Name)})
			}
		}
	}
	switch {
	case local == 0:
		return pass("no gateway's Service has internalTrafficPolicy Local: callers use any gateway")
	case len(problems) > 0:
		return warn("callers on some nodes reach no gateway").with(problems)
	}
	return pass("%d of %d nodes have one of their own", len(nodes), len(nodes))
}

// localTo says on which nodes a Service has gateways that are ready. ok is false if it is no
// Service of gateways, or takes callers to those of any node.
func localTo(s corev1.Service, gateways []corev1.Pod) (at map[string]bool, ok bool) {
	policy := s.Spec.InternalTrafficPolicy
	if policy == nil || *policy != corev1.ServiceInternalTrafficPolicyLocal || len(s.Spec.Selector) == 0 {
		return nil, false
	}
	selector := labels.SelectorFromSet(s.Spec.Selector)
	at, ok = map[string]bool{}, s.Labels[partOf] == partOfUs
	for _, p := range gateways {
		if p.Namespace == s.Namespace && selector.Matches(labels.Set(p.Labels)) {
			ok = true
			at[p.Spec.NodeName] = at[p.Spec.NodeName] || podReady(p)
		}
	}
	return at, ok
}

// keepsAway says whether the node has a taint that keeps pods away, as the API server's has.
func keepsAway(n corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	})
}
