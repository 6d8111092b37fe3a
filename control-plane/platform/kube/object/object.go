// Package object is what the control plane keeps of a cluster's objects: of each the few
// fields that it looks at, so that its memory stays small in a large cluster. Each type
// has a function that makes it of what the API server sends.
package object

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// identity is what tells an object from others, and from its own earlier versions.
func identity(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		CreationTimestamp: o.GetCreationTimestamp()}
}

// annotations keeps those of Headstart's domain.
func annotations(all map[string]string) map[string]string {
	var ours map[string]string
	for key, value := range all {
		if !policy.InDomain(key) {
			continue
		}
		if ours == nil {
			ours = map[string]string{}
		}
		ours[key] = value
	}
	return ours
}

// otherKind says that the API server sent something else than it was asked for.
func otherKind(got any, want string) error { return fmt.Errorf("got a %T, want a %s", got, want) }

// Service is a Kubernetes Service.
type Service struct {
	metav1.ObjectMeta // with Headstart's annotations only
	// Knative: one of Knative's controllers made it.
	Knative   bool
	External  bool   // of type ExternalName
	ClusterIP string // empty or None: it has none
	Selector  map[string]string
	Ports     []corev1.ServicePort
}

// KnativeGroups begin the API versions of the objects that Knative makes Services for. These Services have the annotations of
// revisions, and are no functions of their own.
var KnativeGroups = []string{"serving.knative.dev/", "networking.internal.knative.dev/"}

// ServiceOf reads a *corev1.Service.
func ServiceOf(o any) (*Service, error) {
	switch s := o.(type) {
	case *Service:
		return s, nil
	case *corev1.Service:
		kept := &Service{ObjectMeta: identity(s), ClusterIP: s.Spec.ClusterIP, External: s.Spec.Type == corev1.ServiceTypeExternalName}
		kept.Annotations = annotations(s.Annotations)
		if owner := metav1.GetControllerOf(s); owner != nil {
			for _, group := range KnativeGroups {
				kept.Knative = kept.Knative || strings.HasPrefix(owner.APIVersion, group)
			}
		}
		if kept.Annotations != nil || kept.Knative {
			kept.Selector, kept.Ports = s.Spec.Selector, s.Spec.Ports
		}
		return kept, nil
	}
	return nil, otherKind(o, "Service")
}

// Node is a Kubernetes Node.
type Node struct {
	metav1.ObjectMeta
	// Ready is the kubelet's word, Lost that there has been none for so long that the
	// cluster has given it up.
	Ready, Lost bool
}

// NodeOf reads a *corev1.Node.
func NodeOf(o any) (*Node, error) {
	switch n := o.(type) {
	case *Node:
		return n, nil
	case *corev1.Node:
		kept := &Node{ObjectMeta: identity(n), Lost: true}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				kept.Ready, kept.Lost = c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionUnknown
			}
		}
		return kept, nil
	}
	return nil, otherKind(o, "Node")
}
