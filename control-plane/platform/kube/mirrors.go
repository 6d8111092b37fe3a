package kube

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/mirror"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// knativePublic finds the EndpointSlices of the Services that Knative routes requests to.
const knativePublic = "networking.internal.knative.dev/serviceType=Public"

// knativeRevision is the label that names the revision that a pod is of.
const knativeRevision = "serving.knative.dev/revision"

// The kinds that a cluster may not have.
var (
	knativeService = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
	revision       = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}
	workflows      = schema.GroupVersionResource{Group: "headstart.dev", Version: "v1alpha1", Resource: "workflows"}
	scaledObject   = schema.GroupVersionResource{Group: "keda.sh", Version: "v1alpha1", Resource: "scaledobjects"}
)

// mirrors are the copies of what the cluster has.
type mirrors struct {
	services                  *mirror.Mirror[*object.Service]
	pods                      *mirror.Mirror[*object.Pod]
	nodes                     *mirror.Mirror[*object.Node]
	deployments, statefulSets *mirror.Mirror[*object.Workload]
	autoscalers               *mirror.Mirror[*object.Scaler]
	scaledObjects             *mirror.Mirror[*object.Scaler]
	knativeServices           *mirror.Mirror[*object.KnativeService]
	revisions                 *mirror.Mirror[*object.Revision]
	endpoints                 *mirror.Mirror[*object.Endpoints]
	workflows                 *mirror.Mirror[*object.Workflow]
	replicas                  *mirror.Mirror[*object.Replicas]

	told []mirror.Status // what the log has of them
}

// one is what all mirrors have, whatever they are of.
type one interface {
	Run(ctx context.Context)
	Settled() <-chan struct{}
	Status() mirror.Status
}

func (m *mirrors) all() []one {
	return []one{m.services, m.pods, m.nodes, m.deployments, m.statefulSets, m.autoscalers, m.scaledObjects, m.knativeServices, m.revisions, m.endpoints, m.workflows, m.replicas}
}

func (m *mirrors) start(ctx context.Context, wg *sync.WaitGroup) {
	for _, o := range m.all() {
		wg.Go(func() { o.Run(ctx) })
	}
}

func (m *mirrors) settled() []<-chan struct{} {
	var all []<-chan struct{}
	for _, o := range m.all() {
		all = append(all, o.Settled())
	}
	return all
}

func (p *Platform) newMirrors() mirrors {
	k := p.clients.Kubernetes
	return mirrors{
		services: mirror.New(mirror.Kind[*object.Service]{Resource: "services", Keep: object.ServiceOf,
			Source: typed(k, k.CoreV1().Services(""))}, &p.mu, p.serviceChanged),
		pods: mirror.New(mirror.Kind[*object.Pod]{Resource: "pods", Keep: object.PodOf,
			Source: typed(k, k.CoreV1().Pods(""))}, &p.mu, p.podChanged),
		nodes: mirror.New(mirror.Kind[*object.Node]{Resource: "nodes", Keep: object.NodeOf,
			Source: typed(k, k.CoreV1().Nodes())}, &p.mu, p.nodeChanged),
		deployments: mirror.New(mirror.Kind[*object.Workload]{Group: "apps", Resource: "deployments", Keep: object.WorkloadOf,
			Source: typed(k, k.AppsV1().Deployments(""))}, &p.mu, p.workloadChanged),
		statefulSets: mirror.New(mirror.Kind[*object.Workload]{Group: "apps", Resource: "statefulsets", Keep: object.WorkloadOf,
			Source: typed(k, k.AppsV1().StatefulSets(""))}, &p.mu, p.workloadChanged),
		autoscalers: mirror.New(mirror.Kind[*object.Scaler]{Group: "autoscaling", Resource: "horizontalpodautoscalers", Keep: object.ScalerOf,
			Source: typed(k, k.AutoscalingV2().HorizontalPodAutoscalers(""))}, &p.mu, p.scalerChanged),
		scaledObjects: mirror.New(mirror.Kind[*object.Scaler]{Group: scaledObject.Group, Resource: scaledObject.Resource, Optional: true, Keep: object.ScalerOf,
			Source: p.untyped(scaledObject)}, &p.mu, p.scalerChanged),
		knativeServices: mirror.New(mirror.Kind[*object.KnativeService]{Group: knativeService.Group, Resource: knativeService.Resource, Optional: true, Keep: object.KnativeServiceOf,
			Source: p.untyped(knativeService)}, &p.mu, again[*object.KnativeService](p)),
		revisions: mirror.New(mirror.Kind[*object.Revision]{Group: revision.Group, Resource: revision.Resource, Optional: true, Keep: object.RevisionOf,
			Source: p.untyped(revision)}, &p.mu, again[*object.Revision](p)),
		workflows: mirror.New(mirror.Kind[*object.Workflow]{Group: workflows.Group, Resource: workflows.Resource, Optional: true, Keep: object.WorkflowOf,
			Source: p.untyped(workflows)}, &p.mu, p.workflowChanged),
		endpoints: mirror.New(mirror.Kind[*object.Endpoints]{Group: "discovery.k8s.io", Resource: "endpointslices", Optional: true, Keep: object.EndpointsOf,
			Source: selected{typed(k, k.DiscoveryV1().EndpointSlices("")), labelled(knativePublic)}}, &p.mu, p.endpointsChanged),
		replicas: mirror.New(mirror.Kind[*object.Replicas]{Resource: "configmaps", Keep: object.ReplicasOf,
			Source: selected{typed(k, k.CoreV1().ConfigMaps(p.namespace)), named(ReplicasName)}}, &p.mu, func(_, _ *object.Replicas) {}),
	}
}

// clusterwide is the part of client-go's typed clients that a mirror uses.
type clusterwide[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// source is one of client-go's clients as a mirror's Source.
type source[L runtime.Object] struct {
	clusterwide[L]
	client any
}

// typed returns the Source of one of k's clients.
func typed[L runtime.Object](k any, c clusterwide[L]) mirror.Source { return source[L]{c, k} }

func (p *Platform) untyped(r schema.GroupVersionResource) mirror.Source {
	return typed(p.clients.Dynamic, p.clients.Dynamic.Resource(r))
}

// List implements mirror.Source.
func (s source[L]) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := s.clusterwide.List(ctx, o)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// IsWatchListSemanticsUnSupported implements mirror.Source: client-go's fakes say so of
// themselves.
func (s source[L]) IsWatchListSemanticsUnSupported() bool {
	c, says := s.client.(interface{ IsWatchListSemanticsUnSupported() bool })
	return says && c.IsWatchListSemanticsUnSupported()
}

// selected is the part of a source that a selector finds.
type selected struct {
	mirror.Source
	selector func(*metav1.ListOptions)
}

func labelled(selector string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.LabelSelector = selector }
}

func named(name string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
}

// List implements mirror.Source.
func (s selected) List(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.selector(&o)
	return s.Source.List(ctx, o)
}

// Watch implements mirror.Source.
func (s selected) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	s.selector(&o)
	return s.Source.Watch(ctx, o)
}

// Kinds says how the copy of each kind is.
func (p *Platform) Kinds() []mirror.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []mirror.Status
	for _, o := range p.mirrors.all() {
		all = append(all, o.Status())
	}
	return all
}
