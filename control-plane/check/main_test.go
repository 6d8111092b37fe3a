package check_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const version = "v1.0.0"

// cluster is what a test's cluster is made of: the parts of a healthy one, which a case
// changes.
type cluster struct {
	version string
	// served are the resources that the API server knows.
	served []schema.GroupVersionResource
	// objects are by kind and name, such as Node node-1.
	objects map[string]map[string]any
	// forbidden are resources that the user may not look at, denied what he may not do.
	forbidden, denied []string
	// refuses is what the API server says when the object of a name is written.
	refuses   map[string]error
	status    admin.Status
	statusErr error

	asked []string // for rights: verb, resource, and namespace if it is in one
}

var all = []schema.GroupVersionResource{
	objects.Namespaces, objects.Nodes, objects.Pods, objects.Services, objects.Secrets, objects.ConfigMaps, objects.Accounts, objects.Deployments,
	objects.StatefulSets, objects.DaemonSets, objects.Roles, objects.RoleBindings, objects.ClusterRoles, objects.ClusterRoleBindings,
	objects.Leases, objects.Budgets, objects.MutatingPolicies, objects.MutatingBindings,
	objects.NetworkPolicies, objects.PodMonitors, objects.Alerts,
	objects.RuntimeClasses, objects.Definitions, objects.AdmissionPolicies, objects.AdmissionBindings, objects.Autoscalers, objects.ScaledObjects, objects.KnativeServices,
	objects.EnvoyFilters, objects.TrafficExtensions, objects.WasmPlugins, objects.Telemetries, objects.Jobs,
	objects.VirtualServices, objects.ServiceEntries, objects.WorkloadEntries, objects.HTTPRoutes, objects.GRPCRoutes,
	{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"},
}

// add puts YAML documents into the cluster, in the place of those of the same name.
func (c *cluster) add(t *testing.T, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := map[string]any{}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		u := unstructured.Unstructured{Object: o}
		c.objects[u.GetKind()+" "+u.GetName()] = o
	}
}

// change sets a field of an object, or removes it with nil.
func (c *cluster) change(t *testing.T, object string, value any, path ...string) {
	t.Helper()
	o, ok := c.objects[object]
	if !ok {
		t.Fatalf("there is no %s", object)
	}
	if value == nil {
		unstructured.RemoveNestedField(o, path...)
	} else if err := unstructured.SetNestedField(o, value, path...); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) reader(t *testing.T) *objects.Reader {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for _, r := range all {
		kinds[r] = r.Resource + "List"
	}
	d := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	for _, o := range c.objects {
		u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(jsonNumbers(t, o))}
		gvr := resourceOf(t, u)
		if err := d.Tracker().Create(gvr, u, u.GetNamespace()); err != nil {
			t.Fatal(err)
		}
	}
	d.PrependReactor("*", "*", func(a kubetesting.Action) (bool, runtime.Object, error) {
		r := a.GetResource()
		if slices.Contains(c.forbidden, r.Resource) {
			return true, nil, apierrors.NewForbidden(r.GroupResource(), "", errors.New("no"))
		}
		if !slices.Contains(c.served, r) {
			return true, nil, apierrors.NewNotFound(r.GroupResource(), "")
		}
		if patch, is := a.(kubetesting.PatchAction); is {
			options := a.(kubetesting.PatchActionImpl).PatchOptions
			if string(patch.GetPatch()) != "{}" || !slices.Equal(options.DryRun, []string{metav1.DryRunAll}) {
				t.Errorf("%s %s is changed", r.Resource, patch.GetName())
			}
			return true, &unstructured.Unstructured{}, c.refuses[patch.GetName()]
		}
		if r.Resource == "selfsubjectaccessreviews" {
			u := a.(kubetesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
			asked, _, _ := unstructured.NestedStringMap(u.Object, "spec", "resourceAttributes")
			c.asked = append(c.asked, strings.TrimSpace(asked["verb"]+" "+asked["resource"]+" "+asked["namespace"]))
			_ = unstructured.SetNestedField(u.Object, !slices.Contains(c.denied, asked["verb"]+" "+asked["resource"]), "status", "allowed")
			return true, u, nil
		}
		return false, nil, nil
	})
	return objects.New(d, c.fetch)
}

// jsonNumbers has the numbers of o as an API server's clients have them.
func jsonNumbers(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

// plural is what the API server calls a kind.
func plural(kind string) string {
	kind = strings.ToLower(kind)
	switch {
	case strings.HasSuffix(kind, "y"):
		return strings.TrimSuffix(kind, "y") + "ies"
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	}
	return kind + "s"
}

func resourceOf(t *testing.T, u *unstructured.Unstructured) schema.GroupVersionResource {
	t.Helper()
	gv := u.GroupVersionKind().GroupVersion()
	for _, r := range all {
		if r == gv.WithResource(plural(u.GetKind())) {
			return r
		}
	}
	t.Fatalf("%s of %s is not known", u.GetKind(), gv)
	return schema.GroupVersionResource{}
}

func (c *cluster) fetch(_ context.Context, path string) ([]byte, error) {
	if path == "/version" {
		return json.Marshal(map[string]string{"gitVersion": c.version})
	}
	var list metav1.APIResourceList
	for _, r := range c.served {
		if path == "/apis/"+r.Group+"/"+r.Version || path == "/api/"+r.Version && r.Group == "" {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: r.Resource})
		}
	}
	if len(list.APIResources) == 0 {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	return json.Marshal(list)
}

// run returns the results by ID.
func (c *cluster) run(t *testing.T, checks []check.Check, only string) map[string]check.Result {
	t.Helper()
	env := check.Env{Objects: c.reader(t), Namespace: "headstart-system", MeshNamespace: "istio-system", Only: only, Version: version,
		Status: func(context.Context) (admin.Status, error) { return c.status, c.statusErr }}
	results := map[string]check.Result{}
	for _, r := range check.Run(t.Context(), checks, env, nil) {
		results[r.ID] = r
	}
	return results
}

// authority is a certificate that ends after the time.
func authority(t *testing.T, life time.Duration, isCA bool) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(life), IsCA: isCA, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// healthy is a cluster where everything is as it should be.
func healthy(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{
		version: "v1.36.3", served: slices.Clone(all), objects: map[string]map[string]any{},
		status: admin.Status{Version: version, Platform: admin.Kubernetes, Mesh: &admin.Mesh{Installed: true, Objects: 1},
			Nodes: []admin.Node{{Name: "node-1", Version: version, Cache: &admin.NodeCache{Bytes: 64 << 20, Limit: 1 << 30, Volumes: 1}},
				{Name: "node-2", Version: version, Cache: &admin.NodeCache{Limit: 1 << 30, Volumes: 2}}},
			Functions: []admin.Function{{Name: "default/fire"}}},
	}
	c.add(t, strings.ReplaceAll(healthyObjects, "VERSION", filterapi.Version))
	c.change(t, "ConfigMap headstart-ca", authority(t, 5*365*24*time.Hour, true), "data", "ca.crt")
	c.change(t, "Lease headstart-controlplane", time.Now().Format(metav1.RFC3339Micro), "spec", "renewTime")
	return c
}
