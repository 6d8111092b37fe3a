//go:build cluster

package kube_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
)

// clearPoll is how often a test looks whether what it deletes is gone.
const clearPoll = 20 * time.Millisecond

// realAPI is a real API server.
type realAPI struct{ clients kube.Clients }

func (a realAPI) stamp(d *appsv1.Deployment) { d.ResourceVersion = "" } // whatever it is now

func (a realAPI) bind(ctx context.Context, pod, node string) error {
	return a.clients.Kubernetes.CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
}

// clear removes all that a test has made.
func (a realAPI) clear(t *testing.T) {
	t.Helper()
	ctx, k := context.Background(), a.clients.Kubernetes
	now := int64(0)
	deleteNow := metav1.DeleteOptions{GracePeriodSeconds: &now}
	services, err := k.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{LabelSelector: "component!=apiserver"})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		if err := k.CoreV1().Services(namespace).Delete(ctx, s.Name, deleteNow); err != nil {
			t.Error(err)
		}
	}
	for _, err := range []error{
		k.AppsV1().Deployments(namespace).DeleteCollection(ctx, deleteNow, metav1.ListOptions{}),
		k.CoreV1().Pods(namespace).DeleteCollection(ctx, deleteNow, metav1.ListOptions{}),
		k.CoreV1().Nodes().DeleteCollection(ctx, deleteNow, metav1.ListOptions{}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	gone := func(ctx context.Context) (bool, error) {
		pods, err := k.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0, err
	}
	if err := wait.PollUntilContextTimeout(ctx, clearPoll, time.Minute, true, gone); err != nil {
		t.Fatalf("waiting for the end of the pods: %v", err)
	}
}

// user is who the control plane is in these tests.
const user = "system:serviceaccount:headstart-system:headstart-controlplane"

// allow gives user the rules that it says it needs, but for those of one resource.
func (a realAPI) allow(t *testing.T, but string) {
	t.Helper()
	rules := slices.DeleteFunc(kube.Rules(), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, but) })
	rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{kube.ReplicasName},
		Verbs: []string{"list", "watch", "patch"}})
	roles := a.clients.Kubernetes.RbacV1().ClusterRoles()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "headstart"}, Rules: rules}
	_, err := roles.Create(t.Context(), role, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.clients.Kubernetes.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "headstart"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "headstart"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// system makes the control plane's namespace, with what the chart makes in it.
func (a realAPI) system(t *testing.T) {
	t.Helper()
	_, err := a.clients.Kubernetes.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: kube.ReplicasName}}
	if _, err := a.clients.Kubernetes.CoreV1().ConfigMaps(system).Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// connect makes clients, for the API server's administrator or for user.
func connect(t *testing.T, c *rest.Config, as string) kube.Clients {
	t.Helper()
	c = rest.CopyConfig(c)
	c.Impersonate.UserName = as
	clients, err := kube.Connect(c)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestOnACluster(t *testing.T) {
	server := apiservertest.Start(t)
	clients := connect(t, server.Config, "")
	api, own := realAPI{clients}, connect(t, server.Config, user)
	api.system(t)
	api.allow(t, "")
	t.Run("Conformance", func(t *testing.T) {
		platformtest.Test(t, func(t *testing.T, test func(*testing.T, platformtest.World)) {
			w := newWorld(t, clients, own, api)
			test(t, w)
			w.stop()
			api.clear(t)
		})
	})
	t.Run("ScalingIsForbidden", func(t *testing.T) {
		api.allow(t, "deployments/scale")
		w := newWorld(t, clients, own, api)
		w.Join("edge")
		w.Deploy(platformtest.Fire())
		w.until("the function is there", func() bool { return len(w.p.State().Functions) == 1 })
		// The API server takes a moment to hear of the rules itself.
		w.until("scaling is forbidden", func() bool { return w.refusal().Reason == "ScaleUpForbidden" })
		api.allow(t, "")
		w.until("scaling is allowed", func() bool {
			_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"})
			return err == nil
		})
		w.stop()
		api.clear(t)
	})
	t.Run("AStatefulSet", func(t *testing.T) {
		w := newWorld(t, clients, own, api)
		sets, zero, labels := clients.Kubernetes.AppsV1().StatefulSets(namespace), int32(0), map[string]string{"app": "fire"}
		template := deploymentOf(namespace, "fire", platformtest.Fire()).Spec.Template
		_, err := sets.Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "fire"},
			Spec: appsv1.StatefulSetSpec{Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}, metav1.CreateOptions{})
		w.must(err)
		w.applyService(serviceOf(namespace, "fire", platformtest.Fire()))
		w.until("the function is there", func() bool { return len(w.p.State().Functions) == 1 })
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		waiting.Go(func() { w.p.Activate(ctx, platform.Request{Function: fire, Node: "edge"}) }) // in vain: nobody makes the pod
		w.until("it is scaled up", func() bool {
			s, err := sets.Get(t.Context(), "fire", metav1.GetOptions{})
			return err == nil && *s.Spec.Replicas == 1
		})
		cancel()
		waiting.Wait()
		w.stop()
		w.must(sets.Delete(t.Context(), "fire", metav1.DeleteOptions{}))
		api.clear(t)
	})
	t.Run("TheAPIServerIsAway", func(t *testing.T) {
		line := newLine(t, strings.TrimPrefix(server.Config.Host, "https://"))
		through := rest.CopyConfig(server.Config)
		through.Host = "https://" + line.address
		w := newWorld(t, clients, connect(t, through, user), api)
		w.Join("edge")
		other := platformtest.Fire()
		other.Name = "default/other"
		w.Deploy(platformtest.Fire())
		w.Deploy(other)
		w.until("the functions are there", func() bool { return len(w.p.State().Functions) == 2 })
		in := w.activate()
		w.Ready(in, address)
		w.until("it is ready", func() bool { return w.activate().Phase == platform.Ready })
		line.cut()
		w.until("it is noticed", func() bool { return w.p.Healthy() != nil })
		if again := w.activate(); again.ID != in.ID || again.Phase != platform.Ready {
			t.Errorf("bound to %+v", again)
		}
		_, err := w.p.Activate(t.Context(), platform.Request{Function: other.Name, Node: "edge"})
		if r, ok := errors.AsType[*platform.Refusal](err); !ok || r.Reason != "PlatformUnavailable" {
			t.Errorf("scale-up: %v", err)
		}
		w.wantPhases(platform.Ready)
		line.mend(t)
		w.until("it is back", func() bool { return w.p.Healthy() == nil })
		if _, err := w.p.Activate(t.Context(), platform.Request{Function: other.Name, Node: "edge"}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		w.stop()
		api.clear(t)
	})
}

// until waits for what the cluster, or the control plane, does by itself.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	patience := time.After(time.Minute)
	tick := time.NewTicker(clearPoll)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-patience:
			w.t.Fatalf("waiting until %s", what)
		}
	}
}

// line is the connection to an API server, which can be cut.
type line struct {
	address, to string

	mu       sync.Mutex
	listener net.Listener
	open     []net.Conn
	carrying sync.WaitGroup
}

func newLine(t *testing.T, to string) *line {
	l := &line{address: "127.0.0.1:0", to: to}
	l.mend(t)
	t.Cleanup(l.cut)
	return l
}

func (l *line) mend(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener, l.address = listener, listener.Addr().String()
	l.carrying.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", l.to)
			if err != nil {
				from.Close()
				continue
			}
			l.mu.Lock()
			l.open = append(l.open, from, to)
			l.mu.Unlock()
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				l.carrying.Go(func() { io.Copy(way[0], way[1]); way[0].Close() })
			}
		}
	})
}

func (l *line) cut() {
	l.mu.Lock()
	l.listener.Close()
	for _, c := range l.open {
		c.Close()
	}
	l.open = nil
	l.mu.Unlock()
	l.carrying.Wait()
}
