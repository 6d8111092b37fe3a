package knative

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

const ingressYAML = `
metadata: {name: fire, namespace: default, uid: u1, generation: 2}
spec:
  rules:
  - hosts: [fire.example.com]
    http: {paths: [{splits: [{serviceName: fire-00001, serviceNamespace: default, servicePort: 80, percent: 100, appendHeaders: {Knative-Serving-Revision: fire-00001}}]}]}
status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}
`

func ingressOf(t *testing.T, text string) *kingress {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	var k kingress
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &k); err != nil {
		t.Fatal(err)
	}
	return &k
}

// A request has to find the revision's Service, with what tells the activator of it.
func TestAnIngressBecomesAVirtualService(t *testing.T) {
	k := ingressOf(t, ingressYAML)
	if k.ready() {
		t.Error("a new generation passes for served")
	}
	v, err := k.virtualService("default/functions")
	if err != nil {
		t.Fatal(err)
	}
	route := v.Object["spec"].(map[string]any)["http"].([]any)[0].(map[string]any)["route"].([]any)[0].(map[string]any)
	host, _, _ := unstructured.NestedString(route, "destination", "host")
	revision, _, _ := unstructured.NestedString(route, "headers", "request", "set", "Knative-Serving-Revision")
	if host != "fire-00001.default.svc.cluster.local" || revision != "fire-00001" || v.GetOwnerReferences()[0].UID != "u1" {
		t.Errorf("got %v", v.Object)
	}
	s, err := k.status()
	if err != nil {
		t.Fatal(err)
	}
	if g, _, _ := unstructured.NestedFloat64(s.Object, "status", "observedGeneration"); g != 2 {
		t.Errorf("observed generation %v", g)
	}
}

func TestManifestsAreMadeFit(t *testing.T) {
	const manifest = "image: ko://knative.dev/serving/cmd/activator\nresources:\n  requests:\n    cpu: 300m\n  limits:\n    cpu: 1000m\n"
	const want = "image: local.test/knative-activator:0.42.2\nresources:\n  requests:\n    cpu: 20m\n  limits:\n    cpu: 1000m\n"
	if got := string(fit([]byte(manifest))); got != want {
		t.Errorf("got %s", got)
	}
}
