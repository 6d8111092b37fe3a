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

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// controlPlaneUser is who the Writer is.
const controlPlaneUser = "system:serviceaccount:headstart-system:headstart-controlplane"

// account is the same, for the policies.
var account = admission.Account{Namespace: "headstart-system", Functions: `["default"]`}

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
	vapResource     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	vapbResource    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
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
		err := s.api().Each(t.Context(), istio.EnvoyFilter, root, istio.Query{}, func(unstructured.Unstructured) {})
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

// restrict applies the policies for what the control plane's account may write, and waits for their effect.
func (s *apiServer) restrict(t *testing.T) {
	t.Helper()
	policies, err := account.Policies()
	if err != nil {
		t.Fatal(err)
	}
	text, err := admission.YAML(policies)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, text) {
		if o.GetKind() == "ValidatingAdmissionPolicy" {
			s.put(t, vapResource, &o)
		} else {
			s.put(t, vapbResource, &o)
		}
	}
	eventually(t, "the policies' effect", func() bool {
		return s.attempt(t, `{metadata: {name: theirs}, spec: {priority: 7}}`) && s.attemptPrefetch(t, `spec: {priority: 7}`)
	})
}

// attempt has the control plane's account apply an EnvoyFilter, and tells whether a policy refuses it.
func (s *apiServer) attempt(t *testing.T, text string) (refused bool) {
	t.Helper()
	return s.attemptKind(t, istio.EnvoyFilter, text)
}

// attemptPrefetch does so with the TrafficExtension, which an administrator makes first.
func (s *apiServer) attemptPrefetch(t *testing.T, text string) (refused bool) {
	t.Helper()
	s.create(t, istio.TrafficExtension, extension())
	return s.attemptKind(t, istio.TrafficExtension, "metadata: {name: "+istio.PrefetchName+"}\n"+text)
}

func (s *apiServer) attemptKind(t *testing.T, k istio.Kind, text string) (refused bool) {
	t.Helper()
	o := objects(t, []byte(text))[0]
	o.SetGroupVersionKind(k.GVK)
	o.SetNamespace(root)
	err := s.api().Apply(t.Context(), k, &o, true)
	if err != nil && !strings.Contains(err.Error(), "may write only") {
		t.Fatalf("%s: %v", text, err)
	}
	return err != nil
}

func TestWriterOnARealServer(t *testing.T) {
	s := startAPIServer(t)
	s.fresh(t)
	s.restrict(t)
	runSuite(t, func(t *testing.T, body func(t *testing.T, s server)) {
		s.fresh(t)
		body(t, s)
	})
}

// Whoever has the token of the control plane's account reroutes and reads nothing by Istio's objects.
func TestAStolenControlPlaneTokenWritesNothingElse(t *testing.T) {
	s := startAPIServer(t)
	s.fresh(t)
	s.restrict(t)
	made, err := objectsOf(istio.Config{}, []istio.Function{fire(fireHost)})
	if err != nil {
		t.Fatal(err)
	}
	good, err := yaml.Marshal(made[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if s.attempt(t, string(good)) {
		t.Fatal("a function's own EnvoyFilter is refused")
	}
	for name, change := range map[string][2]string{
		"another cluster":   {fireHost, "bank.prod.svc.cluster.local"},
		"another Service":   {fireHost, "bank.default.svc.cluster.local"},
		"another namespace": {"default", "prod"},
		"other endpoints":   {"cluster_name: headstart-gateway", "cluster_name: outbound|80||evil.default.svc.cluster.local"},
		"all proxies":       {"context: GATEWAY", "context: ANY"},
		"all gateways":      {"HEADSTART: \"true\"", "OTHER: \"true\""},
		"a second patch":    {"  configPatches:\n", "  configPatches:\n  - {applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: REMOVE}}\n"},
		"a priority":        {"spec:\n", "spec:\n  priority: -5\n"},
		"another name":      {"name: headstart.default.fire", "name: headstart-keys"},
		"another socket":    {"connect_timeout: 2s", "connect_timeout: 2s\n        transport_socket: {name: envoy.transport_sockets.raw_buffer}"},
	} {
		text := strings.ReplaceAll(string(good), change[0], change[1])
		if text == string(good) {
			t.Fatalf("%s: there is no %q", name, change[0])
		}
		if !s.attempt(t, text) {
			t.Errorf("%s: is written", name)
		}
	}
	for name, spec := range map[string]string{
		"other code":     `{wasm: {url: "oci://example.com/evil:1"}}`,
		"all workloads":  `{selector: {matchLabels: {app: other}}}`,
		"other clusters": `{wasm: {pluginConfig: {version: v1, hintCluster: "outbound|80||evil.default.svc.cluster.local"}}}`,
	} {
		if !s.attemptPrefetch(t, "spec: "+spec) {
			t.Errorf("%s: is written", name)
		}
	}
	theirs := objects(t, []byte(`{metadata: {name: theirs}, spec: {priority: 7}}`))[0]
	theirs.SetGroupVersionKind(istio.EnvoyFilter.GVK)
	theirs.SetNamespace(root)
	s.create(t, istio.EnvoyFilter, &theirs)
	uid := s.get(t, istio.EnvoyFilter, root, "theirs").GetUID()
	if err := s.api().Delete(t.Context(), istio.EnvoyFilter, root, "theirs", uid); err == nil {
		t.Error("somebody else's EnvoyFilter is deleted")
	}
	uid = s.get(t, istio.EnvoyFilter, root, fireName).GetUID()
	if err := s.api().Delete(t.Context(), istio.EnvoyFilter, root, fireName, uid); err != nil {
		t.Errorf("its own is not: %v", err)
	}
}

var _ server = (*apiServer)(nil)
