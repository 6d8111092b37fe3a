package istio_test

import (
	"bytes"
	"os"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// localGateways are the objects of local-gateways.yaml.
type localGateways struct {
	set     appsv1.DaemonSet
	service corev1.Service
	account corev1.ServiceAccount
	role    rbacv1.Role
	binding rbacv1.RoleBinding
}

func readLocalGateways(t *testing.T) (l localGateways) {
	t.Helper()
	text, err := os.ReadFile("local-gateways.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]any{"DaemonSet": &l.set, "Service": &l.service, "ServiceAccount": &l.account, "Role": &l.role, "RoleBinding": &l.binding}
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		var o metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &o); err != nil {
			t.Fatal(err)
		}
		into := kinds[o.Kind]
		delete(kinds, o.Kind)
		if into == nil {
			t.Fatalf("another %q", o.Kind)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Fatalf("%s: %v", o.Kind, err)
		}
	}
	if len(kinds) > 0 {
		t.Fatalf("there is no %v", kinds)
	}
	return l
}

// A caller gets to the gateway of its own node, which is one of ours, and injected.
func TestCallersHaveTheirOwnNodesGateway(t *testing.T) {
	l := readLocalGateways(t)
	pods := l.set.Spec.Template
	if p := l.service.Spec.InternalTrafficPolicy; p == nil || *p != corev1.ServiceInternalTrafficPolicyLocal {
		t.Errorf("the Service's policy is %v", p)
	}
	for who, selector := range map[string]map[string]string{"Service": l.service.Spec.Selector, "DaemonSet": l.set.Spec.Selector.MatchLabels, "Gateways": {"istio": "ingressgateway"}, "filter": {"headstart.dev/gateway": "true"}, "injection": {"sidecar.istio.io/inject": "true"}} {
		if !labels.SelectorFromSet(selector).Matches(labels.Set(pods.Labels)) {
			t.Errorf("the %s' selector %v has not the pods, %v", who, selector, pods.Labels)
		}
	}
	// What istioctl and the gateways' chart label their own with: their Services must not take these.
	if labels.SelectorFromSet(map[string]string{"app": "istio-ingressgateway", "istio": "ingressgateway"}).Matches(labels.Set(pods.Labels)) {
		t.Error("clients from outside get here, too")
	}
	if pods.Annotations["inject.istio.io/templates"] != "gateway" || pods.Spec.NodeSelector["headstart.dev/node"] != "ready" {
		t.Errorf("%v, on %v", pods.Annotations, pods.Spec.NodeSelector)
	}
	c := pods.Spec.Containers[0]
	if c.Name != "istio-proxy" || c.Image != "auto" || !slices.Contains(c.Env, corev1.EnvVar{Name: "ISTIO_META_" + istio.MetadataKey, Value: istio.MetadataValue}) {
		t.Errorf("container %+v", c)
	}
	v, m := pods.Spec.Volumes[0], c.VolumeMounts[0]
	if v.HostPath == nil || v.HostPath.Path != "/run/headstart/gateway" || *v.HostPath.Type != corev1.HostPathDirectoryOrCreate || m.Name != v.Name || m.MountPath != v.HostPath.Path || !m.ReadOnly {
		t.Errorf("volume %+v, mount %+v", v, m)
	}
	if u := l.set.Spec.UpdateStrategy.RollingUpdate; u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 {
		t.Errorf("an update leaves nodes without: %+v", u)
	}
}

// They may read the certificates of Gateways, and no more.
func TestRightsOfLocalGateways(t *testing.T) {
	l := readLocalGateways(t)
	account := l.set.Spec.Template.Spec.ServiceAccountName
	if account != l.account.Name || l.binding.RoleRef.Name != l.role.Name || !slices.ContainsFunc(l.binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == account && s.Namespace == l.account.Namespace }) {
		t.Errorf("%s: %+v", account, l.binding)
	}
	if r := l.role.Rules; len(r) != 1 || !slices.Equal(r[0].Resources, []string{"secrets"}) || !slices.Equal(r[0].Verbs, []string{"get", "watch", "list"}) {
		t.Errorf("rules %+v", r)
	}
	for _, namespace := range []string{l.set.Namespace, l.service.Namespace, l.account.Namespace, l.role.Namespace, l.binding.Namespace} {
		if namespace != istio.DefaultRootNamespace {
			t.Errorf("namespace %s", namespace)
		}
	}
}
