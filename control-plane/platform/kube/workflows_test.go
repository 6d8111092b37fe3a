package kube_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

func workflowObject(generation int64, task map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "headstart.dev/v1alpha1", "kind": "Workflow",
		"metadata": map[string]any{"namespace": namespace, "name": "buy", "generation": generation},
		"spec": map[string]any{"document": map[string]any{"dsl": "1.0.0", "namespace": namespace, "name": "buy", "version": "1.0.0"},
			"do": []any{map[string]any{"one": task}}}}}
}

// A workflow is compiled, says whether it can be run, and is the function of the Service that names it.
func TestWorkflows(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		a.installKnative() // and the others that a cluster may not have
		objects := a.dynamic.Resource(schema.GroupVersionResource{Group: "headstart.dev", Version: "v1alpha1", Resource: "workflows"}).Namespace(namespace)
		if _, err := objects.Create(t.Context(), workflowObject(1, map[string]any{"set": map[string]any{"a": int64(1)}}), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.applyService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "checkout", Annotations: map[string]string{policy.KeyWorkflow: "buy"}},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
		says := func(want string, generation int64) {
			t.Helper()
			time.Sleep(time.Minute) // kinds that were not there are looked for again
			o, err := objects.Get(t.Context(), "buy", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
			if err != nil || len(conditions) != 1 {
				t.Fatalf("conditions %v, %v", conditions, err)
			}
			c := conditions[0].(map[string]any)
			if c["type"] != "Ready" || c["observedGeneration"] != generation || !strings.Contains(c["status"].(string)+" "+c["message"].(string), want) {
				t.Errorf("it says %v, want %s of %d", c, want, generation)
			}
		}
		says("True", 1)
		st := w.p.State()
		if len(st.Functions) != 1 || st.Functions[0].Name != namespace+"/checkout" || st.Functions[0].Workflow == nil || len(st.Instances) != 0 {
			t.Fatalf("state %+v", st)
		}
		if m := kube.Message(st.Functions[0]); m.GetWorkflow().GetVersion() != "1.0.0" || len(m.GetWorkflow().GetTasks()) != 1 {
			t.Errorf("nodes are told %v", m)
		}
		_, err := w.p.Activate(t.Context(), platform.Request{ID: "1", Function: namespace + "/checkout", Node: "edge"})
		if refusal, is := errors.AsType[*platform.Refusal](err); !is || refusal.Reason != "WorkflowUnknown" {
			t.Errorf("an instance of it: %v", err)
		}
		if _, err := objects.Update(t.Context(), workflowObject(2, map[string]any{"emit": map[string]any{}}), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		says(`False spec.do.0.one.emit: "emit" is not supported`, 2)
		if events := w.events.Of(namespace + "/checkout"); len(events) == 0 || events[len(events)-1].Reason != "WorkflowRefused" {
			t.Errorf("events %+v", events)
		}
		if st := w.p.State(); len(st.Functions) != 0 {
			t.Errorf("it is a function still: %+v", st.Functions)
		}
	})
}
