//go:build cluster

package check_test

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// as looks at a real API server, with the rights of config.
func as(t *testing.T, config *rest.Config, checks []check.Check) map[string]check.Result {
	t.Helper()
	r, err := objects.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	env := check.Env{Objects: r, Namespace: "headstart-system", MeshNamespace: "istio-system", Version: version,
		Status: func(context.Context) (admin.Status, error) {
			return admin.Status{}, errors.New("no control plane runs")
		}}
	results := map[string]check.Result{}
	for _, r := range check.Run(t.Context(), checks, env, nil) {
		results[r.ID] = r
	}
	return results
}

func expect(t *testing.T, results map[string]check.Result, want map[string]check.Status) {
	t.Helper()
	for id, status := range want {
		if r := results[id]; r.Status != status {
			t.Errorf("%s: %+v, want %s", id, r, status)
		}
	}
}

func TestOnARealAPIServer(t *testing.T) {
	s := apiservertest.Start(t)
	ctx := t.Context()
	admin, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}

	// A cluster without nodes and without Istio.
	results := as(t, s.Config, check.Before())
	expect(t, results, map[string]check.Status{"kubernetes": check.Pass, "admission-api": check.Pass, "rights": check.Pass,
		"containerd": check.Fail, "kernel": check.Fail, "istio": check.Fail, "filter-api": check.Skip, "autoscalers": check.Pass, "overlay": check.Skip})
	results = as(t, s.Config, check.After())
	expect(t, results, map[string]check.Status{"control-plane": check.Fail, "admin": check.Skip, "runtime-class": check.Fail, "admission": check.Fail,
		"annotations": check.Pass, "scaling": check.Pass, "gateways": check.Fail, "prefetch-filter": check.Fail, "envoy-filters": check.Skip})

	// With the objects of a healthy one that need no CRDs. A node's status is its kubelet's.
	c := healthy(t)
	for _, namespace := range []string{"headstart-system", "istio-system"} {
		if _, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"Namespace video", "Node node-1", "Node node-2", "RuntimeClass headstart", "ConfigMap headstart-ca", "ConfigMap headstart-stores", "Secret s3-default", "Secret s3-archive", "Service fire"} {
		u := &unstructured.Unstructured{Object: jsonNumbers(t, c.objects[name])}
		gvr := resourceOf(t, u)
		if _, err := admin.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if u.GetKind() == "Node" {
			if u, err = admin.Resource(gvr).Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			u.Object["status"] = jsonNumbers(t, c.objects[name])["status"]
			if _, err := admin.Resource(gvr).UpdateStatus(ctx, u, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	expect(t, as(t, s.Config, check.Before()), map[string]check.Status{"containerd": check.Pass, "kernel": check.Pass})
	results = as(t, s.Config, check.After())
	expect(t, results, map[string]check.Status{"runtime-class": check.Pass, "annotations": check.Pass, "scaling": check.Fail})
	if m := results["annotations"].Message; m != "1 annotated Service" {
		t.Error(m)
	}

	// Who may see little hears what he may not see, and of nothing that it were wrong.
	expect(t, as(t, guest(t, s), check.Before()), map[string]check.Status{"kubernetes": check.Pass, "rights": check.Fail, "containerd": check.Skip})
	results = as(t, guest(t, s), check.After())
	for id, r := range results {
		if id != "kubernetes" && id != "runtime-class" && r.Status != check.Skip {
			// Istio's kinds are not served, which everybody may know.
			if id != "prefetch-filter" && id != "envoy-filters" {
				t.Errorf("%s: %+v", id, r)
			}
		}
	}
	stranger := rest.CopyConfig(s.Config)
	stranger.BearerToken = "x"
	expect(t, as(t, stranger, check.Before()), map[string]check.Status{"kubernetes": check.Fail, "rights": check.Skip})
}

// guest is somebody who may read RuntimeClasses only.
func guest(t *testing.T, s *apiservertest.Server) *rest.Config {
	t.Helper()
	ctx := t.Context()
	if _, err := s.Client.CoreV1().ServiceAccounts("video").Get(ctx, "guest", metav1.GetOptions{}); err != nil {
		if _, err := s.Client.CoreV1().ServiceAccounts("video").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "guest"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "guest"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"node.k8s.io"}, Resources: []string{"runtimeclasses"}, Verbs: []string{"get"}}}}
		if _, err := s.Client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "guest"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "guest"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "video", Name: "guest"}}}
		if _, err := s.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	token, err := s.Client.CoreV1().ServiceAccounts("video").CreateToken(ctx, "guest", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(s.Config)
	config.BearerToken = token.Status.Token
	return config
}
