package advice

import (
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/history"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// shop is a cluster with one Deployment of two replicas, and the Services of these names before it.
func shop(names ...string) (*cluster, *object.Workload, []corev1.Service) {
	w := &object.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"}, Kind: object.Deployment, Replicas: 2, Labels: map[string]string{"app": "cart"}}
	pod := podOf(1, 1, 4)
	pod.Labels = w.Labels
	c := &cluster{workloads: map[string][]*object.Workload{"shop": {w}}, scalers: map[string][]*object.Scaler{},
		gateways: map[key]bool{{"istio-system", "gateway"}: true}, pods: map[string][]corev1.Pod{"shop": {pod}}}
	var services []corev1.Service
	for _, name := range names {
		services = append(services, corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Selector: w.Labels}})
	}
	return c, w, services
}

func TestAdvise(t *testing.T) {
	const day, step = 24 * time.Hour, time.Minute
	asked := Asked{Window: history.Window{From: created, To: created.Add(day), Step: step}, Bandwidth: 1e6, Worth: 100}
	hourly, busy := sampled(every(time.Hour, day), day, step), sampled(every(10*time.Second, day), day, step)
	of := func(requests []float64, body float64) used {
		total := history.Sum(requests)
		return used{requests: requests, total: total, bytes: total * body, duration: total * 5000}
	}
	idle := map[string]string{"headstart.dev/scale-to-zero": "1m"}
	body := map[string]string{"headstart.dev/input": "body"}
	both := maps.Clone(idle)
	maps.Copy(both, body)
	keda := func(least int32) func(*cluster, *object.Workload, []corev1.Service) {
		return func(c *cluster, w *object.Workload, _ []corev1.Service) {
			c.scalers["shop"] = []*object.Scaler{{ObjectMeta: metav1.ObjectMeta{Name: "cart"}, Kind: object.ScaledObject, TargetKind: w.Kind, TargetName: w.Name, Least: least}}
		}
	}
	annotated := func(annotations map[string]string) func(*cluster, *object.Workload, []corev1.Service) {
		return func(_ *cluster, _ *object.Workload, s []corev1.Service) { s[0].Annotations = annotations }
	}
	by := func(u used, callers map[key]bool) map[string]used {
		u.callers = callers
		return map[string]used{"cart": u}
	}
	gateway, sidecar := key{"istio-system", "gateway"}, key{"shop", "checkout"}
	for name, c := range map[string]struct {
		uses   map[string]used
		change func(*cluster, *object.Workload, []corev1.Service)
		want   map[string]string // of the first service
		reason string
	}{
		"idle":               {map[string]used{"cart": of(hourly, 600)}, nil, idle, ""},
		"with bodies":        {map[string]used{"cart": of(hourly, 2e6)}, nil, both, ""},
		"busy":               {map[string]used{"cart": of(busy, 600)}, nil, nil, "its pauses are too short"},
		"KEDA, to zero":      {map[string]used{"cart": of(hourly, 2e6)}, keda(0), body, ""},
		"KEDA, without body": {map[string]used{"cart": of(hourly, 600)}, keda(0), nil, "ScaledObject cart scales it to zero"},
		"KEDA, keeps one":    {map[string]used{"cart": of(hourly, 600)}, keda(1), nil, "ScaledObject cart keeps 1: let it scale to zero by minReplicaCount: 0"},
		"called by gateways": {by(of(hourly, 600), map[key]bool{gateway: true}), nil, idle, ""},
		"called by others too": {by(of(hourly, 600), map[key]bool{gateway: true, sidecar: true, {"shop", "page"}: true}), nil, nil,
			"requests from shop/checkout and 1 more bypass the gateways"},
		"called by nobody knows whom": {by(of(hourly, 600), map[key]bool{{"unknown", unknown}: true}), nil, nil,
			"requests from callers without a proxy bypass the gateways"},
		"called by daemons": {by(of(hourly, 600), map[key]bool{gateway: true, {"unknown", unknown}: true}),
			annotated(map[string]string{"headstart.dev/input": "s3://a/b"}), idle, ""},
		"KEDA, called by others": {by(of(hourly, 2e6), map[key]bool{sidecar: true}), keda(0), body, ""},
		"has its own input":      {map[string]used{"cart": of(hourly, 2e6)}, annotated(map[string]string{"headstart.dev/input": "s3://a/b"}), idle, ""},
		"has a named input":      {map[string]used{"cart": of(hourly, 2e6)}, annotated(map[string]string{"headstart.dev/input.mask": "s3://a/b"}), idle, ""},
		"has its annotations":    {map[string]used{"cart": of(hourly, 600)}, annotated(map[string]string{"headstart.dev/scale-to-zero": "5m"}), nil, "headstart report"},
		"at zero": {map[string]used{"cart": of(hourly, 600)}, func(c *cluster, w *object.Workload, _ []corev1.Service) {
			w.Replicas, c.pods = 0, nil
		}, nil, "it is at zero now"},
		"made just now": {map[string]used{"cart": of(hourly, 600)}, func(_ *cluster, w *object.Workload, _ []corev1.Service) {
			w.CreationTimestamp = metav1.NewTime(created.Add(day - time.Minute))
		}, nil, "too little is known of it yet"},
		"shared with a busy one":  {map[string]used{"admin": of(hourly, 600), "cart": of(busy, 600)}, nil, nil, "its pauses are too short"},
		"shared with an idle one": {map[string]used{"admin": of(hourly, 600), "cart": of(hourly, 600)}, nil, idle, ""},
	} {
		t.Run(name, func(t *testing.T) {
			uses, names := map[key]used{}, []string{}
			for _, service := range []string{"admin", "cart"} {
				if u, ok := c.uses[service]; ok {
					uses[key{"shop", service}], names = u, append(names, service)
				}
			}
			in, w, services := shop(names...)
			if c.change != nil {
				c.change(in, w, services)
			}
			got := in.advise(w, services, uses, asked)
			if d := cmp.Diff(c.want, got[0].Annotations); d != "" || !strings.Contains(got[0].Reason, c.reason) || (c.reason == "") != (got[0].Reason == "") {
				t.Errorf("%s%+v", d, got[0])
			}
			if len(got) == 2 {
				if d := cmp.Diff(got[0].Annotations, got[1].Annotations); d != "" || got[1].IdleReplicaSeconds != 0 || got[0].With[0] != "cart" || got[1].With[0] != "admin" {
					t.Errorf("%s%+v", d, got)
				}
			}
		})
	}
}

func TestWorkload(t *testing.T) {
	c, w, services := shop("cart")
	services[0].Spec.Selector = nil
	if _, reason := c.workload(services[0]); reason != "the Service has no selector" {
		t.Error(reason)
	}
	services[0].Spec.Selector = map[string]string{"app": "other"}
	if _, reason := c.workload(services[0]); reason != "no Deployment or StatefulSet has its pods" {
		t.Error(reason)
	}
	services[0].Spec.Selector = w.Labels
	c.workloads["shop"] = append(c.workloads["shop"], w)
	if _, reason := c.workload(services[0]); reason != "2 workloads have its pods, and Headstart scales one" {
		t.Error(reason)
	}
}

// Without requests there is no series: then nothing was asked for, if somebody looked.
func TestKnown(t *testing.T) {
	nan := math.NaN()
	got := known([]float64{1, nan, 2, nan, 3, 0}, []float64{5, 5, 5, nan, 5, 5})
	if d := cmp.Diff([]float64{nan, 0, 2, nan, nan, 0}, got, cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })); d != "" {
		t.Error(d)
	}
}
