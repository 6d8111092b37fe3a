package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// knativeOwned is the label of what Knative makes of its Services; the annotations on it
// are copies.
const knativeOwned = "serving.knative.dev/service"

// function is an object with annotations of ours.
type function struct {
	object      string
	namespace   string
	knative     bool
	annotations map[string]string
	service     corev1.Service // unless knative
}

// functions are the Services and Knative Services with an annotation of ours.
func (l *look) functions(ctx context.Context) ([]function, error) {
	services, err := objects.List[corev1.Service](ctx, l.Objects, objects.Services, l.Only, "!"+knativeOwned)
	if err != nil {
		return nil, err
	}
	var found []function
	for _, s := range services {
		if asks(s.Annotations) {
			found = append(found, function{
				object: "Service " + s.Namespace + "/" + s.Name, namespace: s.Namespace, annotations: s.Annotations,
				service: s,
			})
		}
	}
	served, err := l.Objects.Serves(ctx, objects.KnativeServices)
	if err != nil || !served {
		return found, err
	}
	knative, err := objects.List[metav1.PartialObjectMetadata](ctx, l.Objects, objects.KnativeServices, l.Only, "")
	if err != nil {
		return nil, err
	}
	for _, s := range knative {
		if asks(s.Annotations) {
			found = append(found, function{
				object: "Knative Service " + s.Namespace + "/" + s.Name, namespace: s.Namespace,
				annotations: s.Annotations, knative: true,
			})
		}
	}
	return found, nil
}

func asks(annotations map[string]string) bool {
	for key := range annotations {
		if policy.InDomain(key) {
			return true
		}
	}
	return false
}

func lookAnnotations(ctx context.Context, l *look) Outcome {
	functions, err := l.functions(ctx)
	if err != nil {
		return unknown("the Services", err)
	}
	configured, storesErr := l.stores(ctx)
	var problems []Problem
	wrong := 0
	for _, f := range functions {
		allowed := configured.list.For(f.namespace)
		if storesErr != nil { // another check's
			allowed = anyStore(f.annotations)
		}
		_, err := policy.Parse(f.annotations, allowed)
		if err == nil {
			continue
		}
		wrong++
		var all field.Errors
		if !errors.As(err, &all) {
			problems = append(problems, Problem{Object: f.object, Message: err.Error()})
		}
		for _, e := range all {
			problems = append(problems, Problem{Object: f.object, Message: e.Error()})
		}
	}
	if wrong > 0 {
		return fail("%d of %d annotated Services %s refused", wrong, len(functions), plural(wrong, "is", "are")).with(problems)
	}
	return pass("%d annotated %s", len(functions), plural(len(functions), "Service", "Services"))
}

// anyStore allows what the annotations ask for.
func anyStore(annotations map[string]string) stores.Stores {
	name := cmp.Or(annotations[policy.KeyStore], policy.DefaultStore)
	all := stores.Stores{inputStore(name, annotations)}
	bucket, triggered := policy.StreamBucket(annotations[policy.KeyTrigger])
	if !triggered {
		return all
	}
	queues := stores.Store{
		Name: cmp.Or(annotations[policy.KeyTriggerStore], name), Kind: stores.KindRedis, Buckets: []string{bucket},
	}
	switch {
	case queues.Name != name:
		return append(all, queues)
	case all[0].Kind == stores.KindRedis || all[0].Kind == "":
		queues.Buckets = append(queues.Buckets, all[0].Buckets...)
		return stores.Stores{queues}
	}
	return all // one store for both, which it cannot be
}

// inputStore is a store that the inputs may be read from.
func inputStore(name string, annotations map[string]string) stores.Store {
	store := stores.Store{Name: name}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		template, err := reference.ParseTemplate(annotations[key])
		if err != nil || key != policy.KeyInput && !strings.HasPrefix(key, filterapi.AnnotationNamed) {
			continue // policy.Parse tells what is wrong
		}
		kind := template.Scheme()
		if kind == reference.HTTPS {
			kind = stores.KindHTTP
		}
		bucket, _ := template.Bucket()
		store.Kind, store.Buckets = cmp.Or(store.Kind, kind), append(store.Buckets, bucket)
	}
	return store
}

// workload is what can be scaled.
type workload struct {
	kind, namespace, name string
	pods                  corev1.PodTemplateSpec
}

func (w workload) String() string { return w.kind + " " + w.namespace + "/" + w.name }

func lookScaling(ctx context.Context, l *look) Outcome {
	functions, err := l.functions(ctx)
	if err != nil {
		return unknown("the Services", err)
	}
	workloads, err := l.workloads(ctx)
	if err != nil {
		return unknown("Deployments and StatefulSets", err)
	}
	keepers, err := l.keepers(ctx)
	if err != nil {
		return unknown("the autoscalers", err)
	}
	var problems []Problem
	count := 0
	for _, f := range functions {
		if _, asks := f.annotations[policy.KeyScaleToZero]; !asks {
			continue
		}
		count++
		if m := scalingProblem(f, workloads, keepers); m != "" {
			problems = append(problems, Problem{Object: f.object, Message: m})
		}
	}
	if len(problems) > 0 {
		return fail("%d of %d %s not scaled", len(problems), count, plural(len(problems), "is", "are")).with(problems)
	}
	if count == 0 {
		return pass("no function asks for it")
	}
	return pass("%d", count)
}

func scalingProblem(f function, workloads []workload, keepers map[string]string) string {
	if f.knative {
		return policy.KeyScaleToZero + " has no effect: Knative scales it; remove it"
	}
	of := f.workloads(workloads)
	switch {
	case len(of) == 0:
		return "it selects the pods of no Deployment or StatefulSet: there is nothing to scale"
	case len(of) > 1:
		return fmt.Sprintf("it selects the pods of %s and of %s, and only one can be scaled", of[0], of[1])
	}
	if keeps := keepers[of[0].String()]; keeps != "" {
		return policy.KeyScaleToZero + " has no effect: " + keeps + " of " + of[0].String() + "; set its minReplicaCount to 0"
	}
	return ""
}

// workloads are those of all whose pods the function has.
func (f function) workloads(all []workload) []workload {
	var of []workload
	for _, w := range all {
		if w.namespace == f.namespace && catalog.Matches(f.service.Spec.Selector, w.pods.Labels) {
			of = append(of, w)
		}
	}
	return of
}

func (l *look) workloads(ctx context.Context) ([]workload, error) {
	var all []workload
	deployments, err := objects.List[appsv1.Deployment](ctx, l.Objects, objects.Deployments, l.Only, "")
	if err != nil {
		return nil, err
	}
	for _, d := range deployments {
		all = append(all, workload{"Deployment", d.Namespace, d.Name, d.Spec.Template})
	}
	sets, err := objects.List[appsv1.StatefulSet](ctx, l.Objects, objects.StatefulSets, l.Only, "")
	for _, s := range sets {
		all = append(all, workload{"StatefulSet", s.Namespace, s.Name, s.Spec.Template})
	}
	return all, err
}

// scaledObject is KEDA's, as far as it says what it scales, and from how many replicas on.
type scaledObject struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Target struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		Least int  `json:"minReplicaCount"`
		Idle  *int `json:"idleReplicaCount"`
	} `json:"spec"`
}

// keepers returns who keeps a workload from zero, by its String. HorizontalPodAutoscalers do not: they rest while there are
// no replicas. KEDA's own are among them.
func (l *look) keepers(ctx context.Context) (map[string]string, error) {
	by := map[string]string{}
	served, err := l.Objects.Serves(ctx, objects.ScaledObjects)
	if err != nil || !served {
		return by, err
	}
	scaled, err := objects.List[scaledObject](ctx, l.Objects, objects.ScaledObjects, l.Only, "")
	for _, s := range scaled {
		target := workload{kind: "Deployment", namespace: s.Namespace, name: s.Spec.Target.Name}
		if s.Spec.Target.Kind != "" {
			target.kind = s.Spec.Target.Kind
		}
		least := s.Spec.Least
		if s.Spec.Idle != nil {
			least = *s.Spec.Idle
		}
		if least > 0 {
			by[target.String()] = fmt.Sprintf("KEDA's ScaledObject %s keeps %d replicas", s.Name, least)
		}
	}
	return by, err
}
