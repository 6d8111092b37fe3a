package kube_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var storesOf = stores.Stores{
	{Name: "default", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"videos"}},
	{Name: "archive", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"old"}, Namespaces: []string{"video"}},
}

var destinationsOf = destinations.Destinations{
	{Name: "orders", Kind: destinations.KindPostgres},
	{Name: "sessions", Kind: destinations.KindRedis, Namespaces: []string{"video"}},
}

func typesUID(n int) types.UID { return types.UID(strconv.Itoa(n)) }

// The kinds that a cluster may not have.
var optional = map[schema.GroupVersionResource]string{
	{Group: "serving.knative.dev", Version: "v1", Resource: "services"}:  "ServiceList",
	{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}: "RevisionList",
	{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}:   "ScaledObjectList",
	{Group: "headstart.dev", Version: "v1alpha1", Resource: "workflows"}: "WorkflowList",
}

var deployments = appsv1.SchemeGroupVersion.WithResource("deployments")

// fakeAPI is client-go's fakes, with what they lack: scale subresources, versions of
// Deployments, and kinds that are absent, forbidden or out of reach.
type fakeAPI struct {
	client  *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient

	mu      sync.Mutex
	version int
	// faults are the errors of calls, by verb and resource like "update deployments/scale"; "*" is all.
	faults map[string]error
	scaled []int32
}

func newFake() *fakeAPI {
	f := &fakeAPI{client: fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: kube.ReplicasName}}),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), optional), faults: map[string]error{}}
	for r := range optional {
		f.faults["list "+r.Resource+"."+r.Group] = apierrors.NewNotFound(r.GroupResource(), "")
		f.faults["watch "+r.Resource+"."+r.Group] = apierrors.NewNotFound(r.GroupResource(), "")
	}
	f.client.PrependReactor("*", "deployments", f.scale)
	f.client.PrependReactor("*", "*", f.fail)
	f.dynamic.PrependReactor("*", "*", f.fail)
	f.client.PrependWatchReactor("*", f.failWatch)
	f.dynamic.PrependWatchReactor("*", f.failWatch)
	return f
}

func (f *fakeAPI) clients() kube.Clients {
	return kube.Clients{Kubernetes: f.client, Dynamic: f.dynamic}
}

// fault sets what a call fails with; nil: it does not.
func (f *fakeAPI) fault(call string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[call] = err
}

func (f *fakeAPI) faultOf(a k8stesting.Action) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	resource := a.GetResource().Resource
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	if group := a.GetResource().Group; group != "" {
		resource += "." + group
	}
	if err := f.faults[a.GetVerb()+" "+resource]; err != nil {
		return err
	}
	return f.faults["*"]
}

func (f *fakeAPI) fail(a k8stesting.Action) (bool, runtime.Object, error) {
	err := f.faultOf(a)
	return err != nil, nil, err
}

func (f *fakeAPI) failWatch(a k8stesting.Action) (bool, watch.Interface, error) {
	err := f.faultOf(a)
	return err != nil, nil, err
}

// scale is the subresource.
func (f *fakeAPI) scale(a k8stesting.Action) (bool, runtime.Object, error) {
	if a.GetSubresource() != "scale" {
		return false, nil, nil
	}
	var name string
	var wanted *autoscalingv1.Scale
	switch a := a.(type) {
	case k8stesting.GetAction:
		name = a.GetName()
	case k8stesting.UpdateAction:
		wanted = a.GetObject().(*autoscalingv1.Scale)
		name = wanted.Name
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o, err := f.client.Tracker().Get(deployments, a.GetNamespace(), name)
	if err != nil {
		return true, nil, err
	}
	d := o.(*appsv1.Deployment).DeepCopy()
	if wanted != nil {
		if wanted.ResourceVersion != d.ResourceVersion {
			return true, nil, apierrors.NewConflict(deployments.GroupResource(), name, nil)
		}
		d.Spec.Replicas = &wanted.Spec.Replicas
		f.version++
		d.ResourceVersion = strconv.Itoa(f.version)
		f.scaled = append(f.scaled, wanted.Spec.Replicas)
		if err := f.client.Tracker().Update(deployments, d, a.GetNamespace()); err != nil {
			return true, nil, err
		}
	}
	return true, &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, ResourceVersion: d.ResourceVersion}, Spec: autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas}}, nil
}

func (f *fakeAPI) stamp(d *appsv1.Deployment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	d.ResourceVersion, d.UID = strconv.Itoa(f.version), types.UID("uid-of-"+d.Name)
}

func (f *fakeAPI) bind(ctx context.Context, pod, node string) error {
	p, err := f.client.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	p = p.DeepCopy()
	p.Spec.NodeName = node
	_, err = f.client.CoreV1().Pods(namespace).Update(ctx, p, metav1.UpdateOptions{})
	return err
}

// scales are the replicas that the platform has asked for.
func (f *fakeAPI) scales() []int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int32{}, f.scaled...)
}

// inBubble runs f with a cluster in a bubble.
func inBubble(t *testing.T, f func(t *testing.T, w *world, a *fakeAPI)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newFake()
		f(t, newWorld(t, a.clients(), a.clients(), a), a)
	})
}

func TestConformance(t *testing.T) {
	platformtest.Test(t, func(t *testing.T, test func(*testing.T, platformtest.World)) {
		inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) { test(t, w) })
	})
}
