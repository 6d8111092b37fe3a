package advice

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// knativeOwned is the label of what Knative makes of its Services.
const knativeOwned = "serving.knative.dev/service"

// cluster is what the API server says.
type cluster struct {
	services  map[key]corev1.Service
	workloads map[string][]*object.Workload // by namespace
	scalers   map[string][]*object.Scaler
	pods      map[string][]corev1.Pod
	gateways  map[key]bool // workloads
}

func gather(ctx context.Context, r *objects.Reader, namespace string) (*cluster, error) {
	c := &cluster{services: map[key]corev1.Service{}, workloads: map[string][]*object.Workload{},
		scalers: map[string][]*object.Scaler{}, pods: map[string][]corev1.Pod{}}
	services, err := objects.List[corev1.Service](ctx, r, objects.Services, namespace, "!"+knativeOwned)
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		c.services[key{s.Namespace, s.Name}] = s
	}
	pods, err := objects.List[corev1.Pod](ctx, r, objects.Pods, namespace, "")
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		c.pods[p.Namespace] = append(c.pods[p.Namespace], p)
	}
	return c, errors.Join(
		into(ctx, r, namespace, objects.Deployments, func(d *appsv1.Deployment) (*object.Workload, error) { return object.WorkloadOf(d) }, c.workloads),
		into(ctx, r, namespace, objects.StatefulSets, func(s *appsv1.StatefulSet) (*object.Workload, error) { return object.WorkloadOf(s) }, c.workloads),
		// Before the HorizontalPodAutoscalers that KEDA makes of them.
		into(ctx, r, namespace, objects.ScaledObjects, func(u *unstructured.Unstructured) (*object.Scaler, error) { return object.ScalerOf(u) }, c.scalers),
		into(ctx, r, namespace, objects.Autoscalers,
			func(h *autoscalingv2.HorizontalPodAutoscaler) (*object.Scaler, error) { return object.ScalerOf(h) }, c.scalers))
}

// into lists a kind by namespace, if the API server knows it.
func into[T any, O metav1.Object](ctx context.Context, r *objects.Reader, namespace string, gvr schema.GroupVersionResource,
	of func(*T) (O, error), to map[string][]O) error {
	served, err := r.Serves(ctx, gvr)
	if err != nil || !served {
		return err
	}
	all, err := objects.List[T](ctx, r, gvr, namespace, "")
	for i := range all {
		o, err := of(&all[i])
		if err != nil {
			return err
		}
		to[o.GetNamespace()] = append(to[o.GetNamespace()], o)
	}
	return err
}

// workload is the one that has the service's pods, or why it is none that Headstart scales.
func (c *cluster) workload(s corev1.Service) (*object.Workload, string) {
	if len(s.Spec.Selector) == 0 {
		return nil, "the Service has no selector"
	}
	var found []*object.Workload
	for _, w := range c.workloads[s.Namespace] {
		if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(w.Labels)) {
			found = append(found, w)
		}
	}
	switch len(found) {
	case 0:
		return nil, "no Deployment or StatefulSet has its pods"
	case 1:
		return found[0], ""
	}
	return nil, fmt.Sprintf("%d workloads have its pods, and Headstart scales one", len(found))
}

// gatewaysAmong finds the gateways of Istio among the callers of services. listed is the namespace of the pods that are known; empty: all are.
func (c *cluster) gatewaysAmong(ctx context.Context, r *objects.Reader, listed string, uses map[key]used) error {
	namespaces := map[string]bool{}
	for _, u := range uses {
		for caller := range u.callers {
			if caller.name != unknown {
				namespaces[caller.namespace] = true
			}
		}
	}
	c.gateways = map[key]bool{}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		if listed != "" && listed != namespace {
			pods, err := objects.List[corev1.Pod](ctx, r, objects.Pods, namespace, "")
			if err != nil {
				return err
			}
			c.pods[namespace] = pods
		}
		for _, p := range c.pods[namespace] {
			proxy := objects.Router(p)
			if proxy == nil {
				continue
			}
			for _, e := range proxy.Env {
				if e.Name == workloadName {
					c.gateways[key{namespace, e.Value}] = true
				}
			}
		}
	}
	return nil
}

// workloadName is the variable by which a proxy of Istio knows what metrics call its workload.
const workloadName = "ISTIO_META_WORKLOAD_NAME"

// unknown is Istio's name for a caller that has no proxy.
const unknown = "unknown"

// inside tells that requests came from elsewhere than gateways, which alone wait for a start: "" if none did.
func (c *cluster) inside(u used) string {
	var others []string
	for caller := range u.callers {
		switch {
		case c.gateways[caller]:
		case caller.name == unknown:
			others = append(others, "callers without a proxy")
		default:
			others = append(others, caller.namespace+"/"+caller.name)
		}
	}
	if len(others) == 0 {
		return ""
	}
	slices.Sort(others)
	more := ""
	if len(others) > 1 {
		more = fmt.Sprintf(" and %d more", len(others)-1)
	}
	return fmt.Sprintf("requests from %s%s bypass the gateways: at zero they would fail", others[0], more)
}

// scaler is the autoscaler of a workload; nil: it has none.
func (c *cluster) scaler(w *object.Workload) *object.Scaler {
	for _, s := range c.scalers[w.Namespace] {
		if s.TargetKind == w.Kind && s.TargetName == w.Name {
			return s
		}
	}
	return nil
}

// podsOf are those of a service.
func (c *cluster) podsOf(s corev1.Service) (pods []corev1.Pod) {
	for _, p := range c.pods[s.Namespace] {
		if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

// text is an idle window as people write it.
func text(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
