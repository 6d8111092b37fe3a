package object

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The kinds of workloads that can be scaled from and to zero, and of who may scale them otherwise.
const (
	Deployment              = "Deployment"
	StatefulSet             = "StatefulSet"
	HorizontalPodAutoscaler = "HorizontalPodAutoscaler"
	ScaledObject            = "ScaledObject"
)

// Workload is a Deployment or a StatefulSet.
type Workload struct {
	metav1.ObjectMeta
	Kind     string
	Replicas int32 // as desired
	Labels   map[string]string
	Template Template
	// Refused is why its controller cannot make pods, in the API server's words: a quota,
	// or admission. Empty: it can.
	Refused string
}

// Template is what a workload's pods are made of.
type Template struct {
	NodeSelector map[string]string
	Containers   []Container // the sidecars among the init containers included
	// Gated: something outside the pod decides on its readiness, too.
	Gated bool
	// Digest is of all that the template says.
	Digest string
}

// Container is one container of a pod.
type Container struct {
	Name  string
	Image string
	Ports []corev1.ContainerPort
	Probe *corev1.Probe // readiness
}

// WorkloadOf reads an *appsv1.Deployment or *appsv1.StatefulSet.
func WorkloadOf(o any) (*Workload, error) {
	switch w := o.(type) {
	case *Workload:
		return w, nil
	case *appsv1.Deployment:
		kept := &Workload{ObjectMeta: identity(w), Kind: Deployment, Replicas: replicas(w.Spec.Replicas), Labels: w.Spec.Template.Labels, Template: templateOf(&w.Spec.Template.Spec)}
		for _, c := range w.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				kept.Refused = c.Message
			}
		}
		return kept, nil
	case *appsv1.StatefulSet:
		return &Workload{ObjectMeta: identity(w), Kind: StatefulSet, Replicas: replicas(w.Spec.Replicas), Labels: w.Spec.Template.Labels, Template: templateOf(&w.Spec.Template.Spec)}, nil
	}
	return nil, otherKind(o, "Deployment or StatefulSet")
}

// replicas is 1 where nothing is said, as the API server has it.
func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func templateOf(spec *corev1.PodSpec) Template {
	t := Template{NodeSelector: spec.NodeSelector, Gated: len(spec.ReadinessGates) > 0}
	if b, err := json.Marshal(spec); err == nil { // what came as JSON can be JSON again
		sum := sha256.Sum256(b)
		t.Digest = hex.EncodeToString(sum[:])
	}
	for _, c := range spec.Containers {
		t.Containers = append(t.Containers, containerOf(&c))
	}
	for _, c := range spec.InitContainers {
		if runsOn(&c) {
			t.Containers = append(t.Containers, containerOf(&c))
		}
	}
	return t
}

// runsOn tells whether an init container is a sidecar.
func runsOn(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func containerOf(c *corev1.Container) Container {
	return Container{Name: c.Name, Image: c.Image, Ports: c.Ports, Probe: c.ReadinessProbe}
}

// Scaler is an autoscaler of a workload: a HorizontalPodAutoscaler or KEDA's ScaledObject.
type Scaler struct {
	metav1.ObjectMeta
	Kind                   string
	TargetKind, TargetName string
	// Least is how few replicas it leaves. With 0 it scales to zero itself.
	Least int32
	// Cooldown is how long after the last request it does so, if it says so; 0: it does not.
	Cooldown time.Duration
}

// ScalerOf reads an *autoscalingv2.HorizontalPodAutoscaler or a ScaledObject.
func ScalerOf(o any) (*Scaler, error) {
	switch s := o.(type) {
	case *Scaler:
		return s, nil
	case *autoscalingv2.HorizontalPodAutoscaler:
		return &Scaler{ObjectMeta: identity(s), Kind: HorizontalPodAutoscaler, TargetKind: s.Spec.ScaleTargetRef.Kind,
			TargetName: s.Spec.ScaleTargetRef.Name, Least: replicas(s.Spec.MinReplicas)}, nil
	case *unstructured.Unstructured:
		kept := &Scaler{ObjectMeta: identity(s), Kind: ScaledObject, TargetKind: text(s, "spec", "scaleTargetRef", "kind"), TargetName: text(s, "spec", "scaleTargetRef", "name")}
		if kept.TargetKind == "" {
			kept.TargetKind = Deployment // KEDA's default
		}
		kept.Least = count(s, "spec", "minReplicaCount") // KEDA's default is 0
		if _, idle, _ := unstructured.NestedFieldNoCopy(s.Object, "spec", "idleReplicaCount"); idle {
			kept.Least = count(s, "spec", "idleReplicaCount")
		}
		kept.Cooldown = time.Duration(count(s, "spec", "cooldownPeriod")) * time.Second
		return kept, nil
	}
	return nil, otherKind(o, "HorizontalPodAutoscaler or ScaledObject")
}

// count is a number field, 0 if there is none.
func count(u *unstructured.Unstructured, fields ...string) int32 {
	n, _, _ := unstructured.NestedInt64(u.Object, fields...) // of another type is as good as absent
	return int32(min(max(n, 0), math.MaxInt32))
}

// text is a string field, empty if there is none.
func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...) // of another type is as good as absent
	return s
}
