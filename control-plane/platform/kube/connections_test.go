package kube_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// ofFire are the labels of pods that no Deployment has.
var ofFire = map[string]string{"run": "fire"}

// selecting is a Service that selects them.
func selecting(name string, f platform.Function) *corev1.Service {
	s := serviceOf(namespace, name, f)
	s.Spec.Selector = ofFire
	return s
}

// connectedPod has a proxy before and a helper after the container with the port named web.
func connectedPod(name, list string, labels map[string]string) *corev1.Pod {
	p := jobPod(name, "", policy.KeyConnections, list)
	delete(p.Annotations, policy.KeyInput)
	p.Labels = labels
	p.Spec.Containers = []corev1.Container{
		{Name: "proxy", Ports: []corev1.ContainerPort{{Name: "metrics", ContainerPort: 15090}}},
		{Name: "app", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}},
		{Name: "helper", Ports: []corev1.ContainerPort{{Name: "other", ContainerPort: 9090}}},
	}
	return p
}

// connections are what the node is told, after the pods are there.
func (w *world) connections(t *testing.T, pods ...*corev1.Pod) []*nodeapi.Connections {
	t.Helper()
	for _, p := range pods {
		if _, err := w.clients.Kubernetes.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.settle()
	return w.p.InstancesOf("edge").GetConnections()
}

func toldTo(pod, name, container string, destinations ...string) *nodeapi.Connections {
	return &nodeapi.Connections{Id: "default_" + pod + "_u1", Name: "default/" + name, Container: container, Destinations: destinations, By: "socket",
		Kinds: map[string]string{"orders": "postgres"}}
}

func TestANodeIsToldThePodsConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		fn := platformtest.Fire()
		w.applyService(selecting("fire", fn))
		job := connectedPod("job", "orders", ofFire)
		job.Annotations[policy.KeyInput] = "s3://videos/a"
		job.Annotations[policy.KeyConnectionsBy] = "connect"
		ofJob := toldTo("job", "job", "proxy", "orders")
		ofJob.By = "connect"
		injected := connectedPod("injected", "orders", nil)
		injected.Annotations["kubectl.kubernetes.io/default-container"] = "helper"
		other := connectedPod("other", "orders", ofFire)
		other.Spec.RuntimeClassName = nil
		got := w.connections(t, connectedPod("a", "orders", ofFire), job, injected, other, connectedPod("own", "orders", nil))
		want := []*nodeapi.Connections{toldTo("a", "fire", "app", "orders"), toldTo("injected", "injected", "helper", "orders"), ofJob,
			toldTo("own", "own", "proxy", "orders")}
		if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
			t.Errorf("-want +got\n%s", d)
		}
		// Another function, whose name is first, has a port of none of them, and then one of the helper's.
		service := selecting("also", fn)
		service.Spec.Ports[1].TargetPort = intstr.FromInt32(7)
		w.applyService(service)
		if got := w.connections(t); got[0].GetName() != "default/fire" || got[0].GetContainer() != "app" {
			t.Errorf("of two functions: %v", got[0])
		}
		service.Spec.Ports[1].TargetPort = intstr.FromInt32(9090)
		w.applyService(service)
		if got := w.connections(t); got[0].GetName() != "default/also" || got[0].GetContainer() != "helper" {
			t.Errorf("of two functions with ports: %v", got[0])
		}
		w.podStatus(namespace, "a", func(s *corev1.PodStatus) { s.Phase = corev1.PodSucceeded })
		if got := w.connections(t); len(got) != 3 {
			t.Errorf("it has ended: %v", got)
		}
		// Another control plane says the same when it has read the cluster.
		w.end()
		w.start()
		<-w.p.Recovered()
		if got := w.connections(t); len(got) != 3 || got[1].GetName() != "default/job" {
			t.Errorf("after a restart: %v", got)
		}
	})
}

// Wrong connections keep nothing from starting, and the function's events say what is wrong.
func TestWrongConnectionsAreLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		w.applyService(selecting("fire", platformtest.Fire()))
		for list, reason := range map[string]string{
			"sessions": "DestinationNotGranted", "nowhere": "AnnotationsRefused", "orders, sessions": "AnnotationsRefused",
		} {
			p := connectedPod("wrong", list, ofFire)
			p.Annotations[policy.KeyVolumes] = "models=s3://videos/llama/"
			if got := w.connections(t, p); len(got) != 1 || got[0].GetContainer() != "" || len(got[0].GetDestinations()) != 0 {
				t.Errorf("%s: told %v", list, got)
			}
			if v := w.p.InstancesOf("edge").GetVolumes(); len(v) != 1 || v[0].GetRefused() != nil {
				t.Errorf("%s: its volumes: %v", list, v)
			}
			events := w.events.Of(fire)
			if last := events[len(events)-1]; last.Reason != reason || last.Field != policy.KeyConnections || last.Count != 1 {
				t.Errorf("%s: events %+v", list, events)
			}
			if err := a.client.CoreV1().Pods(namespace).Delete(t.Context(), "wrong", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			w.settle()
		}
	})
}
