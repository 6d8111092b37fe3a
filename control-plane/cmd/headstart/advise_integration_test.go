//go:build integration

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/control-plane/history/historytest"
)

// week is what the ten services' metrics are of.
const week = 7 * 24 * time.Hour

// asked is how often Prometheus asks: with half of that the test takes twice as long.
const asked = 2 * time.Minute

// known is a service whose requests are known to the second, so that its gain is, too.
type known struct {
	name     string
	replicas int
	start    time.Duration
	body     float64 // bytes
	scaler   string  // KEDA's ScaledObject, of which it makes a HorizontalPodAutoscaler
	caller   string  // a workload of istio-system; "": the gateway
	ends     []time.Duration
	// gains says whether it is to be advised; upload whether by its bodies.
	gains, upload bool
}

func evenly(pause time.Duration) (ends []time.Duration) {
	for at := pause / 2; at < week; at += pause {
		ends = append(ends, at)
	}
	return ends
}

func randomly(seed uint64, pause time.Duration) (ends []time.Duration) {
	r := rand.New(rand.NewPCG(seed, 7))
	for at := time.Duration(0); ; {
		if at += time.Duration(r.ExpFloat64() * float64(pause)); at >= week {
			return ends
		}
		ends = append(ends, at)
	}
}

// during leaves only what is between two hours of each day.
func during(from, to int, ends []time.Duration) []time.Duration {
	return slices.DeleteFunc(ends, func(at time.Duration) bool {
		hour := int(at.Hours()) % 24
		return hour < from || hour >= to
	})
}

func services() []known {
	bursts := []time.Duration{}
	for at := time.Hour; at < week; at += 2 * time.Hour {
		for i := range 50 {
			bursts = append(bursts, at+time.Duration(i)*2*time.Second)
		}
	}
	return []known{
		{name: "nightly", replicas: 1, start: 4 * time.Second, ends: evenly(24 * time.Hour), gains: true},
		{name: "hourly", replicas: 2, start: 2 * time.Second, ends: evenly(time.Hour), gains: true},
		{name: "resize", replicas: 2, start: 3 * time.Second, body: 12e6, ends: randomly(1, 20*time.Minute), gains: true, upload: true},
		{name: "batch", replicas: 3, start: 5 * time.Second, body: 200e6, ends: randomly(2, 3*time.Hour), gains: true, upload: true},
		{name: "office", replicas: 4, start: 6 * time.Second, ends: during(8, 18, randomly(3, 10*time.Second)), gains: true},
		{name: "bursts", replicas: 1, start: 8 * time.Second, ends: bursts, gains: true},
		{name: "cart", replicas: 3, start: 2 * time.Second, ends: evenly(5 * time.Second)},
		{name: "model", replicas: 1, start: 45 * time.Second, ends: randomly(4, 4*time.Minute)},
		{name: "scaled", replicas: 1, start: 4 * time.Second, body: 25e6, ends: randomly(5, time.Hour), gains: true, upload: true,
			scaler: `{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","metadata":{"name":"scaled","namespace":"shop"},"spec":{"scaleTargetRef":{"name":"scaled"}}}`},
		{name: "scaled-plain", replicas: 0, start: 4 * time.Second, ends: randomly(6, time.Hour),
			scaler: `{"apiVersion":"keda.sh/v1alpha1","kind":"ScaledObject","metadata":{"name":"plain","namespace":"shop"},"spec":{"scaleTargetRef":{"name":"scaled-plain"}}}`},
	}
}

// Advice for ten services of known gain is right in sign for all, and within 30 % for eight. One that is called inside the mesh, too,
// is to stay as it is.
func TestAdviceOfTenServices(t *testing.T) {
	all := services()
	inside := known{name: "inside", replicas: 1, start: time.Second, ends: evenly(time.Hour), caller: "checkout"}
	there := append(slices.Clone(all), inside)
	prometheus, err := url.Parse(historytest.Start(t, istioMetrics(there, time.Now().Add(-week))))
	if err != nil {
		t.Fatal(err)
	}
	config := kubeconfig(t, &backend{}, func(s *apiServer) {
		s.objects = mergedObjects(there)
		s.services = map[string]*httputil.ReverseProxy{"/api/v1/namespaces/istio-system/services/prometheus:9090/proxy": httputil.NewSingleHostReverseProxy(prometheus)}
	})
	stdout, stderr, err := headstart(t, "", "advise", "-n", "shop", "-o", "json", "--kubeconfig", config)
	if err != nil || stderr != "" {
		t.Fatal(err, stderr)
	}
	var advised []advice.Service
	if err := json.Unmarshal([]byte(stdout), &advised); err != nil {
		t.Fatal(err)
	}
	near := 0
	for _, k := range all {
		i := slices.IndexFunc(advised, func(s advice.Service) bool { return s.Name == k.name })
		if i < 0 {
			t.Errorf("nothing is said of %s", k.name)
			continue
		}
		s := advised[i]
		if got := len(s.Annotations) > 0; got != k.gains || (s.Annotations["headstart.dev/input"] == "body") != k.upload || got != (s.Reason == "") {
			t.Errorf("%s: %+v", k.name, s)
		}
		idle, saved := k.gain(t, s)
		t.Logf("%-13s %v: idle replicas %.1f h of known %.1f, overlapped %.1f s of %.1f", k.name, s.Annotations, s.IdleReplicaSeconds/3600, idle/3600, s.OverlappedSeconds, saved)
		if within(s.IdleReplicaSeconds, idle) && within(s.OverlappedSeconds, saved) {
			near++
		}
	}
	if i := slices.IndexFunc(advised, func(s advice.Service) bool { return s.Name == inside.name }); i < 0 ||
		!strings.HasPrefix(advised[i].Reason, "requests from istio-system/checkout bypass the gateways") {
		t.Errorf("of the one that is called inside the mesh: %+v", advised)
	}
	if near < 8 {
		t.Errorf("%d of 10 are within 30 %%", near)
	}
	text, _, err := headstart(t, "", "advise", "-n", "shop", "--kubeconfig", config, "--prometheus", prometheus.String())
	if err != nil || !strings.Contains(text, "headstart.dev/input: body, headstart.dev/scale-to-zero: 2m") || !strings.Contains(text, "Of the last 1w") {
		t.Errorf("%v\n%s", err, text)
	}
	t.Log("\n" + text)
}

func within(got, want float64) bool { return math.Abs(got-want) <= 0.3*want }

// gain is what the advice comes to by the requests' own times: seconds of replicas, and of bodies that came beside a start.
func (k known) gain(t *testing.T, s advice.Service) (idle, saved float64) {
	t.Helper()
	window := 5 * time.Minute // KEDA's
	if text := s.Annotations["headstart.dev/scale-to-zero"]; text != "" {
		var err error
		if window, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	} else if k.scaler == "" {
		return 0, 0
	}
	from, both := time.Duration(0), min(k.start.Seconds(), k.body/12.5e6)
	for _, at := range append(slices.Clone(k.ends), week) {
		if pause := at - from - window; pause > 0 {
			idle += pause.Seconds() * float64(k.replicas)
			if at < week {
				saved += both
			}
		}
		from = at
	}
	if k.scaler != "" {
		return 0, saved
	}
	return idle, saved
}

// istioMetrics are Istio's standard metrics of the services, as a gateway counts them, and a sidecar.
func istioMetrics(all []known, from time.Time) string {
	var up, requests, bytes, durations strings.Builder
	for at := time.Duration(0); at <= week; at += asked {
		fmt.Fprintf(&up, "up{job=\"pods\",instance=\"gateway\"} 1 %d\n", from.Add(at).Unix())
	}
	for _, k := range all {
		reporters := []string{"source"}
		if k.name == "cart" {
			reporters = append(reporters, "destination") // it has a sidecar
		}
		for _, reporter := range reporters {
			next := 0
			labels := fmt.Sprintf(`{job="pods",instance="gateway",reporter=%q,destination_service_namespace="shop",destination_service_name=%q,`+
				`source_workload_namespace="istio-system",source_workload=%q,response_code="200"}`, reporter, k.name, cmp.Or(k.caller, "gateway"))
			for at := time.Duration(0); at <= week; at += asked {
				for next < len(k.ends) && k.ends[next] <= at {
					next++
				}
				if next == 0 {
					continue // a counter is there from its first request on
				}
				stamp := from.Add(at).Unix()
				took := 200 + 1000*k.body/12.5e6 // ms
				fmt.Fprintf(&requests, "istio_requests_total%s %d %d\n", labels, next, stamp)
				fmt.Fprintf(&bytes, "istio_request_bytes_sum%s %.0f %d\n", labels, float64(next)*(k.body+600), stamp)
				fmt.Fprintf(&durations, "istio_request_duration_milliseconds_sum%s %.0f %d\n", labels, float64(next)*took, stamp)
			}
		}
	}
	return "# TYPE up gauge\n" + up.String() + "# TYPE istio_requests gauge\n" + requests.String() + "# TYPE istio_request_bytes_sum gauge\n" + bytes.String() +
		"# TYPE istio_request_duration_milliseconds_sum gauge\n" + durations.String()
}

// mergedObjects are the services' objects by the paths of their lists.
func mergedObjects(all []known) map[string]string {
	const (
		scaledObjects = "/apis/keda.sh/v1alpha1/namespaces/shop/scaledobjects"
		autoscalers   = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
	)
	lists := map[string][]string{}
	created := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, k := range all {
		meta := fmt.Sprintf(`"metadata":{"name":%q,"namespace":"shop","labels":{"app":%q}}`, k.name, k.name)
		lists["/api/v1/namespaces/shop/services"] = append(lists["/api/v1/namespaces/shop/services"],
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Service",%s,"spec":{"selector":{"app":%q}}}`, meta, k.name))
		lists["/apis/apps/v1/namespaces/shop/deployments"] = append(lists["/apis/apps/v1/namespaces/shop/deployments"],
			fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment",%s,"spec":{"replicas":%d,"template":{"metadata":{"labels":{"app":%q}}}}}`, meta, k.replicas, k.name))
		for i := range max(1, k.replicas) {
			lists["/api/v1/namespaces/shop/pods"] = append(lists["/api/v1/namespaces/shop/pods"], fmt.Sprintf(
				`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-%d","namespace":"shop","labels":{"app":%q},"creationTimestamp":%q},
				"status":{"conditions":[{"type":"Ready","status":"True","lastTransitionTime":%q}],"containerStatuses":[{"name":"c","state":{"running":{"startedAt":%[4]q}}}]}}`,
				k.name, i, k.name, created.Format(time.RFC3339), created.Add(k.start).Format(time.RFC3339)))
		}
		if k.scaler != "" {
			lists[scaledObjects] = append(lists[scaledObjects], k.scaler)
			lists[autoscalers] = append(lists[autoscalers], fmt.Sprintf(`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler",
				"metadata":{"name":"keda-hpa-%[1]s","namespace":"shop"},"spec":{"minReplicas":1,"scaleTargetRef":{"kind":"Deployment","name":%[1]q}}}`, k.name))
		}
	}
	objects := map[string]string{
		"/apis/apps/v1":                              `{"resources":[{"name":"deployments"},{"name":"statefulsets"}]}`,
		"/apis/autoscaling/v2":                       `{"resources":[{"name":"horizontalpodautoscalers"}]}`,
		"/apis/keda.sh/v1alpha1":                     `{"resources":[{"name":"scaledobjects"}]}`,
		"/apis/apps/v1/namespaces/shop/statefulsets": `{"kind":"List","apiVersion":"v1","items":[]}`,
		"/api/v1/namespaces/istio-system/pods": `{"kind":"List","apiVersion":"v1","items":[{"apiVersion":"v1","kind":"Pod",
			"metadata":{"name":"gateway-0","namespace":"istio-system"},"spec":{"containers":[
			{"name":"istio-proxy","args":["proxy","router"],"env":[{"name":"ISTIO_META_WORKLOAD_NAME","value":"gateway"}]}]}}]}`,
	}
	for path, items := range lists {
		objects[path] = `{"kind":"List","apiVersion":"v1","items":[` + strings.Join(items, ",") + `]}`
	}
	return objects
}
