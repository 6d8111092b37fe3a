package kube_test

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/mirror"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
)

// withdrawnMost is how long a withdrawn function is known.
const withdrawnMost = 31 * time.Second

func TestARefusedServiceIsNoFunctionAndSaysWhy(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		s := serviceOf(namespace, "fire", platformtest.Fire())
		s.Annotations["headstart.dev/scale-to-zero"] = "soon"
		w.applyService(s)
		w.settle()
		w.wantWithdrawn()
		const says = `headstart.dev/scale-to-zero: "soon" is not a duration; write it like 90s or 5m`
		if events := w.events.Of(fire); len(events) != 1 || events[0].Reason != "AnnotationsRefused" || events[0].Message != says || events[0].Field != "headstart.dev/scale-to-zero" {
			t.Errorf("events: %+v", events)
		}
		events, err := a.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(events.Items) != 1 {
			t.Fatalf("Kubernetes' events: %+v, %v", events, err)
		}
		e := events.Items[0]
		if o := e.InvolvedObject; o.Kind != "Service" || o.Name != "fire" || e.Reason != "AnnotationsRefused" || e.Message != says || e.Type != corev1.EventTypeWarning {
			t.Errorf("Kubernetes' event: %+v", e)
		}
		time.Sleep(3 * window)
		wantScales(t, a, 1) // it runs as if it had not opted in
		w.applyService(serviceOf(namespace, "fire", platformtest.Fire()))
		w.settle()
		w.wantPhases(platform.Ready)
		if left := w.p.Problems(); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// wantWithdrawn fails the test unless fire is withdrawn and then forgotten.
func (w *world) wantWithdrawn() {
	w.t.Helper()
	if st := w.p.State(); len(st.Functions) != 1 || !st.Functions[0].Withdrawn || len(st.Functions[0].Hosts) != 0 {
		w.t.Errorf("state of what has just been withdrawn: %+v", st)
	}
	time.Sleep(withdrawnMost)
	w.settle()
	if st := w.p.State(); len(st.Functions)+len(st.Instances) != 0 {
		w.t.Errorf("state: %+v", st)
	}
	w.wantRefused(404, "FunctionUnknown", "see the events of the Service")
}

// Istio tells gateways of a withdrawn function's cluster within seconds. Until then they may send
// its requests to a node's daemon, and none of them is lost while there is an instance.
func TestAWithdrawnFunctionAnswersUntilGatewaysHaveHeard(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		in := w.hot()
		w.must(w.clients.Kubernetes.CoreV1().Services(namespace).Delete(t.Context(), "fire", metav1.DeleteOptions{}))
		w.settle()
		if got, err := w.p.Activate(t.Context(), platform.Request{
			ID: "r", Function: fire, Node: in.Node,
		}); err != nil || got.ID != in.ID {
			t.Errorf("while gateways have not heard: %+v, %v", got, err)
		}
		if m := w.p.InstancesOf(in.Node); len(m.GetInstances()) != 1 {
			t.Errorf("the node is told of %v", m.GetInstances())
		}
		w.wantWithdrawn()
		wantScales(t, a, 1)
	})
}

func TestAWithdrawnFunctionIsNotStarted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		w.must(w.clients.Kubernetes.CoreV1().Services(namespace).Delete(t.Context(), "fire", metav1.DeleteOptions{}))
		w.settle()
		w.wantRefused(404, "FunctionUnknown", "see the events of the Service")
		if s := a.scales(); len(s) > 0 {
			t.Errorf("scaled to %v", s)
		}
		// The same name again is a function at once.
		w.applyService(serviceOf(namespace, "fire", platformtest.Fire()))
		w.settle()
		if st := w.p.State(); len(st.Functions) != 1 || st.Functions[0].Withdrawn || len(st.Functions[0].Hosts) == 0 {
			t.Errorf("state of what was deployed again: %+v", st)
		}
	})
}

func TestASidecarsInstanceIsReachedByTheMesh(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		d := deploymentOf(namespace, "fire", platformtest.Fire())
		d.Spec.Template.Labels = map[string]string{"app": "fire", "security.istio.io/tlsMode": "istio"}
		w.apply(d)
		w.settle()
		in := w.activate()
		if want := "outbound_.80_._.fire.default.svc.cluster.local"; in.MeshSNI != want || w.p.InstancesOf("edge").GetInstances()[0].GetMeshSni() != want {
			t.Errorf("%+v, %v", in, w.p.InstancesOf("edge"))
		}
	})
}

func TestNodesAreToldWhatTheyNeed(t *testing.T) {
	f := platformtest.Fire()
	f.PlatformReadiness, f.ProbePath, f.Policy.Input = true, "/ready", "s3://videos/{header.x-key}"
	m := kube.Message(f)
	if len(m.GetEnv()) != 0 || !m.GetPlatformReadiness() || !m.GetHasInput() || m.GetPort() != 8080 || m.GetProbePath() != "/ready" || !slices.Equal(m.GetHosts(), f.Hosts) {
		t.Errorf("the node is told %v", m)
	}
	f.Policy.Input, f.Policy.BodyInput = "", true
	if m := kube.Message(f); m.GetHasInput() || !m.GetBodyInput() {
		t.Errorf("the node is told %v", m)
	}
}

func TestWhatMayNotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.end()
		a.fault("list services.serving.knative.dev", forbidden("services"))
		a.fault("list pods", forbidden("pods"))
		w.start()
		w.settle()
		phases := map[string]mirror.Phase{}
		for _, s := range w.p.Kinds() {
			phases[s.Resource] = s.Phase
		}
		if phases["services.serving.knative.dev"] != mirror.Denied || phases["scaledobjects.keda.sh"] != mirror.Absent || phases["pods"] != mirror.Denied || phases["services"] != mirror.Following {
			t.Errorf("phases: %v", phases)
		}
		const says = `the control plane may not list pods; allow its service account the verbs list and watch on resource "pods" of API group ""`
		if err := w.p.Healthy(); err == nil || err.Error() != says {
			t.Errorf("health: %v", err)
		}
		a.fault("list pods", nil) // Knative stays forbidden, which is no matter
		<-w.p.Recovered()
		w.settle()
		if err := w.p.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

// Knative's objects.

func knativeObject(kind, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: maps.Clone(fields)}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: kind})
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func knativeFire(traffic ...any) *unstructured.Unstructured {
	u := knativeObject("Service", "fire", map[string]any{"status": map[string]any{"url": "http://fire.default.example.com", "traffic": traffic}})
	u.SetAnnotations(map[string]string{"headstart.dev/input": "s3://videos/{header.x-key}", "serving.knative.dev/creator": "me"})
	return u
}

func target(revision string, percent int64) any {
	return map[string]any{"revisionName": revision, "percent": percent}
}

// publicService is what Knative makes for a revision.
func publicService(revision string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	yes, name, port := true, "http", int32(8012)
	owner := []metav1.OwnerReference{{APIVersion: "networking.internal.knative.dev/v1alpha1", Kind: "ServerlessService", Name: revision, Controller: &yes}}
	labels := map[string]string{"networking.internal.knative.dev/serviceType": "Public", discoveryv1.LabelServiceName: revision}
	node := "cloud"
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision, OwnerReferences: owner, Annotations: map[string]string{"headstart.dev/input": "s3://videos/a"}},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.7", Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(port)}, {Name: "https", Port: 443}}}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision + "-x", Labels: labels}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.9"}, NodeName: &node, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "knative-serving", Name: "activator"}}}}
}

// knativePod is a ready one of a revision.
func knativePod(revision string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: revision + "-x", UID: "u1", Labels: map[string]string{"serving.knative.dev/revision": revision}},
		Spec:   corev1.PodSpec{NodeName: "cloud"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.8", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
}

// installKnative makes Knative's kinds exist.
func (f *fakeAPI) installKnative() {
	for r := range optional {
		f.fault("list "+r.Resource+"."+r.Group, nil)
		f.fault("watch "+r.Resource+"."+r.Group, nil)
	}
}

func TestKnativeKeepsScaling(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		a.installKnative() // later than the control plane
		services := a.dynamic.Resource(schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}).Namespace(namespace)
		revisions := a.dynamic.Resource(schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}).Namespace(namespace)
		if _, err := revisions.Create(t.Context(), knativeObject("Revision", "fire-00001", map[string]any{"spec": map[string]any{"timeoutSeconds": int64(60), "containers": []any{map[string]any{"image": "example.com/fire:1"}}}}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := services.Create(t.Context(), knativeFire(target("fire-00001", 100), map[string]any{"revisionName": "fire-00000", "tag": "old"}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		public, slice := publicService("fire-00001")
		w.applyService(public)
		if _, err := a.client.DiscoveryV1().EndpointSlices(namespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // it looks for them again by itself
		in := w.activate()
		want := platform.Instance{Function: fire, Phase: platform.Starting, Relay: &platform.Relay{Address: "10.96.0.7:80",
			Headers: map[string]string{"Knative-Serving-Revision": "fire-00001", "Knative-Serving-Namespace": "default"}}}
		if d := cmp.Diff(want, in, sameAddress); d != "" {
			t.Errorf("bound to: -want +got\n%s", d)
		}
		st := w.p.State()
		if len(st.Functions) != 1 || len(st.Instances) != 0 {
			t.Fatalf("state: %+v", st)
		}
		f := st.Functions[0]
		if f.Revision != "fire-00001" || f.Service != "fire-00001.default.svc.cluster.local" || f.ServicePort != 80 || !f.PlatformReadiness || f.RequestTimeout != time.Minute || f.Image != "example.com/fire:1" ||
			!slices.Contains(f.Hosts, "fire.default.example.com") || !slices.Contains(f.Hosts, "fire.default.svc.cluster.local") {
			t.Errorf("function: %+v", f)
		}
		if d := cmp.Diff(
			[]platform.Endpoint{{
				Function: fire, Address: netip.MustParseAddrPort("10.244.1.9:8012"), Node: "cloud", Relay: true,
			}},
			st.Endpoints, sameAddress,
		); d != "" {
			t.Errorf("endpoints: -want +got\n%s", d)
		}
		if got := w.p.About(fire); len(got.Instances) != 0 || got.Scaler != "Knative" {
			t.Errorf("without a pod: %+v", got)
		}
		pod := knativePod("fire-00001")
		if _, err := a.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		running := platform.Instance{
			ID: "default_fire-00001-x_u1", Function: fire, Node: "cloud", Phase: platform.Ready,
			Address: netip.MustParseAddrPort("10.244.1.8:8012"),
		}
		if d := cmp.Diff([]platform.Instance{running}, w.p.About(fire).Instances, sameAddress); d != "" {
			t.Errorf("with a pod: -want +got\n%s", d)
		}
		if in := w.activate(); in.Relay == nil || in.Phase != platform.Ready || len(w.p.State().Instances) != 0 {
			t.Errorf("hot: bound to %+v, %+v", in, w.p.State())
		}
		if err := w.p.ScaleToZero(t.Context(), fire); err == nil || !strings.Contains(err.Error(), "Knative") {
			t.Errorf("scaling to zero: %v", err)
		}

		if _, err := services.Update(t.Context(), knativeFire(target("fire-00001", 90), target("fire-00002", 10)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if p := w.p.Problems(); len(p) != 1 || p[0].Reason != "TrafficSplit" || !p[0].Refused {
			t.Errorf("split traffic: %+v", p)
		}
		w.wantWithdrawn()
	})
}

var sameAddress = cmpopts.EquateComparable(netip.AddrPort{})
