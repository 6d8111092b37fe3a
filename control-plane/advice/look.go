package advice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

const (
	// kedaCooldown is KEDA's default of cooldownPeriod.
	kedaCooldown = 5 * time.Minute
	// servicesMost bounds what one question takes from Prometheus: 100 MB.
	servicesMost = 500
)

// knativeOwned is the label of what Knative makes of its Services.
const knativeOwned = "serving.knative.dev/service"

// History is what has been kept of the mesh's metrics.
type History interface {
	Range(ctx context.Context, expr string, w history.Window) ([]history.Series, error)
}

// Asked is what is to be advised on.
type Asked struct {
	// Namespace is the only one; empty: all.
	Namespace string
	Window    history.Window
	// Bandwidth is with how many bytes per second clients send.
	Bandwidth float64
	// Worth is how much longer than a client waits a replica has to be away for that.
	Worth float64
}

// Service is a service with what it would gain.
type Service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Requests are those of the time that was looked at.
	Requests float64 `json:"requests"`
	Replicas int     `json:"replicas"`
	// StartSeconds is what a pod takes to become ready, BodyBytes the mean of a request's, with its headers.
	StartSeconds float64 `json:"startSeconds"`
	BodyBytes    float64 `json:"bodyBytes"`
	// Annotations are those to set, none if the service stays as it is.
	Annotations map[string]string `json:"annotations,omitempty"`
	// IdleReplicaSeconds would be saved, ColdStarts requests wait WaitedSeconds in all, and OverlappedSeconds less than if the body
	// came after the start.
	IdleReplicaSeconds float64 `json:"idleReplicaSeconds"`
	ColdStarts         float64 `json:"coldStarts"`
	WaitedSeconds      float64 `json:"waitedSeconds"`
	OverlappedSeconds  float64 `json:"overlappedSeconds"`
	// Reason is why there is nothing to set.
	Reason string `json:"reason,omitempty"`
}

// sums of Istio's standard metrics, by service and by who has counted: a request is counted by both of its ends, if both are in
// the mesh.
const (
	requestsOf  = `sum by (destination_service_namespace, destination_service_name, reporter) (istio_requests_total%s)`
	bytesOf     = `sum by (destination_service_namespace, destination_service_name, reporter) (istio_request_bytes_sum%s)`
	durationsOf = `sum by (destination_service_namespace, destination_service_name, reporter) (istio_request_duration_milliseconds_sum%s)`
)

type key struct{ namespace, name string }

// used is what those who count say of a service.
type used struct {
	requests        []float64
	total           float64
	bytes, duration float64 // of all requests; ms
}

// Look advises on the services that the mesh has counted requests of. Those that would gain most come first.
func Look(ctx context.Context, r *objects.Reader, h History, a Asked) ([]Service, error) {
	uses, err := read(ctx, h, a)
	if err != nil {
		return nil, err
	}
	c, err := gather(ctx, r, a.Namespace)
	if err != nil {
		return nil, err
	}
	services := []Service{}
	for k, u := range uses {
		if s, ok := c.services[k]; ok {
			services = append(services, c.advise(s, u, a))
		}
	}
	slices.SortFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(b.IdleReplicaSeconds, a.IdleReplicaSeconds), cmp.Compare(b.OverlappedSeconds, a.OverlappedSeconds),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return services, nil
}

// read asks what the mesh has counted. Of those who count a service's requests it takes the one with the most.
func read(ctx context.Context, h History, a Asked) (map[key]used, error) {
	only := ""
	if a.Namespace != "" {
		only = fmt.Sprintf("{destination_service_namespace=%q}", a.Namespace)
	}
	type counter struct {
		key
		reporter string
	}
	counterOf := func(s history.Series) counter {
		return counter{key{s.Labels["destination_service_namespace"], s.Labels["destination_service_name"]}, s.Labels["reporter"]}
	}
	all := map[counter]*used{}
	requests, err := h.Range(ctx, fmt.Sprintf(requestsOf, only), a.Window)
	if err != nil {
		return nil, err
	}
	for _, s := range requests {
		grown := history.Growth(s.Values)
		all[counterOf(s)] = &used{requests: grown, total: history.Sum(grown)}
	}
	for expr, add := range map[string]func(u *used, grown float64){
		bytesOf:     func(u *used, grown float64) { u.bytes = grown },
		durationsOf: func(u *used, grown float64) { u.duration = grown },
	} {
		series, err := h.Range(ctx, fmt.Sprintf(expr, only), a.Window)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if u := all[counterOf(s)]; u != nil {
				add(u, history.Sum(history.Growth(s.Values)))
			}
		}
	}
	most := map[key]used{}
	for c, u := range all {
		if best, ok := most[c.key]; !ok || u.total > best.total {
			most[c.key] = *u
		}
	}
	if len(most) > servicesMost {
		return nil, fmt.Errorf("the mesh has counted requests of %d services, more than the %d that are advised on at once: name one namespace by -n",
			len(most), servicesMost)
	}
	return most, nil
}

// cluster is what the API server says.
type cluster struct {
	services  map[key]corev1.Service
	workloads map[string][]*object.Workload // by namespace
	scalers   map[string][]*object.Scaler
	pods      map[string][]corev1.Pod
}

func gather(ctx context.Context, r *objects.Reader, namespace string) (*cluster, error) {
	c := &cluster{services: map[key]corev1.Service{}, workloads: map[string][]*object.Workload{}, scalers: map[string][]*object.Scaler{}, pods: map[string][]corev1.Pod{}}
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
		into(ctx, r, namespace, objects.Autoscalers,
			func(h *autoscalingv2.HorizontalPodAutoscaler) (*object.Scaler, error) { return object.ScalerOf(h) }, c.scalers),
		into(ctx, r, namespace, objects.ScaledObjects, func(u *unstructured.Unstructured) (*object.Scaler, error) { return object.ScalerOf(u) }, c.scalers))
}

// into lists a kind by namespace, if the API server knows it.
func into[T any, O metav1.Object](ctx context.Context, r *objects.Reader, namespace string, gvr schema.GroupVersionResource, of func(*T) (O, error), to map[string][]O) error {
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

// advise is on one service.
func (c *cluster) advise(s corev1.Service, u used, a Asked) Service {
	out := Service{Namespace: s.Namespace, Name: s.Name, Requests: u.total}
	if u.total > 0 {
		out.BodyBytes = u.bytes / u.total
	}
	w, reason := c.workload(s)
	if out.Reason = reason; w == nil {
		return out
	}
	start, known := Start(c.podsOf(s))
	out.Replicas, out.StartSeconds = int(w.Replicas), start.Seconds()
	use := Use{Requests: u.requests, Step: a.Window.Step, Start: start, Replicas: int(w.Replicas)}
	if u.total > 0 {
		use.Duration = time.Duration(u.duration / u.total * float64(time.Millisecond))
		use.Upload = min(use.Duration, time.Duration(out.BodyBytes/a.Bandwidth*float64(time.Second)))
	}
	by := ""
	for _, scaler := range c.scalers[s.Namespace] {
		if scaler.TargetKind != w.Kind || scaler.TargetName != w.Name {
			continue
		}
		if use.Replicas = min(use.Replicas, int(scaler.Least)); scaler.Least == 0 {
			use.Anothers, by = kedaCooldown, scaler.Kind+" "+scaler.Name
		}
	}
	switch {
	case u.total == 0:
		out.Reason = "the mesh has counted no request"
		return out
	case !known:
		out.Reason = "no pod tells how long it takes to start: all have been restarted, or none is ready"
		return out
	}
	g := Of(use, a.Worth)
	out.IdleReplicaSeconds, out.ColdStarts, out.WaitedSeconds, out.OverlappedSeconds = g.Idle.Seconds(), g.Cold, g.Waited.Seconds(), g.Overlapped.Seconds()
	set := map[string]string{}
	if g.Window > 0 {
		set[policy.KeyScaleToZero] = text(g.Window)
	}
	if g.Overlapped > 0 {
		set[policy.KeyInput] = policy.InputBody
	}
	switch {
	case len(set) > 0:
		out.Annotations = set
	case by != "":
		out.Reason = by + " scales it to zero, and its requests have no bodies to speak of: an input of a store would help"
	default:
		out.Reason = "its pauses are too short for what a start costs"
	}
	return out
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

func (c *cluster) podsOf(s corev1.Service) (pods []corev1.Pod) {
	for _, p := range c.pods[s.Namespace] {
		if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
			pods = append(pods, p)
		}
	}
	return pods
}

// text is a window as people write it.
func text(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
