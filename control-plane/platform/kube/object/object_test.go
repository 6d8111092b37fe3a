package object_test

import (
	"math"
	"net/netip"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

func TestPods(t *testing.T) {
	now := metav1.NewTime(time.Unix(1000, 0))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fire-1", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now,
		Labels: map[string]string{"app": "fire", "security.istio.io/tlsMode": "istio"}, Annotations: map[string]string{"secret": "x"}},
		Spec:   corev1.PodSpec{NodeName: "edge", Containers: []corev1.Container{{Name: "function", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "x"}}, Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}, {ContainerPort: 9}}}}},
		Status: corev1.PodStatus{PodIP: "10.1.0.2", Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}}}
	got, err := object.PodOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := &object.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fire-1", UID: "u", ResourceVersion: "7", DeletionTimestamp: &now, Labels: pod.Labels},
		Node: "edge", IP: netip.MustParseAddr("10.1.0.2"), Ready: true, Ports: map[string]int32{"web": 8080}, MeshTLS: true}
	if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if !got.Terminating() {
		t.Error("it is not terminating")
	}
	if again, err := object.PodOf(got); again != got || err != nil {
		t.Errorf("what is kept becomes %v, %v", again, err)
	}
}

func TestNodes(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus][2]bool{corev1.ConditionTrue: {true, false}, corev1.ConditionFalse: {false, false}, corev1.ConditionUnknown: {false, true}} {
		n, err := object.NodeOf(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeMemoryPressure, Status: "False"}, {Type: corev1.NodeReady, Status: status}}}})
		if err != nil || n.Ready != want[0] || n.Lost != want[1] {
			t.Errorf("%s: %+v, %v", status, n, err)
		}
	}
	for name, tt := range map[string]struct {
		label    string
		handlers []corev1.NodeRuntimeHandler
		want     bool
	}{
		"as the installer leaves it":          {"ready", []corev1.NodeRuntimeHandler{{Name: ""}, {Name: "runc"}, {Name: "headstart"}}, false},
		"its configuration was written again": {"ready", []corev1.NodeRuntimeHandler{{Name: ""}, {Name: "runc"}}, true},
		"nothing is installed":                {"", []corev1.NodeRuntimeHandler{{Name: "runc"}}, false},
		"a kubelet that says nothing of it":   {"ready", nil, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"headstart.dev/node": tt.label}}, Status: corev1.NodeStatus{RuntimeHandlers: tt.handlers}}
		if got, err := object.NodeOf(n); err != nil || got.Drifted != tt.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if n, _ := object.NodeOf(&corev1.Node{}); n.Ready || !n.Lost {
		t.Errorf("one that never said anything: %+v", n)
	}
}

// Services that are no functions cost next to nothing.
func TestServices(t *testing.T) {
	yes := true
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fire", Annotations: map[string]string{"other": "x"}}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "fire"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	if got, _ := object.ServiceOf(s); got.Selector != nil || got.Ports != nil || got.Annotations != nil {
		t.Errorf("plain: %+v", got)
	}
	s.Annotations["headstart.dev/input"] = "s3://videos/a"
	if got, _ := object.ServiceOf(s); len(got.Selector) != 1 || len(got.Ports) != 1 || len(got.Annotations) != 1 || got.Knative {
		t.Errorf("opted in: %+v", got)
	}
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "serving.knative.dev/v1", Kind: "Route", Controller: &yes}}
	if got, _ := object.ServiceOf(s); !got.Knative {
		t.Errorf("Knative's: %+v", got)
	}
}

func TestWorkloads(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "function"}}, InitContainers: []corev1.Container{{Name: "init"}, {Name: "proxy", RestartPolicy: &always}}}
	d, err := object.WorkloadOf(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: spec}}})
	if err != nil || d.Kind != object.Deployment || d.Replicas != 1 || len(d.Template.Containers) != 2 || d.Template.Containers[1].Name != "proxy" {
		t.Errorf("%+v, %v", d, err)
	}
	three := int32(3)
	s, err := object.WorkloadOf(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: &three}})
	if err != nil || s.Kind != object.StatefulSet || s.Replicas != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestScaledObjects(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaleTargetRef": map[string]any{"name": "fire"}}}}
	if s, err := object.ScalerOf(u); err != nil || s.Kind != "ScaledObject" || s.TargetKind != "Deployment" || s.TargetName != "fire" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestEndpoints(t *testing.T) {
	no, name, port := false, "http", int32(8012)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelServiceName: "fire-1"}}, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.2"}}, {Addresses: []string{"10.1.0.3"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}, {}}}
	if e, err := object.EndpointsOf(slice); err != nil || e.Service != "fire-1" || e.Port != 8012 || len(e.Ready) != 1 || e.Ready[0].IP.String() != "10.1.0.2" {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestReplicasThatWereKept(t *testing.T) {
	r, err := object.ReplicasOf(&corev1.ConfigMap{Data: map[string]string{
		"a": "3 Deployment shop/fire", "b": "2", "c": "many", "d": "-4", "e": "0", "f": "99999999999", "g": "5000 Deployment shop/x",
		"h": "2 Deployment shop/y, raised to 4"}})
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[types.UID]int32{"a": 3, "b": 2, "c": 1, "d": 1, "e": 1, "f": 1, "g": object.ReplicasMost, "h": 2, "of nobody": 1} {
		if got := r.Of(uid); got != want {
			t.Errorf("%s comes back with %d, want %d", uid, got, want)
		}
	}
	var none *object.Replicas
	if none.Of("a") != 1 {
		t.Errorf("without a ConfigMap it comes back with %d", none.Of("a"))
	}
}

// What is written is read again, and what need not be written is not.
func TestReplicasAreKept(t *testing.T) {
	written := map[string]string{"old": "7 Deployment shop/gone"}
	w := &object.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "fire", UID: "u"}, Kind: object.Deployment}
	for _, step := range []struct {
		replicas, raised int32
		value            string // what is written then; empty: nothing
		back             int32
	}{
		{1, 0, "", 1},
		{3, 0, "3 Deployment shop/fire", 3},
		{3, 0, "3 Deployment shop/fire", 3},
		{3, 4, "3 Deployment shop/fire, raised to 4", 3}, // all three are lost
		{4, 5, "3 Deployment shop/fire, raised to 5", 3}, // and the fourth
		{5, 0, "3 Deployment shop/fire, raised to 5", 3}, // it goes to zero
		{0, 0, "3 Deployment shop/fire", 3},              // and comes back
		{5, 0, "5 Deployment shop/fire", 5},              // somebody has scaled it
		{6, 0, "6 Deployment shop/fire", 6},              // somebody has scaled it
		{1, 2, "1 Deployment shop/fire, raised to 2", 1},
		{2, 0, "1 Deployment shop/fire, raised to 2", 1},
		{0, 0, "", 1},
	} {
		r, err := object.ReplicasOf(&corev1.ConfigMap{Data: written})
		if err != nil {
			t.Fatal(err)
		}
		w.Replicas = step.replicas
		change := r.Keeping(w, step.raised, func(uid types.UID) bool { return uid != "u" })
		if (len(change) == 0) != (written["u"] == step.value) {
			t.Errorf("%+v changes %v of %v", step, change, written)
		}
		for uid, value := range change {
			if value == nil {
				delete(written, string(uid))
			} else {
				written[string(uid)] = value.(string)
			}
		}
		if r, _ = object.ReplicasOf(&corev1.ConfigMap{Data: written}); written["u"] != step.value || r.Of("u") != step.back {
			t.Errorf("%+v: written is %v, it comes back with %d", step, written, r.Of("u"))
		}
	}
	if len(written) > 0 {
		t.Errorf("of a workload that is no more %v is left", written)
	}
}

// KEDA has two numbers for the fewest replicas, of which the one for idleness counts.
func TestHowFewReplicasKEDALeaves(t *testing.T) {
	for spec, want := range map[string]int32{`{}`: 0, `{"minReplicaCount":2}`: 2, `{"minReplicaCount":2,"idleReplicaCount":0}`: 0, `{"minReplicaCount":"two"}`: 0,
		`{"minReplicaCount":99999999999}`: math.MaxInt32} {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON([]byte(`{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","spec":` + spec + `}`)); err != nil {
			t.Fatal(err)
		}
		if s, err := object.ScalerOf(u); err != nil || s.Least != want {
			t.Errorf("%s leaves %+v, %v", spec, s, err)
		}
	}
}

func TestWhatWasNotAskedFor(t *testing.T) {
	for _, keep := range []func(any) error{
		func(o any) error { _, err := object.PodOf(o); return err }, func(o any) error { _, err := object.NodeOf(o); return err },
		func(o any) error { _, err := object.ServiceOf(o); return err }, func(o any) error { _, err := object.WorkloadOf(o); return err },
		func(o any) error { _, err := object.ScalerOf(o); return err }, func(o any) error { _, err := object.KnativeServiceOf(o); return err },
		func(o any) error { _, err := object.RevisionOf(o); return err }, func(o any) error { _, err := object.EndpointsOf(o); return err },
		func(o any) error { _, err := object.ReplicasOf(o); return err },
	} {
		if err := keep(&metav1.Status{}); err == nil {
			t.Error("a Status is taken for something else")
		}
	}
}

// FuzzUnstructured reads objects whose schema nobody has checked for us.
func FuzzUnstructured(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"serving.knative.dev/v1","kind":"Service","metadata":{"name":"fire","annotations":{"headstart.dev/input":"x"}},"status":{"url":"http://x","traffic":[{"revisionName":"fire-1","percent":100}]}}`))
	f.Add([]byte(`{"apiVersion":"serving.knative.dev/v1","kind":"Revision","spec":{"timeoutSeconds":60,"containers":[{"image":"x","ports":[{"containerPort":1}]}]}}`))
	f.Add([]byte(`{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","spec":{"scaleTargetRef":{"kind":5,"name":"fire"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON(data) != nil {
			return
		}
		if s, err := object.KnativeServiceOf(u); err != nil || s.Annotations == nil && s.Traffic != nil {
			t.Errorf("Service: %+v, %v", s, err)
		}
		if _, err := object.RevisionOf(u); err != nil {
			t.Error(err)
		}
		if _, err := object.ScalerOf(u); err != nil {
			t.Error(err)
		}
	})
}
