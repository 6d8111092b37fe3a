package check_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/routing"
)

func TestAHealthyClusterPasses(t *testing.T) {
	c := healthy(t)
	for _, checks := range [][]check.Check{check.Before(), check.After()} {
		for _, r := range c.run(t, checks, "") {
			if r.Status != check.Pass || r.Message == "" || r.Hint != "" || r.Docs != "" || len(r.Problems) > 0 {
				t.Errorf("%+v", r)
			}
		}
	}
}

func without(c *cluster, resources ...schema.GroupVersionResource) {
	c.served = slices.DeleteFunc(c.served, func(r schema.GroupVersionResource) bool { return slices.Contains(resources, r) })
	for name, o := range c.objects {
		group, _, _ := strings.Cut(o["apiVersion"].(string), "/")
		for _, r := range resources {
			if group == r.Group && strings.EqualFold(strings.TrimSuffix(r.Resource, "s"), o["kind"].(string)) {
				delete(c.objects, name)
			}
		}
	}
}

// Each case breaks one thing; its check says so, and no other fails that does not need it.
func TestBeforeTheInstallation(t *testing.T) {
	runTable(t, check.Before(), map[string]broken{
		"an old API server": {"kubernetes", check.Fail, "v1.29.0 is older than 1.30", func(t *testing.T, c *cluster) { c.version = "v1.29.0" }},
		"a vendor's suffix": {"kubernetes", check.Pass, "v1.33.5-gke.100", func(t *testing.T, c *cluster) { c.version = "v1.33.5-gke.100" }},
		"no policies":       {"admission-api", check.Fail, "validatingadmissionpolicies of admissionregistration.k8s.io/v1 are not served", func(t *testing.T, c *cluster) { without(c, objects.AdmissionPolicies) }},
		"few rights": {"rights", check.Fail, "you may not create runtimeclasses.node.k8s.io|you may not delete secrets in namespace headstart-system", func(t *testing.T, c *cluster) {
			c.denied = []string{"create runtimeclasses", "delete secrets"}
		}},
		"one node with CRI-O": {"containerd", check.Warn, "cri-o 1.31.0 (1 node)|Node node-2: its containers are not run by containerd", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", "cri-o://1.31.0", "status", "nodeInfo", "containerRuntimeVersion")
		}},
		"an old containerd": {"containerd", check.Warn, "Node node-2: it is older than containerd 1.6", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", "containerd://1.4.13", "status", "nodeInfo", "containerRuntimeVersion")
		}},
		"a Windows node": {"containerd", check.Warn, "Node node-2: it runs windows", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", "windows", "status", "nodeInfo", "operatingSystem")
		}},
		"another processor": {"containerd", check.Warn, "its processor is s390x", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", "s390x", "status", "nodeInfo", "architecture")
		}},
		"no containerd at all": {"containerd", check.Fail, "docker 20.10", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-1", "docker://20.10", "status", "nodeInfo", "containerRuntimeVersion")
			c.change(t, "Node node-2", "docker://20.10", "status", "nodeInfo", "containerRuntimeVersion")
		}},
		"an old kernel": {"kernel", check.Warn, "Node node-1: 4.18.0-553.el8 is older than 5.4", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-1", "4.18.0-553.el8", "status", "nodeInfo", "kernelVersion")
		}},
		"nodes hidden": {"kernel", check.Skip, "you may not look at the nodes", func(t *testing.T, c *cluster) { c.forbidden = []string{"nodes"} }},
		"no Istio":     {"istio", check.Fail, "Istio is not installed", func(t *testing.T, c *cluster) { without(c, objects.EnvoyFilters) }},
		"no istiod": {"istio", check.Warn, "no istiod in namespace istio-system", func(t *testing.T, c *cluster) {
			delete(c.objects, "Deployment istiod")
		}},
		"an old Istio": {"istio", check.Warn, "1.24.3 is older than 1.30", func(t *testing.T, c *cluster) {
			c.add(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: istiod, namespace: istio-system, labels: {app: istiod}}\nspec: {template: {spec: {containers: [{name: discovery, image: \"registry:5000/pilot:1.24.3@sha256:00\"}]}}}")
		}},
		"WasmPlugin only": {"filter-api", check.Pass, "wasmplugins", func(t *testing.T, c *cluster) { without(c, objects.TrafficExtensions) }},
		"no filter's API": {"filter-api", check.Fail, "neither TrafficExtensions nor WasmPlugins", func(t *testing.T, c *cluster) { without(c, objects.TrafficExtensions, objects.WasmPlugins) }},
		"KEDA only":       {"autoscalers", check.Pass, "KEDA; they scale to zero", func(t *testing.T, c *cluster) { without(c, objects.KnativeServices) }},
		"no overlay": {"overlay", check.Warn, "none of 1 gateway pods has it", func(t *testing.T, c *cluster) {
			delete(c.objects, "Pod gateway-1")
		}},
	})
}

// gateway is gateway-1's pod without a part of the overlay.
func gateway(t *testing.T, c *cluster, lacks string) {
	t.Helper()
	o := c.objects["Pod gateway-1"]
	spec := o["spec"].(map[string]any)
	proxy := spec["containers"].([]any)[0].(map[string]any)
	switch lacks {
	case "variable":
		delete(proxy, "env")
	case "mount":
		delete(proxy, "volumeMounts")
	case "volume":
		delete(spec, "volumes")
	case "label":
		delete(o["metadata"].(map[string]any)["labels"].(map[string]any), "headstart.dev/gateway")
	}
}

func TestAfterTheInstallation(t *testing.T) {
	const gatewayPod = "Pod istio-system/gateway-1: "
	runTable(t, check.After(), map[string]broken{
		"not installed": {"control-plane", check.Fail, "Headstart is not installed: namespace headstart-system has no Deployment headstart-controlplane", func(t *testing.T, c *cluster) {
			delete(c.objects, "Deployment headstart-controlplane")
		}},
		"one control plane": {"control-plane", check.Warn, "one replica|Deployment headstart-system/headstart-controlplane: while its pod is away, cold requests wait", func(t *testing.T, c *cluster) {
			c.change(t, "Deployment headstart-controlplane", int64(1), "spec", "replicas")
		}},
		"one control plane by default": {"control-plane", check.Warn, "one replica", func(t *testing.T, c *cluster) {
			c.change(t, "Deployment headstart-controlplane", nil, "spec", "replicas")
		}},
		"a control plane is away": {"control-plane", check.Warn, "1 of 2 available|Pod headstart-system/controlplane-1: it is pending", func(t *testing.T, c *cluster) {
			c.change(t, "Deployment headstart-controlplane", int64(1), "status", "availableReplicas")
			c.add(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: controlplane-1, namespace: headstart-system, labels: {app: controlplane}}\nstatus: {phase: Pending}")
		}},
		"a daemon with one of two": {"connected", check.Warn, "2 connected, 1 not to all control planes|Node node-2: its daemon is not connected to control plane b", func(t *testing.T, c *cluster) {
			c.status.Nodes[1].Away = []string{"b"}
		}},
		"control plane starting": {"control-plane", check.Fail, "Deployment headstart-system/headstart-controlplane has no available replica|Pod headstart-system/controlplane-1: it is pending on node node-1; container controlplane: ImagePullBackOff Back-off pulling", func(t *testing.T, c *cluster) {
			c.change(t, "Deployment headstart-controlplane", nil, "status", "availableReplicas")
			c.add(t, `{apiVersion: v1, kind: Pod, metadata: {name: controlplane-1, namespace: headstart-system, labels: {app: controlplane}}, spec: {nodeName: node-1, containers: [{name: controlplane}]},
				status: {phase: Pending, containerStatuses: [{name: controlplane, state: {waiting: {reason: ImagePullBackOff, message: Back-off pulling}}}]}}`)
		}},
		"no answer":     {"admin", check.Fail, "looking at its status: no route", func(t *testing.T, c *cluster) { c.statusErr = errors.New("no route") }},
		"not permitted": {"admin", check.Skip, "you may not look at its status", func(t *testing.T, c *cluster) { c.statusErr = apierrors.NewForbidden(schema.GroupResource{}, "", nil) }},
		"another version": {"admin", check.Warn, "it is version v0.9.0, and this program v1.0.0", func(t *testing.T, c *cluster) {
			c.status.Version = "v0.9.0"
			c.status.Nodes[0].Version, c.status.Nodes[1].Version = "v0.9.0", "v0.9.0"
		}},
		"no Lease": {"in-charge", check.Fail, "there is no Lease headstart-system/headstart-controlplane", func(t *testing.T, c *cluster) {
			delete(c.objects, "Lease headstart-controlplane")
		}},
		"the chart's empty Lease": {"in-charge", check.Fail, "no control plane has Lease headstart-system/headstart-controlplane", func(t *testing.T, c *cluster) {
			c.change(t, "Lease headstart-controlplane", nil, "spec")
		}},
		"nobody renews the Lease": {"in-charge", check.Fail, "controlplane-1 has Lease headstart-system/headstart-controlplane, and renewed it 2m", func(t *testing.T, c *cluster) {
			c.change(t, "Lease headstart-controlplane", time.Now().Add(-2*time.Minute).Format(metav1.RFC3339Micro), "spec", "renewTime")
		}},
		"no authority": {"authority", check.Fail, "ConfigMap headstart-system/headstart-ca has none", func(t *testing.T, c *cluster) { delete(c.objects, "ConfigMap headstart-ca") }},
		"broken authority": {"authority", check.Fail, "holds no certificate", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-ca", "x", "data", "ca.crt")
		}},
		"no authority's certificate": {"authority", check.Fail, "is of no authority", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-ca", authority(t, time.Hour, false), "data", "ca.crt")
		}},
		"authority ends": {"authority", check.Warn, "it ends on 20", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-ca", authority(t, 80*24*time.Hour, true), "data", "ca.crt")
		}},
		"authority has ended": {"authority", check.Fail, "it has ended on ", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-ca", authority(t, -time.Hour, true), "data", "ca.crt")
		}},
		"a daemon dies": {"daemons", check.Fail, "1 of 2 ready|Pod headstart-system/node-b: it is running on node node-2; container node ended with 1: Error bad flag", func(t *testing.T, c *cluster) {
			c.change(t, "DaemonSet headstart-node", int64(1), "status", "numberReady")
			c.add(t, `{apiVersion: v1, kind: Pod, metadata: {name: node-b, namespace: headstart-system, labels: {app: node}}, spec: {nodeName: node-2, containers: [{name: node}]},
				status: {phase: Running, containerStatuses: [{name: node, ready: false, lastState: {terminated: {exitCode: 1, reason: Error, message: bad flag}}}]}}`)
		}},
		"an update stands still": {"daemons", check.Warn, "2 of 2 ready, 1 of an earlier version", func(t *testing.T, c *cluster) {
			c.change(t, "DaemonSet headstart-node", int64(1), "status", "updatedNumberScheduled")
		}},
		"no daemon": {"daemons", check.Fail, "no node is to have one", func(t *testing.T, c *cluster) {
			c.change(t, "DaemonSet headstart-node", nil, "status")
		}},
		"a node whose containerd was configured again": {"nodes", check.Fail, "1 of 2 drifted|Node node-2: drifted: its containerd has lost the runtime headstart", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", []any{map[string]any{"name": "runc"}}, "status", "runtimeHandlers")
		}},
		"one drifted, and one without label": {"nodes", check.Fail, "1 of 1 drifted|" +
			"Node node-2: drifted: its containerd has lost the runtime headstart|Node node-1: it has a daemon, and not the label", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-1", nil, "metadata", "labels")
			c.change(t, "Node node-2", []any{map[string]any{"name": "runc"}}, "status", "runtimeHandlers")
		}},
		"a node that cannot have it": {"nodes", check.Warn, "1 of 2 labelled, the others cannot be|Node node-2: this node cannot have the runtime: Talos writes containerd's configuration itself; its functions get inputs as bodies", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", nil, "metadata", "labels")
			c.add(t, `{apiVersion: v1, kind: Pod, metadata: {name: installer-b, namespace: headstart-system, labels: {app.kubernetes.io/name: headstart-installer}}, spec: {nodeName: node-2, containers: [{name: wait}]},
				status: {phase: Running, initContainerStatuses: [{name: installer, state: {terminated: {exitCode: 0, message: "this node cannot have the runtime: Talos writes containerd's configuration itself\n"}}}]}}`)
		}},
		"a node without label": {"nodes", check.Fail, "1 of 2 labelled|Node node-2: it has a daemon, and not the label headstart.dev/node=ready", func(t *testing.T, c *cluster) {
			c.change(t, "Node node-2", nil, "metadata", "labels")
		}},
		"a daemon away": {"connected", check.Fail, "1 is|Node node-2: its daemon is not connected", func(t *testing.T, c *cluster) { c.status.Nodes = c.status.Nodes[:1] }},
		"caches":        {"cache", check.Pass, "64Mi of 2Gi in the buffer, and 3 volumes, on 2 nodes", func(*testing.T, *cluster) {}},
		"a cache off":   {"cache", check.Pass, "64Mi of 1Gi in the buffer, and 1 volume, on 2 nodes; 1 keeps no objects (--cache-age 0)", func(t *testing.T, c *cluster) { c.status.Nodes[1].Cache = &admin.NodeCache{} }},
		"a full disk": {"cache", check.Warn, "64Mi of 2Gi in the buffer, and 3 volumes, on 2 nodes|Node node-2: its disk has less free space", func(t *testing.T, c *cluster) {
			c.status.Nodes[1].Cache.Problems = []string{"its disk has less free space"}
		}},
		"older daemons":           {"cache", check.Skip, "no daemon says what it keeps", func(t *testing.T, c *cluster) { c.status.Nodes[0].Cache, c.status.Nodes[1].Cache = nil, nil }},
		"a daemon's version":      {"connected", check.Warn, "2 connected, 1 of another version|Node node-2: its daemon is version v0.9.0, the control plane v1.0.0", func(t *testing.T, c *cluster) { c.status.Nodes[1].Version = "v0.9.0" }},
		"no RuntimeClass":         {"runtime-class", check.Fail, "there is no RuntimeClass headstart", func(t *testing.T, c *cluster) { delete(c.objects, "RuntimeClass headstart") }},
		"another handler":         {"runtime-class", check.Fail, `its handler is "runc"`, func(t *testing.T, c *cluster) { c.change(t, "RuntimeClass headstart", "runc", "handler") }},
		"RuntimeClass everywhere": {"runtime-class", check.Warn, "pods may come to nodes that cannot start them", func(t *testing.T, c *cluster) { c.change(t, "RuntimeClass headstart", nil, "scheduling") }},
		"a policy gone": {"admission", check.Fail, "ValidatingAdmissionPolicy headstart-services: it is not there", func(t *testing.T, c *cluster) {
			delete(c.objects, "ValidatingAdmissionPolicy headstart-services")
		}},
		"a binding gone": {"admission", check.Fail, "ValidatingAdmissionPolicyBinding headstart-services: it is not there, so the policy has no effect", func(t *testing.T, c *cluster) {
			delete(c.objects, "ValidatingAdmissionPolicyBinding headstart-services")
		}},
		"a policy that only warns": {"admission", check.Warn, "its actions do not have Deny", func(t *testing.T, c *cluster) {
			c.change(t, "ValidatingAdmissionPolicyBinding headstart-services", []any{"Warn"}, "spec", "validationActions")
		}},
		"a policy with a mistake": {"admission", check.Warn, "spec.validations[0]: undefined field 'x'", func(t *testing.T, c *cluster) {
			c.change(t, "ValidatingAdmissionPolicy headstart-services", []any{map[string]any{"fieldRef": "spec.validations[0]", "warning": "undefined field 'x'"}}, "status", "typeChecking", "expressionWarnings")
		}},
		"a Secret gone":  {"stores", check.Fail, "2 in ConfigMap headstart-system/headstart-stores|store default: its credentials, Secret headstart-system/s3-default, are not there", func(t *testing.T, c *cluster) { delete(c.objects, "Secret s3-default") }},
		"a Secret empty": {"stores", check.Fail, "Secret headstart-system/s3-default has nothing under credentials", func(t *testing.T, c *cluster) { c.change(t, "Secret s3-default", nil, "data") }},
		"Secrets hidden": {"stores", check.Pass, "you may not look at their Secrets", func(t *testing.T, c *cluster) { c.forbidden = []string{"secrets"} }},
		"a store without a Secret": {"stores", check.Pass, "1 in ConfigMap headstart-system/headstart-stores", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-stores", `[{name: jobs, redis: {address: "redis:6379", keyspaces: [jobs]}}]`, "data", "stores.yaml")
		}},
		"a namespace gone": {"stores", check.Fail, "store archive: it is granted to namespace video, which is not there", func(t *testing.T, c *cluster) { delete(c.objects, "Namespace video") }},
		"the list gone":    {"stores", check.Fail, `configmaps "headstart-stores" not found`, func(t *testing.T, c *cluster) { delete(c.objects, "ConfigMap headstart-stores") }},
		"the list is wrong": {"stores", check.Fail, "not a list of stores", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-stores", "x: y", "data", "stores.yaml")
		}},
		"a destination's Secret gone":    {"destinations", check.Fail, "2 in ConfigMap headstart-system/headstart-stores|destination orders: its credentials, Secret headstart-system/orders-db, are not there", func(t *testing.T, c *cluster) { delete(c.objects, "Secret orders-db") }},
		"a destination's namespace gone": {"destinations", check.Fail, "destination orders: it is granted to namespace video, which is not there", func(t *testing.T, c *cluster) { delete(c.objects, "Namespace video") }},
		"kernels without TLS": {"connections", check.Warn, "1 of 2 nodes cannot do all|Node node-2: connections with TLS end with its daemon: the module is not loaded", func(t *testing.T, c *cluster) {
			c.status.Nodes[1].NoKernelTLS = "the module is not loaded"
		}},
		"an old kernel": {"connections", check.Warn,
			"Node node-1: programs get no connections by connect: it is older than 5.6", func(t *testing.T, c *cluster) {
				c.status.Nodes[0].NoConnect = "it is older than 5.6"
			}},
		"the destinations are wrong": {"destinations", check.Fail, "not a list of destinations", func(t *testing.T, c *cluster) {
			c.change(t, "ConfigMap headstart-stores", "x: y", "data", "destinations.yaml")
		}},
		"wrong annotations": {"annotations", check.Fail, `1 of 2 annotated Services is refused|Service default/fire: headstart.dev/scale-to-zero: "30" is not a duration; write it like 90s or 5m|Service default/fire: headstart.dev/inputs: is not a Headstart annotation; did you mean headstart.dev/input?`, func(t *testing.T, c *cluster) {
			c.change(t, "Service fire", map[string]any{"headstart.dev/scale-to-zero": "30", "headstart.dev/inputs": "a"}, "metadata", "annotations")
		}},
		"a store of others": {"annotations", check.Fail, `Service default/fire: headstart.dev/store: "archive" is not among the operator's stores; use one of default`, func(t *testing.T, c *cluster) {
			c.change(t, "Service fire", map[string]any{"headstart.dev/store": "archive", "headstart.dev/input": "s3://old/{header.x-key}"}, "metadata", "annotations")
		}},
		"wrong Knative annotations": {"annotations", check.Fail, `Knative Service video/scene: headstart.dev/store: "nowhere" is not among the operator's stores; use one of default, archive`, func(t *testing.T, c *cluster) {
			c.change(t, "Service scene", "nowhere", "metadata", "annotations", "headstart.dev/store")
		}},
		"no Knative":     {"annotations", check.Pass, "1 annotated Service", func(t *testing.T, c *cluster) { without2(c) }},
		"Knative's copy": {"annotations", check.Pass, "2 annotated Services", knativeCopy},
		"an HPA, which rests at zero": {"scaling", check.Pass, "1", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: fire, namespace: default}, spec: {scaleTargetRef: {kind: Deployment, name: fire}}}")
		}},
		"KEDA, to zero": {"scaling", check.Pass, "1", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: fire, namespace: default}, spec: {scaleTargetRef: {name: fire}}}")
		}},
		"KEDA, to zero when it is idle": {"scaling", check.Pass, "1", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: fire, namespace: default}, spec: {minReplicaCount: 2, idleReplicaCount: 0, scaleTargetRef: {name: fire}}}")
		}},
		"KEDA, not to zero": {"scaling", check.Fail, "1 of 1 is not scaled|Service default/fire: headstart.dev/scale-to-zero has no effect: KEDA's ScaledObject fire keeps 2 replicas of Deployment default/fire; set its minReplicaCount to 0", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: fire, namespace: default}, spec: {minReplicaCount: 2, scaleTargetRef: {name: fire}}}")
		}},
		"Knative scales": {"scaling", check.Fail, "Knative Service video/scene: headstart.dev/scale-to-zero has no effect: Knative scales it", func(t *testing.T, c *cluster) {
			c.change(t, "Service scene", "60s", "metadata", "annotations", "headstart.dev/scale-to-zero")
		}},
		"two workloads": {"scaling", check.Fail, "it selects the pods of Deployment default/fire and of StatefulSet default/fire-set", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: fire-set, namespace: default}, spec: {template: {metadata: {labels: {app: fire}}}}}")
		}},
		"no workload": {"scaling", check.Fail, "there is nothing to scale", func(t *testing.T, c *cluster) { delete(c.objects, "Deployment fire") }},
		"no gateway":  {"gateways", check.Fail, "0 of 1 gateway pods have the overlay", func(t *testing.T, c *cluster) { delete(c.objects, "Pod gateway-1") }},
		"no variable": {"gateways", check.Fail, gatewayPod + "it has no ISTIO_META_HEADSTART", func(t *testing.T, c *cluster) { gateway(t, c, "variable") }},
		"no mount":    {"gateways", check.Fail, gatewayPod + "ISTIO_META_HEADSTART tells it of sockets that are not mounted", func(t *testing.T, c *cluster) { gateway(t, c, "mount") }},
		"no volume":   {"gateways", check.Fail, gatewayPod + "ISTIO_META_HEADSTART tells it of sockets that are not mounted", func(t *testing.T, c *cluster) { gateway(t, c, "volume") }},
		"no label":    {"gateways", check.Fail, gatewayPod + "its pods lack the label headstart.dev/gateway=true", func(t *testing.T, c *cluster) { gateway(t, c, "label") }},
		"a gateway alone": {"gateways", check.Fail, gatewayPod + "it runs on node node-3, which has no daemon that is ready", func(t *testing.T, c *cluster) {
			c.change(t, "Pod gateway-1", "node-3", "spec", "nodeName")
		}},
		"a node without its gateway": {"local-gateways", check.Warn, "callers on some nodes reach no gateway|Node node-2: it has no gateway of Service istio-system/gateway that is ready", func(t *testing.T, c *cluster) {
			c.add(t, localService)
		}},
		"its gateway is not ready": {"local-gateways", check.Warn, "Node node-1: it has no gateway", func(t *testing.T, c *cluster) {
			c.add(t, localService)
			c.change(t, "Pod gateway-1", []any{map[string]any{"type": "Ready", "status": "False"}}, "status", "conditions")
		}},
		"a node that callers keep away from": {"local-gateways", check.Pass, "1 of 1 nodes have one", func(t *testing.T, c *cluster) {
			c.add(t, localService)
			c.change(t, "Node node-2", []any{map[string]any{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}}, "spec", "taints")
		}},
		"no gateway at all of ours": {"local-gateways", check.Warn, "Node node-1: it has no gateway of Service istio-system/gateway", func(t *testing.T, c *cluster) {
			c.add(t, strings.Replace(strings.Replace(localService, "istio: ingressgateway", "app: headstart-gateway", 1), "name: gateway", "name: gateway, labels: {app.kubernetes.io/part-of: headstart}", 1))
		}},
		"a gateway's Service for all": {"local-gateways", check.Pass, "callers use any gateway", func(t *testing.T, c *cluster) {
			c.add(t, strings.Replace(localService, "Local", "Cluster", 1))
		}},
		"a Service of others": {"local-gateways", check.Pass, "callers use any gateway", func(t *testing.T, c *cluster) {
			c.add(t, strings.Replace(localService, "selector: {istio: ingressgateway}", "selector: {app: dns}", 1))
			c.add(t, strings.NewReplacer("namespace: istio-system", "namespace: default", "name: gateway", "name: other").Replace(localService))
		}},
		"Services hidden": {"local-gateways", check.Skip, "you may not look at Services", func(t *testing.T, c *cluster) { c.forbidden = []string{"services"} }},
		"no filter": {"prefetch-filter", check.Fail, "namespace istio-system has neither TrafficExtension nor WasmPlugin headstart-prefetch", func(t *testing.T, c *cluster) {
			delete(c.objects, "TrafficExtension headstart-prefetch")
		}},
		"two filters": {"prefetch-filter", check.Fail, "the filter runs twice", func(t *testing.T, c *cluster) {
			c.add(t, "{apiVersion: extensions.istio.io/v1alpha1, kind: WasmPlugin, metadata: {name: headstart-prefetch, namespace: istio-system}}")
		}},
		"a filter without configuration": {"prefetch-filter", check.Fail, "TrafficExtension has no configuration yet", func(t *testing.T, c *cluster) {
			c.change(t, "TrafficExtension headstart-prefetch", nil, "spec", "wasm", "pluginConfig")
		}},
		"a filter's configuration of another version": {"prefetch-filter", check.Fail, "does not do for this version", func(t *testing.T, c *cluster) {
			c.change(t, "TrafficExtension headstart-prefetch", "v99", "spec", "wasm", "pluginConfig", "version")
		}},
		"a filter that fails closed": {"prefetch-filter", check.Warn, `its failStrategy is "FAIL_CLOSE"`, func(t *testing.T, c *cluster) {
			c.change(t, "TrafficExtension headstart-prefetch", "FAIL_CLOSE", "spec", "wasm", "failStrategy")
		}},
		"a route of before": {"routes", check.Warn, "the API server would refuse 2 of 3|ServiceEntry video/sock: an address must not be a unix socket|VirtualService video/set: a route must not", func(t *testing.T, c *cluster) {
			oldRoutes(t, c)
			c.refuses = map[string]error{"set": deniedBy("headstart-routes", "a route must not set"), "sock": deniedBy("headstart-addresses", "an address must not be a unix socket")}
		}},
		"a route that others refuse": {"routes", check.Pass, "3 looked at", func(t *testing.T, c *cluster) {
			oldRoutes(t, c)
			c.refuses = map[string]error{"set": deniedBy("theirs", "no"), "sock": apierrors.NewBadRequest("a webhook"), "other": errors.New("nobody asks")}
		}},
		"routes that others forbid": {"routes", check.Warn, "the API server would refuse 1 of 3|ServiceEntry video/sock: an address must not be a unix socket", func(t *testing.T, c *cluster) {
			oldRoutes(t, c)
			webhook := apierrors.NewForbidden(schema.GroupResource{}, "set", errors.New(`admission webhook "theirs" denied the request: no`))
			c.refuses = map[string]error{"set": webhook, "sock": deniedBy("headstart-addresses", "an address must not be a unix socket")}
		}},
		"routes that one may not change": {"routes", check.Skip, "you may not patch virtualservices", func(t *testing.T, c *cluster) {
			oldRoutes(t, c)
			c.refuses = map[string]error{"set": apierrors.NewForbidden(schema.GroupResource{}, "set", errors.New("RBAC"))}
		}},
		"no EnvoyFilter": {"envoy-filters", check.Fail, "has no EnvoyFilter headstart-gateways", func(t *testing.T, c *cluster) { delete(c.objects, "EnvoyFilter headstart-gateways") }},
		"no keys": {"envoy-filters", check.Fail, "has no EnvoyFilter headstart-keys", func(_ *testing.T, c *cluster) {
			delete(c.objects, "EnvoyFilter headstart-keys")
		}},
		"an EnvoyFilter without the gateways' key": {"envoy-filters", check.Fail, "headstart-gateways is of an older version, without the gateways' key", func(t *testing.T, c *cluster) {
			c.change(t, "EnvoyFilter headstart-gateways", nil, "spec")
		}},
		"an EnvoyFilter of before": {"envoy-filters", check.Fail, "headstart-gateways is of an older version: gateways load code (the filter headstart.route) from their nodes' daemons", func(t *testing.T, c *cluster) {
			patches, _, _ := unstructured.NestedSlice(c.objects["EnvoyFilter headstart-gateways"], "spec", "configPatches")
			patches = append(patches, map[string]any{"patch": map[string]any{"value": map[string]any{"name": "headstart.route"}}})
			c.change(t, "EnvoyFilter headstart-gateways", patches, "spec", "configPatches")
		}},
		"an EnvoyFilter refused": {"envoy-filters", check.Fail, "Istio does not accept 1 of 1|EnvoyFilter headstart.default.fire: IST0101 ReferencedResourceNotFound", func(t *testing.T, c *cluster) {
			c.change(t, "EnvoyFilter headstart.default.fire", []any{map[string]any{"level": "ERROR", "type": map[string]any{"code": "IST0101", "name": "ReferencedResourceNotFound"}}}, "status", "validationMessages")
		}},
		"a function refused": {"functions", check.Fail, "default/fire: it is refused, and runs as if it had no annotations: no such store", func(t *testing.T, c *cluster) {
			c.status.Functions[0].Refused, c.status.Functions[0].Events = true, []event.Event{{Message: "older"}, {Message: "no such store"}}
		}},
		"a gateway refuses a filter": {"functions", check.Warn, "not all gateways take what they are told|gateways of edge-1: refused its TypedExtensionConfig", func(t *testing.T, c *cluster) {
			c.status.Routing = []routing.Problem{
				{
					Gateways: []string{"edge-1"},
					Message:  "refused its TypedExtensionConfig: Unable to create Wasm plugin",
				},
				{Function: "default/fire", Message: "weights"},
			}
		}},
		"the mesh is not written": {"functions", check.Fail, "EnvoyFilter istio-system/x: Forbidden: may not; grant it", func(t *testing.T, c *cluster) {
			c.status.Mesh.Problems = []admin.MeshProblem{{Object: "EnvoyFilter istio-system/x", Cause: "Forbidden", Message: "may not", Fix: "grant it"}}
		}},
	})
}

func oldRoutes(t *testing.T, c *cluster) {
	t.Helper()
	c.add(t, `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: set, namespace: video}, spec: {http: [{headers: {request: {set: {X_Headstart_Function: a/b}}}}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: other, namespace: video}, spec: {http: [{route: []}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: sock, namespace: video}, spec: {endpoints: [{address: "unix:///run/headstart/gateway/gateway.sock"}]}}`)
}

// deniedBy is what the API server answers when a policy refuses an object.
func deniedBy(policy, words string) error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "x", fmt.Errorf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: %[2]s", policy, words))
	err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	return err
}

func knativeCopy(t *testing.T, c *cluster) {
	t.Helper()
	c.add(t, `{apiVersion: v1, kind: Service, metadata: {name: scene-00001, namespace: video, labels: {serving.knative.dev/service: scene}, annotations: {headstart.dev/wrong: x}}}`)
}

func without2(c *cluster) {
	c.served = slices.DeleteFunc(c.served, func(r schema.GroupVersionResource) bool { return r == objects.KnativeServices })
}

// broken is a cluster with one thing that is wrong.
type broken struct {
	id     string
	status check.Status
	says   string // with | between what has to be said
	change func(*testing.T, *cluster)
}

func runTable(t *testing.T, checks []check.Check, table map[string]broken) {
	t.Helper()
	tried := map[string]bool{}
	for what, b := range table {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // some look again after a while
				c := healthy(t)
				b.change(t, c)
				tried[b.id] = true
				r, ok := c.run(t, checks, "")[b.id]
				if !ok || r.Status != b.status {
					t.Errorf("result %+v", r)
				}
				text := r.Message
				for _, p := range r.Problems {
					text += "\n" + p.Object + ": " + p.Message
				}
				for says := range strings.SplitSeq(b.says, "|") {
					if !strings.Contains(text, says) {
						t.Errorf("it does not say %q:\n%s", says, text)
					}
				}
				bad := r.Status == check.Fail || r.Status == check.Warn
				if bad != (r.Docs != "") || bad && b.id != "autoscalers" && r.Hint == "" {
					t.Errorf("hint %q, docs %q", r.Hint, r.Docs)
				}
			})
		})
	}
	for _, c := range checks {
		if !tried[c.ID] && c.ID != "kubernetes" {
			t.Errorf("no case for %s", c.ID)
		}
	}
}

// Whatever the chart makes, the rights to make it are asked for.
func TestRightsAreThoseOfTheChart(t *testing.T) {
	c := healthy(t)
	c.run(t, check.Before(), "")
	const templates = "../../manifests/charts/headstart/templates/*.yaml"
	files, err := filepath.Glob(templates)
	istio, istioErr := filepath.Glob("../../manifests/charts/headstart/files/istio/*.yaml")
	if err != nil || istioErr != nil || len(files) == 0 || len(istio) == 0 {
		t.Fatal(err, istioErr, files, istio)
	}
	files = append(files, "../../manifests/charts/headstart/files/admission.yaml")
	kind, namespace := regexp.MustCompile(`(?m)^kind: (\w+)`), regexp.MustCompile(`(?m)^  namespace: (\S.*?)(?: #.*)?$`)
	where := strings.NewReplacer("{{ .Release.Namespace }}", "headstart-system", "{{ $.Release.Namespace }}", "headstart-system",
		"{{ .Values.istio.rootNamespace }}", "istio-system")
	tried := 0
	for _, file := range append(files, istio...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			m := kind.FindStringSubmatch(doc)
			if m == nil || m[1] == "IstioOperator" {
				continue
			}
			right := "create " + plural(m[1])
			if n := namespace.FindStringSubmatch(doc); n != nil {
				right += " " + where.Replace(n[1])
			}
			tried++
			if !slices.Contains(c.asked, right) {
				t.Errorf("%s: the right to %s is not asked for", file, right)
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d objects were found", tried)
	}
}

// Telemetries are made in each namespace with gateways of ours.
func TestRightsWhereGatewaysAre(t *testing.T) {
	c := healthy(t)
	c.add(t, "{apiVersion: v1, kind: Pod, metadata: {name: edge-1, namespace: edge, labels: {headstart.dev/gateway: \"true\"}}, spec: {containers: [{name: istio-proxy}]}}")
	c.add(t, "{apiVersion: v1, kind: Pod, metadata: {name: other-1, namespace: other, labels: {istio: ingressgateway}}, spec: {containers: [{name: istio-proxy, args: [router]}]}}")
	c.run(t, check.Before(), "")
	for _, verb := range []string{"create", "patch", "delete"} {
		if !slices.Contains(c.asked, verb+" telemetries edge") || !slices.Contains(c.asked, verb+" telemetries istio-system") || slices.Contains(c.asked, verb+" telemetries other") {
			t.Errorf("asked %q", c.asked)
		}
	}
	c.asked, c.forbidden = nil, []string{"pods"}
	if r := c.run(t, check.Before(), "")["rights"]; r.Status != check.Pass || !slices.Contains(c.asked, "create roles default") {
		t.Errorf("%+v, asked %q", r, c.asked)
	}
}

// What builds on something broken is not reported again.
func TestWhatNeedsSomethingBrokenIsSkipped(t *testing.T) {
	c := healthy(t)
	delete(c.objects, "Deployment headstart-controlplane")
	results := c.run(t, check.After(), "")
	for id, why := range map[string]string{"admin": "needs: Control plane", "connected": "needs: Control plane's answers", "stores": "needs: Control plane"} {
		if r := results[id]; r.Status != check.Skip || r.Message != why {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if r := results["annotations"]; r.Status != check.Pass { // with any store
		t.Errorf("%+v", r)
	}
	c.version = "v1.20.0"
	for id, r := range c.run(t, check.After(), "") {
		if id != "kubernetes" && r.Status != check.Skip {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

func TestOneNamespace(t *testing.T) {
	c := healthy(t)
	c.change(t, "Service fire", "30", "metadata", "annotations", "headstart.dev/scale-to-zero")
	c.status.Functions[0].Refused = true
	results := c.run(t, check.After(), "video")
	for _, id := range []string{"annotations", "scaling", "functions"} {
		if r := results[id]; r.Status != check.Pass {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if got := check.Failed([]check.Result{{Status: check.Fail}, {Status: check.Warn}, {Status: check.Fail}, {Status: check.Skip}}); got != 2 {
		t.Errorf("%d failed", got)
	}
}

// The reference page lists all checks with their section of the troubleshooting page, and
// no others.
func TestChecksAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*troubleshooting(?:\\.md)?#([a-z-]+)").FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = m[2]
	}
	all := append(check.Before(), check.After()...)
	for i, c := range all {
		if documented[c.ID] != c.Anchor {
			t.Errorf("%s: the page has section %q, the check %q", c.ID, documented[c.ID], c.Anchor)
		}
		for _, need := range c.Needs {
			if !slices.ContainsFunc(all[:i], func(o check.Check) bool { return o.ID == need }) {
				t.Errorf("%s needs %s, which is not before it", c.ID, need)
			}
		}
	}
	for id := range documented {
		if !slices.ContainsFunc(all, func(c check.Check) bool { return c.ID == id }) {
			t.Errorf("the page has %s, which is no check", id)
		}
	}
}
