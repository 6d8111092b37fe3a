//go:build cluster

package charts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
)

// installed is an API server with Istio's kinds, and the chart.
type installed struct {
	*apiservertest.Server
	config string
}

func install(t *testing.T) *installed {
	t.Helper()
	s := bare(t)
	s.helm(t, values, "install", "headstart", "headstart", "-f", "-")
	return s
}

// bare is one without the chart.
func bare(t *testing.T) *installed {
	t.Helper()
	s := &installed{Server: apiservertest.Start(t)}
	s.config = s.Kubeconfig(t)
	var crds []string
	for _, text := range strings.Split(must(t, "", "istioctl", "manifest", "generate", "--set", "profile=minimal"), "\n---") {
		if strings.Contains(text, "kind: CustomResourceDefinition") {
			crds = append(crds, text)
		}
	}
	must(t, strings.Join(crds, "\n---"), "kubectl", "--kubeconfig", s.config, "apply", "--server-side", "-f", "-")
	must(t, "", "kubectl", "--kubeconfig", s.config, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	for _, ns := range []string{namespace, "istio-system", "default"} {
		_, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return s
}

func (s *installed) helm(t *testing.T, stdin string, args ...string) {
	t.Helper()
	must(t, stdin, "helm", append(args, "--kubeconfig", s.config, "-n", namespace)...)
}

// objects are those that have Headstart's label, wherever they are.
func (s *installed) objects(t *testing.T) []string {
	t.Helper()
	kinds := must(t, "", "kubectl", "--kubeconfig", s.config, "api-resources", "--verbs=list", "-o", "name")
	out := must(t, "", "kubectl", "--kubeconfig", s.config, "get", "-A", "-o", "name", "--ignore-not-found", "-l", "app.kubernetes.io/part-of=headstart", strings.Join(strings.Fields(kinds), ","))
	return strings.Fields(out)
}

// The API server takes every object, keeps what the control plane writes over an upgrade,
// and has nothing left of the chart afterwards. The hook needs a kubelet.
func TestInstallUpgradeUninstall(t *testing.T) {
	s := install(t)
	before := s.objects(t)
	for _, want := range []string{"daemonset.apps/headstart-node", "daemonset.apps/headstart-installer", "deployment.apps/headstart-controlplane", "envoyfilter.networking.istio.io/headstart-gateways", "envoyfilter.networking.istio.io/headstart-keys",
		"trafficextension.extensions.istio.io/headstart-prefetch", "telemetry.telemetry.istio.io/headstart", "runtimeclass.node.k8s.io/headstart"} {
		if !slices.Contains(before, want) {
			t.Errorf("%s is missing in %q", want, before)
		}
	}
	secrets := s.Client.CoreV1().Secrets(namespace)
	ca, err := secrets.Get(t.Context(), "headstart-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ca.Data = map[string][]byte{"tls.crt": []byte("certificate"), "tls.key": []byte("key")}
	if _, err := secrets.Update(t.Context(), ca, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.helm(t, values, "upgrade", "headstart", "headstart", "-f", "-", "--set", "image.tag=v2")
	if ca, err = secrets.Get(t.Context(), "headstart-ca", metav1.GetOptions{}); err != nil || string(ca.Data["tls.key"]) != "key" {
		t.Errorf("the control plane's authority did not survive the upgrade: %v", err)
	}
	s.helm(t, "", "uninstall", "headstart", "--no-hooks", "--cascade", "background")
	// Only the kind of the users' own objects stays.
	if left := s.objects(t); len(left) != 1 || left[0] != "customresourcedefinition.apiextensions.k8s.io/workflows.headstart.dev" {
		t.Errorf("left behind: %q", left)
	}
}

// as returns a client of a service account, as a pod's token on that node makes it.
func (s *installed) as(t *testing.T, account, node string) kubernetes.Interface {
	t.Helper()
	c := rest.CopyConfig(s.Config)
	c.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Extra:  map[string][]string{"authentication.kubernetes.io/node-name": {node}}}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestAnInstallerLabelsItsOwnNodeOnly(t *testing.T) {
	s := install(t)
	for _, n := range []string{"n1", "n2"} {
		_, err := s.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, Labels: map[string]string{"zone": "a"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	client := s.as(t, "headstart-installer", "n1")
	patch := func(node, patch string) error {
		_, err := client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	const label = `{"metadata": {"labels": {"headstart.dev/node": "ready"}}}`
	if err := patch("n1", label); err != nil {
		t.Errorf("its own node: %v", err)
	}
	// The API server takes a moment until a policy is in force.
	refused := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
	inForce := func(context.Context) (bool, error) { return refused(patch("n2", label)), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, inForce); err != nil {
		t.Fatal("the policy is not in force")
	}
	for node, p := range map[string]string{
		"n2": label,
		"n1": `{"metadata": {"labels": {"zone": "b"}}}`,
	} {
		if err := patch(node, p); !refused(err) {
			t.Errorf("patch %s of node %s: %v", p, node, err)
		}
	}
	for _, p := range []string{`{"spec": {"unschedulable": true}}`, `{"metadata": {"annotations": {"a": "b"}}}`, `{"metadata": {"labels": {"zone": null}}}`} {
		if err := patch("n1", p); !refused(err) {
			t.Errorf("patch %s: %v", p, err)
		}
	}
	if err := patch("n1", `{"metadata": {"labels": {"headstart.dev/node": null}}}`); err != nil {
		t.Errorf("taking the label off: %v", err)
	}
}

// No account reads a Secret but the control plane its own authority.
func TestWhoMayDoWhat(t *testing.T) {
	s := install(t)
	for _, tt := range []struct {
		account, verb, group, resource, namespace, name string
		want                                            bool
	}{
		{"headstart-controlplane", "get", "", "secrets", namespace, "headstart-ca", true},
		{"headstart-controlplane", "get", "", "secrets", namespace, "default-s3", false},
		{"headstart-controlplane", "list", "", "secrets", namespace, "", false},
		{"headstart-controlplane", "get", "", "secrets", "video", "headstart-ca", false},
		{"headstart-controlplane", "list", "", "pods", "", "", true},
		{"headstart-controlplane", "get", "", "pods", namespace, "headstart-node-1", true},
		{"headstart-controlplane", "get", "", "pods", "video", "fire-1", false},
		{"headstart-controlplane", "update", "coordination.k8s.io", "leases", namespace, "headstart-controlplane", true},
		{"headstart-controlplane", "update", "coordination.k8s.io", "leases", namespace, "other", false},
		{"headstart-controlplane", "create", "coordination.k8s.io", "leases", namespace, "", true},
		{"headstart-controlplane", "create", "coordination.k8s.io", "leases", "default", "", false},
		{"headstart-controlplane", "update", "apps", "deployments/scale", "video", "fire", true},
		{"headstart-controlplane", "update", "apps", "deployments", "video", "fire", false},
		{"headstart-controlplane", "create", "authentication.k8s.io", "tokenreviews", "", "", true},
		{"headstart-controlplane", "create", "networking.istio.io", "envoyfilters", "istio-system", "", true},
		{"headstart-controlplane", "create", "networking.istio.io", "envoyfilters", "video", "", false},
		{"headstart-installer", "patch", "", "nodes", "", "n1", true},
		{"headstart-installer", "get", "", "secrets", namespace, "default-s3", false},
		{"headstart-node", "patch", "", "nodes", "", "n1", false},
		{"headstart-node", "create", "", "events", "default", "", false},
		{"headstart-node", "list", "", "pods", "", "", false},
		{"headstart-node", "get", "", "secrets", namespace, "default-s3", false},
		{"headstart-uninstall", "create", "apps", "daemonsets", namespace, "", true},
		{"headstart-uninstall", "delete", "apps", "daemonsets", namespace, "headstart-node", true},
		{"headstart-uninstall", "delete", "apps", "daemonsets", namespace, "headstart-installer", true},
		{"headstart-uninstall", "delete", "apps", "daemonsets", namespace, "other", false},
		{"headstart-uninstall", "delete", "", "pods", namespace, "headstart-controlplane-1", true},
		{"headstart-uninstall", "delete", "apps", "deployments", namespace, "headstart-controlplane", true},
		{"headstart-uninstall", "delete", "apps", "deployments", namespace, "other", false},
		{"headstart-uninstall", "deletecollection", "apps", "replicasets", namespace, "", true},
		{"headstart-uninstall", "deletecollection", "apps", "replicasets", "video", "", false},
		{"headstart-uninstall", "delete", "", "pods", "video", "fire-1", false},
		{"headstart-uninstall", "get", "", "secrets", namespace, "headstart-ca", false},
	} {
		resource, sub, _ := strings.Cut(tt.resource, "/")
		review, err := s.Client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + tt.account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: tt.verb, Group: tt.group, Resource: resource, Subresource: sub, Namespace: tt.namespace, Name: tt.name},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed != tt.want {
			t.Errorf("%s may %s %s: %t, want %t", tt.account, tt.verb, fmt.Sprint(tt.resource, " ", tt.namespace, "/", tt.name), review.Status.Allowed, tt.want)
		}
	}
}
