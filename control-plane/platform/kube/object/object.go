// Package object is what the control plane keeps of a cluster's objects: of each the few
// fields that it looks at, so that its memory stays small in a large cluster. Each type
// has a function that makes it of what the API server sends.
package object

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/workflow"
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

// Workflow is a Workflow of headstart.dev/v1alpha1.
type Workflow struct {
	metav1.ObjectMeta
	// Compiled is the workflow as platform.Function has it, nil if it is Wrong: for this reason.
	Compiled []byte
	Timeout  time.Duration // 0: none is said
	Wrong    string
	// Said is its condition Ready, as the object has it: the generation that it is of, and Wrong as it was then. Ready is
	// empty if the object has none.
	SaidOf int64
	Ready  string
	Said   string
}

// WorkflowOf reads an unstructured Workflow.
func WorkflowOf(o any) (*Workflow, error) {
	switch w := o.(type) {
	case *Workflow:
		return w, nil
	case *unstructured.Unstructured:
		kept := &Workflow{ObjectMeta: identity(w)}
		kept.Generation = w.GetGeneration()
		kept.Compiled, kept.Timeout, kept.Wrong = compiled(w.Object["spec"])
		conditions, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions") // of another type is as good as absent
		for _, item := range conditions {
			var c metav1.Condition
			if into(item, &c) == nil && c.Type == ConditionReady {
				kept.SaidOf, kept.Ready, kept.Said = c.ObservedGeneration, string(c.Status), c.Message
			}
		}
		return kept, nil
	}
	return nil, otherKind(o, "Workflow")
}

// ConditionReady is the type of the condition that says whether a workflow can be run.
const ConditionReady = "Ready"

// compiled compiles a workflow's document; wrong is for its author.
func compiled(spec any) (of []byte, timeout time.Duration, wrong string) {
	document, err := json.Marshal(spec)
	if err != nil {
		return nil, 0, err.Error()
	}
	w, err := workflow.Compile(document)
	if err != nil {
		return nil, 0, err.Error()
	}
	if of, err = (proto.MarshalOptions{Deterministic: true}).Marshal(w); err != nil {
		return nil, 0, err.Error()
	}
	return of, w.GetTimeout().AsDuration(), ""
}

// Node is a Kubernetes Node.
type Node struct {
	metav1.ObjectMeta
	// Ready is the kubelet's word, Lost that there has been none for so long that the
	// cluster has given it up.
	Ready, Lost bool
	// Drifted: see Drifted.
	Drifted bool
}

// The label of nodes where the installer has tried a sandbox, and the name of its runtime.
const (
	nodeLabel, nodeReady = "headstart.dev/node", "ready"
	runtimeHandler       = "headstart"
)

// Drifted tells whether a node's container runtime has lost the runtime that the installer has put there: somebody has written
// its configuration since. Kubelets say which runtimes there are from Kubernetes 1.31 and containerd 2.0 on; of others it is not known.
func Drifted(n *corev1.Node) bool {
	return n.Labels[nodeLabel] == nodeReady && len(n.Status.RuntimeHandlers) > 0 &&
		!slices.ContainsFunc(n.Status.RuntimeHandlers, func(h corev1.NodeRuntimeHandler) bool { return h.Name == runtimeHandler })
}

// NodeOf reads a *corev1.Node.
func NodeOf(o any) (*Node, error) {
	switch n := o.(type) {
	case *Node:
		return n, nil
	case *corev1.Node:
		kept := &Node{ObjectMeta: identity(n), Lost: true, Drifted: Drifted(n)}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				kept.Ready, kept.Lost = c.Status == corev1.ConditionTrue, c.Status == corev1.ConditionUnknown
			}
		}
		return kept, nil
	}
	return nil, otherKind(o, "Node")
}
