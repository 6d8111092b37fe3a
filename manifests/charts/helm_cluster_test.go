//go:build cluster

package charts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const namespace = "headstart-system"

// values are an operator's, with something of everything.
const values = `
image: {registry: "registry.example.com/mirror/", tag: v1}
stores:
  - name: default
    namespaces: [video]
    s3: {endpoint: "https://s3.example.com", region: eu-central-1, buckets: [videos, models], credentialsSecret: default-s3}
  - name: archive
    namespaces: [video, other]
    s3: {endpoint: "http://10.0.0.1:9000", pathStyle: true, buckets: [old], credentialsSecret: default-s3}
  - name: jobs
    namespaces: [video]
    redis: {address: "redis.example.com:6379", tls: true, db: 1, keyspaces: [jobs, Frames_1], credentialsSecret: jobs}
  - name: web
    namespaces: [video]
    http: {hosts: [www.example.com, "10.0.0.1:8080"], privateAddresses: true}
destinations:
  - name: orders
    namespaces: [video]
    postgres: {address: "db.example.com:5432", user: orders, credentialsSecret: orders-db, tls: {serverName: db.internal}}
  - name: sessions
    namespaces: [other]
    origin: node
    unused: 5
    redis: {address: "10.0.0.1:6379", user: app, db: 3, credentialsSecret: sessions}
  - {name: ledger, namespaces: [video], tls: {address: "ledger:443"}}
  - {name: legacy, namespaces: [video], tcp: {address: "legacy:9000"}}
`

// program runs one of the cluster's programs; its standard error is part of the answer
// only if it fails.
func program(t *testing.T, stdin, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), apiservertest.Binary(t, name), args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String() + errs.String(), err
	}
	return out.String(), nil
}

func must(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	out, err := program(t, stdin, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func TestLint(t *testing.T) {
	out := must(t, values, "helm", "lint", "--strict", "headstart", "-f", "-")
	if strings.Contains(out, "[WARNING]") || strings.Contains(out, "[ERROR]") {
		t.Error(out)
	}
}

// What a schema can find is found before anything is installed.
func TestWrongValuesAreRefused(t *testing.T) {
	for _, set := range []string{
		"image.node.digest=latest", "node.bufferLimit=1", "node.bufferRedis.address=redis://user:password@redis", "istio.extension=Lua", "nodes.bufferLimit=1", "uninstall.timeout=soon",
		"stores[0].name=default", "stores[0].name=jobs,stores[0].namespaces={a},stores[0].redis.address=a,stores[0].redis.keyspaces={a}",
		"stores[0].name=two,stores[0].namespaces={a},stores[0].redis.address=a:1,stores[0].redis.keyspaces={a},stores[0].http.hosts={a}",
		"stores[0].name=d,stores[0].namespaces={a},stores[0].s3.endpoint=http://a,stores[0].s3.buckets={bbb}",
		"stores[0].name=d,stores[0].namespaces={a},stores[0].s3.endpoint=http://a,stores[0].s3.buckets={bbb},stores[0].s3.credentials=workload,stores[0].s3.credentialsSecret=c",
		"destinations[0].name=orders,destinations[0].namespaces={a}", "destinations[0].name=orders,destinations[0].tcp.address=a:1",
		"destinations[0].name=orders,destinations[0].namespaces={a},destinations[0].tcp.address=a",
		"destinations[0].name=orders,destinations[0].namespaces={a},destinations[0].tcp.address=a:1,destinations[0].tls.address=a:1",
		"destinations[0].name=orders,destinations[0].namespaces={a},destinations[0].postgres.address=a:1",
		"controlplane.logLevel=loud", "istio.extensionURL=registry", "image.registry=https://images.example.com",
	} {
		if out, err := program(t, "", "helm", "template", "headstart", "--set", set); err == nil || !strings.Contains(out, "don't meet the specifications of the schema") {
			t.Errorf("--set %s: %v\n%.300s", set, err, out)
		}
	}
}

// A chart of the source has no images until somebody makes some, and says so.
func TestAChartOfNoReleaseNamesNoImages(t *testing.T) {
	if out, err := program(t, "", "helm", "template", "headstart"); err == nil || !strings.Contains(out, "make images") {
		t.Errorf("%v\n%.300s", err, out)
	}
	must(t, "", "helm", "template", "headstart", "--set", "image.tag=v1")
}

// Monitoring and NetworkPolicies are there when somebody wants them.
func TestWhatIsOnlyThereWhenItIsWanted(t *testing.T) {
	kinds := func(set string) map[string]int {
		all := map[string]int{}
		for _, text := range strings.Split(must(t, "", "helm", "template", "headstart", "-n", namespace, "--set", "image.tag=v1"+set), "\n---") {
			var o struct {
				Kind     string
				Metadata struct{ Labels map[string]string }
			}
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if all[o.Kind]++; o.Metadata.Labels["release"] == "prometheus" {
				all[o.Kind+" for prometheus"]++
			}
		}
		return all
	}
	before := kinds("")
	after := kinds(",monitoring.podMonitors.enabled=true,monitoring.podMonitors.labels.release=prometheus,monitoring.alerts.enabled=true," +
		"monitoring.alerts.labels.release=prometheus,monitoring.dashboard.enabled=true,networkPolicies.enabled=true")
	for kind, more := range map[string]int{"PodMonitor": 2, "PodMonitor for prometheus": 2, "PrometheusRule": 1, "PrometheusRule for prometheus": 1,
		"ConfigMap": 1, "NetworkPolicy": 2} {
		if after[kind]-before[kind] != more {
			t.Errorf("%d of kind %s, and %d", before[kind], kind, after[kind])
		}
	}
}

// What an operator adds to objects and pods is in them, and a store may do without a secret.
func TestWhatAnOperatorAdds(t *testing.T) {
	out := must(t, "", "helm", "template", "headstart", "-n", namespace, "--set", "image.tag=v1,labels.team=edge,"+
		"controlplane.podLabels.of=cp,controlplane.podAnnotations.of=cp,node.podLabels.of=node,node.podAnnotations.of=node,"+
		"node.affinity.nodeAffinity.x=y,node.env[0].name=AWS_REGION,node.env[0].value=eu-central-1,node.serviceAccount.annotations.role=inputs,node.trustedCAs=company,"+
		"stores[0].name=d,stores[0].namespaces={a},stores[0].s3.endpoint=http://a,stores[0].s3.buckets={bbb},stores[0].s3.credentials=workload")
	for _, of := range []struct {
		kind, name string
		has        []string
	}{
		{"Deployment", "headstart-controlplane", []string{"team: edge", "of: cp"}},
		{"DaemonSet", "headstart-node", []string{"team: edge", "of: node", "x: \"y\"", "name: AWS_REGION", "value: /etc/headstart/trusted", "name: company"}},
		{"DaemonSet", "headstart-installer", []string{"team: edge", "of: node", "x: \"y\""}},
		{"ServiceAccount", "headstart-node", []string{"team: edge", "role: inputs"}},
		{"ConfigMap", "headstart-stores", []string{"team: edge", "credentials: workload"}},
	} {
		text, err := yaml.Marshal(document(t, out, of.kind, of.name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range of.has {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s %s has no %s:\n%s", of.kind, of.name, want, text)
			}
		}
	}
}

// document returns the rendered object of that kind and name, in Headstart's namespace or
// in none.
func document(t *testing.T, rendered, kind, name string) map[string]any {
	t.Helper()
	return documentIn(t, rendered, kind, namespace, name)
}

// documentIn returns the rendered object of that kind and name, in that namespace or in
// none.
func documentIn(t *testing.T, rendered, kind, namespace, name string) map[string]any {
	t.Helper()
	for _, text := range strings.Split(rendered, "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		meta, _ := o["metadata"].(map[string]any)
		if in, _ := meta["namespace"].(string); o["kind"] == kind && meta["name"] == name && (in == "" || in == namespace) {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func TestTheControlPlaneTakesTheDestinations(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-")
	data, _ := document(t, out, "ConfigMap", "headstart-stores")["data"].(map[string]any)
	text, _ := data["destinations.yaml"].(string)
	ds, err := destinations.Parse([]byte(text), destinations.Sandbox)
	if err != nil || len(ds) != 4 || ds[0].TLS.ServerName != "db.internal" || ds[1].Unused != 5 || ds[1].DB != 3 || ds[3].Kind != "tcp" {
		t.Errorf("%+v, %v in\n%s", ds, err, text)
	}
	for _, secret := range []string{"orders-db", "sessions"} {
		if !strings.Contains(out, "- secret: {name: "+secret+", items:") {
			t.Errorf("the daemons have no secret %s", secret)
		}
	}
	if !strings.Contains(out, `{"name":["sessions"],"namespaces":["other"]}`) || strings.Contains(out, "DESTINATIONS") {
		t.Error("the admission policies lack the destinations")
	}
}

func TestTheControlPlaneTakesTheStores(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-")
	data, _ := document(t, out, "ConfigMap", "headstart-stores")["data"].(map[string]any)
	text, _ := data["stores.yaml"].(string)
	ss, err := stores.Parse([]byte(text))
	if err != nil || len(ss) != 4 || ss[1].Namespaces[1] != "other" || !ss[1].PathStyle || !ss[2].TLS || ss[2].Database != 1 || ss[3].Buckets[1] != "10.0.0.1:8080" {
		t.Errorf("got %+v, %v", ss, err)
	}
	// The admission policies have their schemes as the control plane has them.
	for _, s := range ss {
		schemes, err := json.Marshal(s.Schemes())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, fmt.Sprintf(`"name":[%q],"namespaces":`, s.Name)) || !strings.Contains(out, `"schemes":`+string(schemes)) {
			t.Errorf("store %s has other schemes than %s", s.Name, schemes)
		}
	}
	out = must(t, "", "helm", "template", "headstart", "-n", namespace, "--set", "image.tag=v1")
	data, _ = document(t, out, "ConfigMap", "headstart-stores")["data"].(map[string]any)
	text, _ = data["stores.yaml"].(string)
	if ss, err := stores.Parse([]byte(text)); err != nil || len(ss) != 0 {
		t.Errorf("without stores: %+v, %v", ss, err)
	}
}

type volumeMount struct{ Name, MountPath, SubPath string }

// daemonSet is what a rendered DaemonSet may do.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				HostPID, HostNetwork, HostIPC bool
				ServiceAccountName            string
				AutomountServiceAccountToken  bool
				InitContainers, Containers    []struct {
					Name, Image     string
					SecurityContext struct {
						AllowPrivilegeEscalation, ReadOnlyRootFilesystem, Privileged, RunAsNonRoot bool
						Capabilities                                                               struct{ Drop, Add []string }
					}
					VolumeMounts []volumeMount
				}
				Volumes []struct {
					Name     string
					HostPath *struct{ Path string }
				}
			}
		}
	}
}

func daemonSetOf(t *testing.T, rendered, name string) (set daemonSet) {
	t.Helper()
	text, err := json.Marshal(document(t, rendered, "DaemonSet", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// Only the installer has power over the node. The daemon sees none of the node's processes and files but its
// own, and has neither capabilities beyond one, nor credentials for the API server.
func TestAttackOfTheDaemonOnItsNode(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-")
	pod := daemonSetOf(t, out, "headstart-node").Spec.Template.Spec
	if pod.HostPID || pod.HostNetwork || pod.HostIPC || pod.AutomountServiceAccountToken || pod.ServiceAccountName != "headstart-node" || len(pod.InitContainers) > 0 {
		t.Errorf("the daemon's pod has more of the node than it needs: %+v", pod)
	}
	s := pod.Containers[0].SecurityContext
	if s.AllowPrivilegeEscalation || s.Privileged || !s.ReadOnlyRootFilesystem ||
		strings.Join(s.Capabilities.Drop, " ") != "ALL" || strings.Join(s.Capabilities.Add, " ") != "CHOWN" {
		t.Errorf("the daemon may do more than it needs: %+v", s)
	}
	for _, v := range pod.Volumes {
		if v.HostPath != nil && v.HostPath.Path != "/run/headstart" && v.HostPath.Path != "/var/lib/headstart" || v.Name == "api-access" {
			t.Errorf("the daemon has %s", v.Name)
		}
	}
	// What the kubelet mounts for gateways stays a directory.
	if !slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m volumeMount) bool {
		return m == volumeMount{Name: "run", MountPath: "/run/headstart/gateway", SubPath: "gateway"}
	}) {
		t.Error("the daemon may put a link in place of the gateways' directory")
	}
	if strings.Contains(out, "kind: ServiceAccount, name: headstart-node,") {
		t.Error("the daemon's account has rights")
	}
	// Except for the installer, no container of its pod has anything of the node.
	installer := daemonSetOf(t, out, "headstart-installer").Spec.Template.Spec
	for _, c := range slices.Concat(installer.InitContainers, installer.Containers) {
		if s := c.SecurityContext; c.Name != "installer" && (s.Privileged || s.AllowPrivilegeEscalation ||
			!s.RunAsNonRoot || len(s.Capabilities.Add) > 0 || len(c.VolumeMounts) > 0) {
			t.Errorf("%s may do more than it needs: %+v", c.Name, c)
		}
	}
}

// The installer restarts containerd, which breaks pulls. So the node has the daemon's image before it begins.
func TestTheDaemonsImageIsPulledBeforeContainerdIsRestarted(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-")
	daemon := daemonSetOf(t, out, "headstart-node").Spec.Template.Spec
	first := daemonSetOf(t, out, "headstart-installer").Spec.Template.Spec.InitContainers
	if len(first) != 2 || first[0].Image != daemon.Containers[0].Image || first[1].Name != "installer" {
		t.Errorf("the installer's pod begins with %+v", first)
	}
}

// Without an installer there may still be what one has left, and the uninstaller's pods take
// the label off in any case.
func TestUninstallingNeedsNoInstaller(t *testing.T) {
	out := must(t, "", "helm", "template", "headstart", "-n", namespace, "--set", "installer.enabled=false,image.tag=v1")
	document(t, out, "ClusterRole", "headstart-installer")
	document(t, out, "ClusterRoleBinding", "headstart-installer")
	document(t, out, "ServiceAccount", "headstart-installer")
}

// The policies for the control plane's account are for the release's, and have the operator's namespaces; nothing
// switches them off.
func TestTheControlPlanesPoliciesAreTheReleases(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-", "--set", "namespaces={video,other},admission.enabled=false")
	for _, name := range []string{"filters", "prefetch", "scales", "events"} {
		document(t, out, "ValidatingAdmissionPolicyBinding", "headstart-controlplane-"+name)
		text, err := yaml.Marshal(document(t, out, "ValidatingAdmissionPolicy", "headstart-controlplane-"+name))
		if err != nil {
			t.Fatal(err)
		}
		byNamespace := name == "filters" || name == "scales"
		if !strings.Contains(string(text), "'system:serviceaccount:"+namespace+":headstart-controlplane'") ||
			strings.Contains(string(text), "_NAMESPACE") || byNamespace != strings.Contains(string(text), `in ["video","other"]`) {
			t.Errorf("%s", text)
		}
	}
	if !strings.Contains(out, "--function-namespaces=video,other") {
		t.Error("the control plane does not hear of the namespaces")
	}
}

// granted has one line for each thing that rules allow.
func granted(rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					lines = append(lines, strings.TrimSpace(strings.Join([]string{verb, schema.GroupResource{Group: group, Resource: resource}.String(), strings.Join(r.ResourceNames, ",")}, " ")))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// The control plane may do in the whole cluster what its parts say they need, and in
// Istio's namespace what the reference says, and no more.
func TestTheControlPlaneMayDoNoMore(t *testing.T) {
	out := must(t, values, "helm", "template", "headstart", "-n", namespace, "-f", "-")
	page, err := os.ReadFile("../../docs/reference/istio.md")
	if err != nil {
		t.Fatal(err)
	}
	_, inIstio, _ := strings.Cut(string(page), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
	inIstio, _, _ = strings.Cut(inIstio, "```")
	var want rbacv1.Role
	if err := yaml.Unmarshal([]byte(inIstio), &want); err != nil {
		t.Fatal(err)
	}
	tokens := rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}
	for at, want := range map[string][]rbacv1.PolicyRule{
		"ClusterRole ":      append(kube.Rules(), tokens),
		"Role istio-system": want.Rules,
	} {
		kind, in, _ := strings.Cut(at, " ")
		text, err := yaml.Marshal(documentIn(t, out, kind, in, "headstart-controlplane"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Rules []rbacv1.PolicyRule }
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(granted(want), granted(got.Rules)); d != "" {
			t.Errorf("%s (-want +chart):\n%s", at, d)
		}
	}
}
