package objects

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Router is the container of Istio's proxy in a gateway's pod: `proxy router` in place of `proxy sidecar`; nil: the pod is none.
func Router(p corev1.Pod) *corev1.Container {
	i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == "istio-proxy" && slices.Contains(c.Args, "router")
	})
	if i < 0 {
		return nil
	}
	return &p.Spec.Containers[i]
}
