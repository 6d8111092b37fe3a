package uninstall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/control-plane/uninstall"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ns      = "headstart-system"
	node    = "kind: DaemonSet\napiVersion: apps/v1\nmetadata: {name: headstart-uninstall}\nspec: {template: {spec: {initContainers: [{name: uninstall}]}}}\n"
	timeout = 5 * time.Minute
	// chartsGrace is what the chart gives the control plane's pods, in seconds.
	chartsGrace = 60
	// soon is many times what all of it takes on a cluster without delays of its own.
	soon = 10 * time.Second
)

// cluster plays the controllers and kubelets.
type cluster struct {
	*fake.Clientset
	// steps are the changes that were asked for, in order.
	steps []string
	// answer is the state of a node's init container.
	answer func(node string) corev1.ContainerState
	// orphaned says that no replica set makes the control plane's pods again any more.
	orphaned bool
}

func deployment(namespace, name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)},
		Spec:   appsv1.DeploymentSpec{Replicas: &replicas, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: replicas}}
}

func service(namespace, name string, annotations map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app.kubernetes.io/name": name}}}
}

func pod(of, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: of + "-" + node, Labels: map[string]string{"app.kubernetes.io/name": of}}, Spec: corev1.PodSpec{NodeName: node}}
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	asks := map[string]string{"headstart.dev/scale-to-zero": "30s"}
	c := &cluster{answer: func(string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	}}
	c.Clientset = fake.NewClientset(
		deployment(ns, "headstart-controlplane", 1), pod("headstart-controlplane", "n1"),
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "headstart-node"}}, pod("headstart-node", "n1"), pod("headstart-node", "n2"),
		&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "headstart-installer"}}, pod("headstart-installer", "n1"), pod("headstart-installer", "n2"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "headstart-replicas"}, Data: map[string]string{"fire": "3 Deployment video/fire"}},
		deployment("video", "fire", 0), service("video", "fire", asks),
		deployment("video", "busy", 1), service("video", "busy", asks),
		deployment("video", "other", 0), service("video", "other", nil),
	)
	c.PrependReactor("*", "*", c.react)
	return c
}

// react notes changes, and lets them have the consequences that they have in a cluster.
func (c *cluster) react(a kubetesting.Action) (bool, runtime.Object, error) {
	gvr, tracker := a.GetResource(), c.Tracker()
	switch a.GetVerb() {
	case "update":
		scale, is := a.(kubetesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		if !is {
			return false, nil, nil
		}
		c.steps = append(c.steps, "scale "+scale.Name)
		o, err := tracker.Get(gvr, a.GetNamespace(), scale.Name)
		if err != nil {
			return true, nil, err
		}
		d := o.(*appsv1.Deployment)
		d.Spec.Replicas, d.Status.ReadyReplicas = &scale.Spec.Replicas, scale.Spec.Replicas
		if err := tracker.Update(gvr, d, a.GetNamespace()); err != nil {
			return true, nil, err
		}
		if scale.Name == "headstart-controlplane" {
			c.orphaned = true
			return true, scale, errors.Join(c.end("headstart-controlplane-n1", chartsGrace), c.end("headstart-controlplane-n2", chartsGrace))
		}
		return true, scale, nil
	case "create":
		set, is := a.(kubetesting.CreateAction).GetObject().(*appsv1.DaemonSet)
		if !is {
			return false, nil, nil
		}
		c.steps = append(c.steps, "create "+set.Name)
		set = set.DeepCopy()
		set.Status.DesiredNumberScheduled = 2
		for _, n := range []string{"n1", "n2"} {
			p := pod(set.Name, n)
			state := c.answer(n)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{State: state}}
			if state.Terminated != nil && state.Terminated.ExitCode == 0 {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
			}
			if err := tracker.Add(p); err != nil {
				return true, nil, err
			}
		}
		return true, set, tracker.Add(set)
	case "delete-collection":
		if options := a.(kubetesting.DeleteCollectionActionImpl).DeleteOptions; *options.PropagationPolicy != metav1.DeletePropagationOrphan {
			return true, nil, fmt.Errorf("%s are deleted with what they made", gvr.Resource)
		}
		c.steps = append(c.steps, "delete "+gvr.Resource)
		c.orphaned = true
		return true, nil, nil
	case "delete":
		a := a.(kubetesting.DeleteAction)
		switch gvr.Resource {
		case "pods":
			if !c.orphaned { // a replacement has started before anything else happens
				if err := tracker.Add(pod("headstart-controlplane", "n2")); err != nil && !apierrors.IsAlreadyExists(err) {
					return true, nil, err
				}
			}
			return true, nil, c.end(a.GetName(), *a.GetDeleteOptions().GracePeriodSeconds)
		case "deployments":
			c.steps = append(c.steps, "delete "+a.GetName())
			return false, nil, nil
		case "daemonsets":
		default:
			return false, nil, nil
		}
		if _, err := tracker.Get(gvr, ns, a.GetName()); err != nil {
			return true, nil, err
		}
		c.steps = append(c.steps, "delete "+a.GetName())
		for _, n := range []string{"n1", "n2"} {
			if err := tracker.Delete(corev1.SchemeGroupVersion.WithResource("pods"), ns, a.GetName()+"-"+n); err != nil {
				return true, nil, err
			}
		}
		return true, nil, tracker.Delete(gvr, ns, a.GetName())
	}
	return false, nil, nil
}

// end has a pod end after its grace, which a control plane uses up. Its kubelet goes by the first
// one that it hears of.
func (c *cluster) end(pod string, grace int64) error {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := c.Tracker().Get(pods, ns, pod)
	if apierrors.IsNotFound(err) {
		return nil // of a run before
	} else if err != nil {
		return err
	}
	p := o.(*corev1.Pod)
	if p.DeletionGracePeriodSeconds != nil {
		return nil
	}
	now := metav1.Now()
	p.DeletionGracePeriodSeconds, p.DeletionTimestamp = &grace, &now
	time.AfterFunc(time.Duration(grace)*time.Second, func() { _ = c.Tracker().Delete(pods, ns, pod) }) // it may be gone already
	return c.Tracker().Update(pods, p, ns)
}

// Remove implements uninstall.Mesh.
func (c *cluster) Remove(context.Context) error {
	c.steps = append(c.steps, "leave the mesh")
	return nil
}

func (c *cluster) run(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	u := &uninstall.Uninstaller{Client: c, Mesh: c, Namespace: ns, Node: []byte(node), Log: slog.New(slog.DiscardHandler)}
	return u.Run(ctx)
}

func TestWhatHeadstartHasMadeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		began := time.Now()
		if err := c.run(t); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > soon {
			t.Errorf("it took %v", took)
		}
		want := []string{"scale fire", "delete headstart-controlplane", "delete replicasets", "leave the mesh",
			"delete headstart-installer", "delete headstart-node", "create headstart-uninstall", "delete headstart-uninstall"}
		if !slices.Equal(c.steps, want) {
			t.Errorf("got the steps %q, want %q", c.steps, want)
		}
		d, err := c.AppsV1().Deployments("video").Get(t.Context(), "fire", metav1.GetOptions{})
		if err != nil || *d.Spec.Replicas != 3 {
			t.Errorf("a function that had three replicas has %v, %v", d.Spec.Replicas, err)
		}
		if o, err := c.AppsV1().Deployments("video").Get(t.Context(), "other", metav1.GetOptions{}); err != nil || *o.Spec.Replicas != 0 {
			t.Errorf("somebody else's deployment at zero was touched: %v", err)
		}
	})
}

func TestItCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for range 2 {
			if err := c.run(t); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The API server of a k3s server restarts with the containerd of its node.
func TestTheAPIServerMayBeAwayMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		away := 5
		c.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
			if !slices.Contains(c.steps, "create headstart-uninstall") || away == 0 {
				return false, nil, nil
			}
			away--
			return true, nil, apierrors.NewServiceUnavailable("restarting")
		})
		if err := c.run(t); err != nil || away > 0 {
			t.Errorf("%v, %d failures to come", err, away)
		}
	})
}

// A rule that is missing does not come by waiting.
func TestDenialIsToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", nil)
		})
		began := time.Now()
		if err := c.run(t); !apierrors.IsForbidden(err) || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The installer's reason reaches whoever uninstalls, with the node's name.
func TestANodeThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.answer = func(node string) corev1.ContainerState {
			if node == "n1" {
				return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
			}
			return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "log\n2 pods of this node use the runtime headstart"}}
		}
		err := c.run(t)
		if err == nil || !strings.Contains(err.Error(), "node n2: 2 pods of this node use the runtime headstart") || strings.Contains(err.Error(), "n1") {
			t.Errorf("got %v", err)
		}
	})
}
