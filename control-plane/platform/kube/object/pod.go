package object

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// tlsMode is the label by which Istio's injection says that a pod's sidecar takes
	// mutual TLS.
	tlsMode      = "security.istio.io/tlsMode"
	tlsModeIstio = "istio"
	// RuntimeClass is that of the pods whose containers Headstart's shim starts. In others nothing could appear.
	RuntimeClass = "headstart"
	// gatewayDir is what manifests/istio mounts into gateways.
	gatewayDir = "/run/headstart/gateway"
)

// Failure is why a pod's program does not come up, although the pod has a node.
type Failure struct{ Reason, Message string }

// Pod is a Kubernetes Pod.
type Pod struct {
	metav1.ObjectMeta // with its labels, Headstart's annotations, and the times of its creation and deletion
	Node              string
	IP                netip.Addr // zero: not known
	Ready             bool
	Ended             bool // succeeded or failed, for good
	// Unschedulable is the scheduler's message, empty: it has not given up.
	Unschedulable string
	Failure       *Failure
	// RuntimeClass is what its containers are started by, empty: the default.
	RuntimeClass string
	// Ports are the named ports of its containers.
	Ports map[string]int32
	// Containers are all that run on, with their ports; kept of pods that Headstart's shim starts.
	Containers []Container
	// Main is the name of the container that the pod is about: the first, unless the pod says which.
	Main string
	// Gateway: it has the directory of its node with the sockets for gateways.
	Gateway bool
	// Once: its containers are not started again when they end.
	Once bool
	// Mirror: the kubelet made it, for a static pod.
	Mirror bool
	// MeshTLS: it has a sidecar that takes the mesh's mutual TLS.
	MeshTLS bool
}

// Terminating says that the pod has been told to end.
func (p *Pod) Terminating() bool { return p.DeletionTimestamp != nil }

// PodOf reads a *corev1.Pod.
func PodOf(o any) (*Pod, error) {
	switch p := o.(type) {
	case *Pod:
		return p, nil
	case *corev1.Pod:
		kept := &Pod{ObjectMeta: identity(p), Node: p.Spec.NodeName, IP: addressOf(p.Status.PodIP), Ports: namedPorts(&p.Spec),
			Ended:   p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
			MeshTLS: p.Labels[tlsMode] == tlsModeIstio, Failure: failureOf(&p.Status)}
		kept.Labels, kept.CreationTimestamp, kept.DeletionTimestamp = p.Labels, p.CreationTimestamp, p.DeletionTimestamp
		kept.Annotations = annotations(p.Annotations)
		kept.Gateway = slices.ContainsFunc(p.Spec.Volumes, hasGatewayDir)
		_, kept.Mirror = p.Annotations[corev1.MirrorPodAnnotationKey]
		kept.Once = p.Spec.RestartPolicy == corev1.RestartPolicyNever || p.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
		if p.Spec.RuntimeClassName != nil {
			kept.RuntimeClass = *p.Spec.RuntimeClassName
		}
		if kept.RuntimeClass == RuntimeClass || kept.Annotations[filterapi.AnnotationConnections] != "" {
			kept.Containers, kept.Main = containersOf(p)
		}
		for _, c := range p.Status.Conditions {
			switch {
			case c.Type == corev1.PodReady:
				kept.Ready = c.Status == corev1.ConditionTrue
			case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable:
				kept.Unschedulable = c.Message
			}
		}
		return kept, nil
	}
	return nil, otherKind(o, "Pod")
}

// hasGatewayDir tells whether a volume is the gateways' directory of the node, or has it inside.
func hasGatewayDir(v corev1.Volume) bool {
	if v.HostPath == nil {
		return false
	}
	inside, err := filepath.Rel(filepath.Clean(v.HostPath.Path), gatewayDir)
	return err == nil && filepath.IsLocal(inside)
}

// mainContainer is the annotation by which a pod says which of its containers is meant when none is named. Injection of
// a sidecar that comes first sets it.
const mainContainer = "kubectl.kubernetes.io/default-container"

func containersOf(p *corev1.Pod) (all []Container, main string) {
	for i, c := range p.Spec.Containers {
		if i == 0 || c.Name == p.Annotations[mainContainer] {
			main = c.Name
		}
		all = append(all, Container{Name: c.Name, Ports: c.Ports})
	}
	for _, c := range p.Spec.InitContainers {
		if runsOn(&c) {
			all = append(all, Container{Name: c.Name, Ports: c.Ports})
		}
	}
	return all, main
}

// ContainerWith is the name of the container that has the port, by its name or its number.
func (p *Pod) ContainerWith(port intstr.IntOrString) (name string, ok bool) {
	for _, c := range p.Containers {
		for _, has := range c.Ports {
			if port.Type == intstr.String && has.Name == port.StrVal ||
				port.Type == intstr.Int && has.ContainerPort == port.IntVal {
				return c.Name, true
			}
		}
	}
	return "", false
}

// addressOf is zero for what is none: the API server takes no other.
func addressOf(ip string) netip.Addr {
	a, _ := netip.ParseAddr(ip)
	return a
}

func namedPorts(spec *corev1.PodSpec) map[string]int32 {
	var ports map[string]int32
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, p := range c.Ports {
			if p.Name == "" {
				continue
			}
			if ports == nil {
				ports = map[string]int32{}
			}
			ports[p.Name] = p.ContainerPort
		}
	}
	return ports
}

// waiting are the kubelet's reasons for a container that does not run and will not by
// itself soon, and what they are to the function's callers.
var waiting = map[string]string{
	"ErrImagePull": "ImageUnavailable", "ImagePullBackOff": "ImageUnavailable", "InvalidImageName": "ImageUnavailable",
	"ErrImageNeverPull": "ImageUnavailable", "ImageInspectError": "ImageUnavailable",
	"CrashLoopBackOff": "FunctionExited",
	// The first is also a Secret or ConfigMap that does not exist.
	"CreateContainerConfigError": "SandboxFailed", "CreateContainerError": "SandboxFailed", "RunContainerError": "SandboxFailed",
}

// runtimeAway are in the message of a container that the kubelet could not make because its runtime
// was being started again. The kubelet tries once more at once.
var runtimeAway = []string{"error reading from server: EOF", "transport is closing", "connection error: desc = "}

func failureOf(s *corev1.PodStatus) *Failure {
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if c.State.Waiting == nil {
			continue
		}
		if reason, ok := waiting[c.State.Waiting.Reason]; ok && !slices.ContainsFunc(
			runtimeAway, func(words string) bool { return strings.Contains(c.State.Waiting.Message, words) },
		) {
			return &Failure{Reason: reason, Message: "container " + c.Name + ": " + c.State.Waiting.Reason + ": " + c.State.Waiting.Message}
		}
	}
	return nil
}
