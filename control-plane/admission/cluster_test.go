//go:build cluster

package admission_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// crd makes Knative's Service a kind that the API server knows, no more.
const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: services.serving.knative.dev}
spec:
  group: serving.knative.dev
  scope: Namespaced
  names: {kind: Service, listKind: ServiceList, plural: services, singular: service}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

var (
	crds      = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	coreSvcs  = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	knatSvcs  = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
	vaps      = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	vapbs     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
	resources = map[string]schema.GroupVersionResource{"CustomResourceDefinition": crds, "ValidatingAdmissionPolicy": vaps, "ValidatingAdmissionPolicyBinding": vapbs}
)

// apply makes the objects of a YAML stream.
func apply(t *testing.T, client dynamic.Interface, text []byte) {
	t.Helper()
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := dec.Decode(&o)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		// Strict: a field that the API server does not know is a mistake.
		opts := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		if _, err := client.Resource(resources[o.GetKind()]).Create(t.Context(), &o, opts); err != nil {
			t.Fatal(err)
		}
	}
}

// service is one that the API server accepts but for its annotations.
func service(gvr schema.GroupVersionResource, annotations map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Service",
		"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}},
	}}
	o.SetGenerateName("f-")
	o.SetAnnotations(annotations)
	return o
}

// refusal is what the API server says of an object, empty when it takes it.
func refusal(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, o *unstructured.Unstructured) (string, error) {
	_, err := client.Resource(gvr).Namespace("default").Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return err.Error(), nil
	}
	return "", err
}

func start(t *testing.T) dynamic.Interface {
	t.Helper()
	s := apiservertest.Start(t)
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	text, err := admission.YAML(admission.Policies(allowedCEL, destinationsCEL))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, client, []byte(crd))
	apply(t, client, text)
	for _, gvr := range []schema.GroupVersionResource{coreSvcs, knatSvcs} {
		waitForPolicy(t, client, gvr)
	}
	return client
}

// waitForPolicy asks until the policy is in force: the API server takes a moment.
func waitForPolicy(t *testing.T, client dynamic.Interface, gvr schema.GroupVersionResource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		message, err := refusal(ctx, client, gvr, service(gvr, map[string]string{"headstart.dev/x": ""}))
		if message != "" {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("the policy for %s is not in force: %v", gvr, err)
		}
	}
}

// The real API server decides as policy.Parse does, with the message that names key,
// value and fix.
func TestTheAPIServerAgrees(t *testing.T) {
	client := start(t)
	e := services(t)
	for key, values := range seeds() {
		for i, v := range values {
			annotations := map[string]string{key: v}
			gvr := []schema.GroupVersionResource{coreSvcs, knatSvcs}[i%2]
			message, err := refusal(t.Context(), client, gvr, service(gvr, annotations))
			if err != nil {
				t.Errorf("%q: %v", annotations, err)
				continue
			}
			_, wrong := policy.Parse(annotations, allowed)
			if (wrong != nil) != (message != "") {
				t.Errorf("%q: Go says %v, the API server %q", annotations, wrong, message)
			}
			want, err := e.admit(nil, object(annotations), "default")
			if err != nil || !strings.HasSuffix(message, want) {
				t.Errorf("%q: the API server says %q, want %q at the end", annotations, message, want)
			}
		}
	}
}

// A hostile value costs a refusal, not the API server's budget for expressions.
func TestTheAPIServerSurvivesHugeValues(t *testing.T) {
	client := start(t)
	for _, a := range policy.Annotations(policy.Functions) {
		for _, piece := range []string{"a", "s3://a/{header.a}", "0", "9s", "@"} {
			huge := strings.Repeat(piece, 200_000/len(piece))
			message, err := refusal(t.Context(), client, coreSvcs, service(coreSvcs, map[string]string{key(a): huge}))
			if err != nil || !strings.Contains(message, key(a)+": ") {
				t.Errorf("%s with many %q: %.300q, %v", key(a), piece, message, err)
			}
		}
	}
	many := map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("headstart.dev/k%d-%s", i, strings.Repeat("x", 50))] = ""
	}
	message, err := refusal(t.Context(), client, coreSvcs, service(coreSvcs, many))
	if err != nil || !strings.Contains(message, "is not a Headstart annotation") {
		t.Errorf("many unknown keys: %.300q, %v", message, err)
	}
}

// The controller that looks at policies finds no expression that cannot work, such as a
// field that a Service does not have.
func TestKubernetesFindsNoMistakeInThePolicies(t *testing.T) {
	s := apiservertest.Start(t)
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := admission.YAML(admission.Policies(allowedCEL, destinationsCEL))
	if err != nil {
		t.Fatal(err)
	}
	apply(t, client, []byte(crd))
	apply(t, client, text)
	runController(t, s)
	for _, p := range admission.Policies(allowedCEL, destinationsCEL) {
		warnings := typeChecked(t, client, p.Policy.Name)
		if len(warnings) > 0 {
			t.Errorf("%s: %v", p.Policy.Name, warnings)
		}
	}
}

// typeChecked waits until the controller has looked at a policy, and returns what it says.
func typeChecked(t *testing.T, client dynamic.Interface, name string) []any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		o, err := client.Resource(vaps).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); n == o.GetGeneration() {
			warnings, _, _ := unstructured.NestedSlice(o.Object, "status", "typeChecking", "expressionWarnings")
			return warnings
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("nobody looks at policy %s", name)
		}
	}
}

// runController runs the one controller until the test ends.
func runController(t *testing.T, s *apiservertest.Server) {
	t.Helper()
	dir := t.TempDir()
	apiservertest.Run(t, dir, nil, apiservertest.Binary(t, "kube-controller-manager"), "--kubeconfig="+s.Kubeconfig(t),
		"--controllers=validatingadmissionpolicy-status-controller", "--leader-elect=false", "--secure-port=0", "--cert-dir="+dir)
}

// Whoever has the token of the control plane's account scales and says no more than the control plane does, although RBAC
// would let it.
func TestTheAPIServerRestrictsTheControlPlane(t *testing.T) {
	s := apiservertest.Start(t)
	admin, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := account.Policies()
	if err != nil {
		t.Fatal(err)
	}
	text, err := admission.YAML(policies)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, admin, text)
	for _, name := range []string{"media", "prod"} {
		if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "fire"}, Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "fire"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "fire"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "fire", Image: "fire"}}}},
		}}
		if _, err := s.Client.AppsV1().Deployments(name).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := rest.CopyConfig(s.Config)
	c.Impersonate.UserName, c.Impersonate.Groups = controlPlane, []string{"system:masters"}
	stolen, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	scale := func(namespace string, replicas int32) error {
		_, err := stolen.AppsV1().Deployments(namespace).UpdateScale(t.Context(), "fire", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "fire", Namespace: namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas},
		}, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for scale("prod", 3) == nil {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("the policies are not in force")
		}
	}
	for _, tt := range []struct {
		namespace string
		replicas  int32
		may       bool
	}{{"prod", 0, false}, {"prod", 1, false}, {"media", 1000, false}, {"media", 0, true}, {"media", 1, true}, {"media", 2, false}} {
		if err := scale(tt.namespace, tt.replicas); (err == nil) != tt.may {
			t.Errorf("%s to %d: %v", tt.namespace, tt.replicas, err)
		}
	}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "fire.1"}, InvolvedObject: corev1.ObjectReference{Kind: "Service", Name: "fire", Namespace: "media"},
		Source: corev1.EventSource{Component: "headstart-controlplane"}, ReportingController: "headstart-controlplane", Type: corev1.EventTypeWarning}
	if _, err := stolen.CoreV1().Events("media").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Errorf("its own event: %v", err)
	}
	event.Name, event.InvolvedObject.Kind = "fire.2", "Pod"
	if _, err := stolen.CoreV1().Events("media").Create(t.Context(), event, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an event of a pod: %v", err)
	}
}
