//go:build cluster

package istio_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// controlPlaneUser is who the Writer is.
const controlPlaneUser = "headstart-controlplane"

// apiServer is a real one, with Istio's kinds at hand.
type apiServer struct {
	*apiservertest.Server
	client dynamic.Interface
	crds   []unstructured.Unstructured
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{Server: apiservertest.Start(t), crds: istioCRDs(t)}
	var err error
	if s.client, err = dynamic.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	return s
}

func istioCRDs(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	out, err := exec.Command(apiservertest.Binary(t, "istioctl"), "manifest", "generate", "--set", "profile=minimal").Output()
	if err != nil {
		t.Fatal(err)
	}
	var crds []unstructured.Unstructured
	for _, o := range objects(t, out) {
		if o.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, o)
		}
	}
	return crds
}

func objects(t *testing.T, text []byte) []unstructured.Unstructured {
	t.Helper()
	var out []unstructured.Unstructured
	for doc := range strings.SplitSeq(string(text), "\n---") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		// Numbers as the API server's clients have them.
		data, err := json.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
	return out
}

var (
	crdResource     = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	nsResource      = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	roleResource    = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	bindingResource = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
)

func (s *apiServer) put(t *testing.T, r schema.GroupVersionResource, o *unstructured.Unstructured) {
	t.Helper()
	_, err := s.client.Resource(r).Namespace(o.GetNamespace()).Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "helm", Force: true})
	if err != nil {
		t.Fatal(err)
	}
}

// fresh removes what the case before has left.
func (s *apiServer) fresh(t *testing.T) {
	t.Helper()
	s.install(t, true)
	s.permit(t, true)
	for _, k := range []istio.Kind{istio.EnvoyFilter, istio.TrafficExtension, istio.WasmPlugin} {
		err := s.client.Resource(k.GVR()).Namespace(root).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s *apiServer) api() istio.API {
	c := rest.CopyConfig(s.Config)
	c.Impersonate.UserName = controlPlaneUser
	api, err := istio.Connect(c)
	if err != nil {
		panic(err)
	}
	return api
}

func (s *apiServer) create(t *testing.T, k istio.Kind, o *unstructured.Unstructured) {
	t.Helper()
	s.put(t, k.GVR(), o)
}

func (s *apiServer) edit(t *testing.T, k istio.Kind, namespace, name string, patch map[string]any) {
	t.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.client.Resource(k.GVR()).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *apiServer) get(t *testing.T, k istio.Kind, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := s.client.Resource(k.GVR()).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// permit binds the rules that docs/reference/istio.md asks for.
func (s *apiServer) permit(t *testing.T, allowed bool) {
	t.Helper()
	s.put(t, nsResource, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": root}}})
	page, err := os.ReadFile("../../docs/reference/istio.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	text, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/reference/istio.md has no Role")
	}
	role := objects(t, []byte("apiVersion: rbac.authorization.k8s.io/v1\n"+text))[0]
	s.put(t, roleResource, &role)
	binding := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
		"metadata": map[string]any{"name": role.GetName(), "namespace": root},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.GetName()},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": controlPlaneUser}},
	}}
	if allowed {
		s.put(t, bindingResource, &binding)
	} else if err := s.client.Resource(bindingResource).Namespace(root).Delete(t.Context(), role.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rules' effect", func() bool {
		_, err := s.api().List(t.Context(), istio.EnvoyFilter, root, istio.Query{})
		return apierrors.IsForbidden(err) != allowed
	})
}

// install adds or removes the kinds that a Writer writes, and adds all others.
func (s *apiServer) install(t *testing.T, installed bool) {
	t.Helper()
	served := func() bool {
		for _, k := range []istio.Kind{istio.EnvoyFilter, istio.TrafficExtension, istio.WasmPlugin} {
			if _, err := s.client.Resource(k.GVR()).Namespace(root).List(t.Context(), metav1.ListOptions{}); (err == nil) != installed {
				return !installed
			}
		}
		return installed
	}
	for _, crd := range s.crds {
		if installed {
			s.put(t, crdResource, &crd)
			continue
		}
		if err := s.client.Resource(crdResource).Delete(context.WithoutCancel(t.Context()), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, fmt.Sprintf("Istio's kinds installed: %v", installed), func() bool { return served() == installed })
}

func TestWriterOnARealServer(t *testing.T) {
	s := startAPIServer(t)
	runSuite(t, func(t *testing.T, body func(t *testing.T, s server)) {
		s.fresh(t)
		body(t, s)
	})
}

var _ server = (*apiServer)(nil)
