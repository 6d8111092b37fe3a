//go:build cluster

package istio_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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

	"github.com/headstart-mesh/headstart/control-plane/identity/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// run starts a program that ends with the test. Its output is shown if the test fails.
func run(t *testing.T, dir string, env []string, path string, args ...string) {
	t.Helper()
	name := filepath.Base(path)
	file, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		file.Close()
		if data, err := os.ReadFile(file.Name()); err == nil && t.Failed() {
			t.Logf("%s:\n%s", name, data[max(0, len(data)-8000):])
		}
	})
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

const (
	adminToken        = "admin-token"
	controlPlaneToken = "control-plane-token"
	controlPlaneUser  = "headstart-controlplane"
)

// apiServer is etcd and kube-apiserver.
type apiServer struct {
	admin  *rest.Config
	client dynamic.Interface
	crds   []unstructured.Unstructured
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	dir := t.TempDir()
	etcd, peer, port := freePort(t), freePort(t), freePort(t)
	run(t, dir, nil, apiservertest.Binary(t, "etcd"), "--data-dir", "etcd", "--unsafe-no-fsync=true", "--log-level=warn",
		"--listen-client-urls", "http://127.0.0.1:"+etcd, "--advertise-client-urls", "http://127.0.0.1:"+etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer,
		"--initial-cluster", "default=http://127.0.0.1:"+peer)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	write(t, dir, "tokens.csv", adminToken+",admin,1,system:masters\n"+controlPlaneToken+","+controlPlaneUser+",2\n")
	run(t, dir, nil, apiservertest.Binary(t, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:"+etcd, "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir=certs", "--service-cluster-ip-range=10.97.0.0/24", "--authorization-mode=RBAC", "--token-auth-file=tokens.csv",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	s := &apiServer{admin: &rest.Config{
		Host: "https://127.0.0.1:" + port, BearerToken: adminToken, QPS: -1,
		// The server makes its certificate itself at its start.
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}}
	if s.client, err = dynamic.NewForConfig(s.admin); err != nil {
		t.Fatal(err)
	}
	http, err := rest.HTTPClientFor(s.admin)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server", func() bool { return get(http, s.admin.Host+"/readyz") == "ok" })
	s.crds = istioCRDs(t)
	return s
}

func get(c *http.Client, url string) string {
	r, err := c.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	var b bytes.Buffer
	b.ReadFrom(r.Body)
	return b.String()
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
	c := rest.CopyConfig(s.admin)
	c.BearerToken = controlPlaneToken
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
