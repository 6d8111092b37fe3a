//go:build cluster

package check_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// Objects from before the policies are listed with the policy's own words, and stay as they are.
func TestRoutesFromBeforeThePolicies(t *testing.T) {
	s := apiservertest.Start(t)
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	create := func(gvr schema.GroupVersionResource, namespace string, o any) {
		t.Helper()
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: fields}
		// A CRD takes a moment to be served.
		patiently(t, gvr.Resource, func() bool {
			_, err = client.Resource(gvr).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{})
			return err == nil
		})
	}
	crd := func(kind string, gvr schema.GroupVersionResource) {
		t.Helper()
		create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", document(t, fmt.Sprintf(`{
			apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[2]s.%[3]s}, spec: {group: %[3]s, scope: Namespaced,
			names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: x%[2]s}, versions: [{name: v1, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, kind, gvr.Resource, gvr.Group)))
	}
	create(objects.Namespaces, "", document(t, `{apiVersion: v1, kind: Namespace, metadata: {name: video}}`))
	crd("VirtualService", objects.VirtualServices)
	crd("ServiceEntry", objects.ServiceEntries)
	route := func(name, header string) {
		t.Helper()
		create(objects.VirtualServices, "video", document(t, fmt.Sprintf(`{apiVersion: networking.istio.io/v1, kind: VirtualService,
			metadata: {name: %s}, spec: {http: [{headers: {request: {set: {%s: headstart}}}}]}}`, name, header)))
	}
	route("bad", "X_Headstart_Function")
	route("good", "x-own")
	create(objects.ServiceEntries, "video", document(t, `{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: sock},
		spec: {endpoints: [{address: "UNIX:///run/headstart/gateway/gateway.sock"}]}}`))
	for _, p := range admission.Policies("[]", "[]") {
		create(objects.AdmissionPolicies, "", &p.Policy)
		create(objects.AdmissionBindings, "", &p.Binding)
	}

	var got check.Result
	patiently(t, "the policies are in force", func() bool {
		got = as(t, s.Config, check.After())["routes"]
		return len(got.Problems) == 2
	})
	want := []string{"ServiceEntry video/sock", "VirtualService video/bad"}
	if d := cmp.Diff(want, []string{got.Problems[0].Object, got.Problems[1].Object}); d != "" || got.Status != check.Warn {
		t.Errorf("%+v\n%s", got, d)
	}
	for _, p := range got.Problems {
		if words := p.Message; len(words) < 40 || words[:2] != "an" && words[:2] != "a " {
			t.Errorf("%s: %q", p.Object, words)
		}
	}
	if r := as(t, guest(t, s), check.After())["routes"]; r.Status != check.Skip {
		t.Errorf("of a guest: %+v", r)
	}
}

func document(t *testing.T, text string) *map[string]any {
	t.Helper()
	o := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// patiently waits for what an API server does soon.
func patiently(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("in vain: %s", what)
		}
	}
}
