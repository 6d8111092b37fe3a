package admission_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

const controlPlane = "system:serviceaccount:headstart-system:headstart-controlplane"

// account has functions in the namespaces media and default alone.
var account = admission.Account{Namespace: "headstart-system", Functions: `["media", "default"]`}

func accountPolicy(t testing.TB, a admission.Account, name string) *evaluator {
	t.Helper()
	policies, err := a.Policies()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		if p.Policy.Name == "headstart-controlplane-"+name {
			return compile(t, p.Policy)
		}
	}
	t.Fatalf("there is no policy %s", name)
	return nil
}

// fields is an object as CEL sees it.
func fields(t testing.TB, object string) map[string]any {
	t.Helper()
	if object == "" {
		return nil
	}
	text, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatalf("%v in %s", err, object)
	}
	var o map[string]any
	if err := json.Unmarshal(text, &o); err != nil { // which knows whole numbers
		t.Fatal(err)
	}
	return o
}

// may says what the control plane's account may make of an object. What cannot be judged is denied,
// as the policies say.
func may(e *evaluator, before, now map[string]any, namespace string) bool {
	message, err := e.judge(controlPlane, before, now, namespace)
	return message == "" && err == nil
}

// made is the EnvoyFilter of a function as the control plane makes it.
func made(t testing.TB, f istio.Function) map[string]any {
	t.Helper()
	object, err := istio.Object(istio.Config{Revision: "canary"}, f)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.DeepCopyJSON(object.Object)
}

// fire is a function of the Service fire in the namespace, on this host.
func fire(namespace, host string) istio.Function {
	name := namespace + "/fire"
	return istio.Function{Name: name, Service: istio.Service{Host: host, Port: 8080, Endpoints: name + ":8080"}}
}

const fireHost = "fire.media.svc.cluster.local"

func TestTheControlPlaneMayWriteItsFunctions(t *testing.T) {
	e := accountPolicy(t, account, "filters")
	input := fire("media", fireHost)
	input.Inputs = reference.Inputs{"": "s3://videos/{header.x-key}", "mask": "s3://masks/{header.x-key}"}
	observed := fire("media", fireHost)
	observed.Observed = input.Inputs
	all := map[string]map[string]any{
		"that is only observed": made(t, observed),
		"a Service":             made(t, fire("media", fireHost)), "with an input": made(t, input),
		"a revision of Knative's": made(t, fire("media", "fire-00002.media.svc.cluster.local")),
	}
	for name, o := range all {
		for _, before := range []map[string]any{nil, all["a Service"]} {
			if message, err := e.judge(controlPlane, before, o, "istio-system"); message != "" || err != nil {
				t.Errorf("%s: %q, %v", name, message, err)
			}
		}
		if message, err := e.judge(controlPlane, o, nil, "istio-system"); message != "" || err != nil {
			t.Errorf("%s, deleted: %q, %v", name, message, err)
		}
	}
	// Where the chart names no namespaces, all may have functions.
	everywhere := accountPolicy(t, admission.Account{Namespace: "headstart-system", Functions: "[]"}, "filters")
	if !may(everywhere, nil, made(t, fire("other", "fire.other.svc.cluster.local")), "istio-system") {
		t.Error("a function in any namespace is refused")
	}
	// The policy is for the one account.
	if message, err := e.judge("alice", nil, fields(t, `{metadata: {name: hers}}`), "istio-system"); message != "" || err != nil {
		t.Errorf("another user's: %q, %v", message, err)
	}
}

// patched is a good EnvoyFilter with something else at a path.
func patched(t testing.TB, change func(o, patch map[string]any)) map[string]any {
	o := made(t, fire("media", fireHost))
	change(o, o["spec"].(map[string]any)["configPatches"].([]any)[0].(map[string]any))
	return o
}

// at is the map below the keys.
func at(o map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		o = o[k].(map[string]any)
	}
	return o
}

// With the control plane's token nobody leads other traffic elsewhere, reads it, or puts code into a gateway.
func TestAStolenControlPlaneTokenReroutesNothing(t *testing.T) {
	e := accountPolicy(t, account, "filters")
	other := fields(t, `{metadata: {name: mesh-wide-filter}, spec: {configPatches: []}}`)
	for name, o := range map[string]map[string]any{
		"another cluster": patched(t, func(_, p map[string]any) {
			at(p, "match", "cluster")["name"] = "outbound|443||bank.prod.svc.cluster.local"
		}),
		"another Service of a namespace with functions": patched(t, func(_, p map[string]any) {
			at(p, "match", "cluster")["name"] = "outbound|80||bank.media.svc.cluster.local"
		}),
		"a Service beyond the cluster": patched(t, func(_, p map[string]any) {
			at(p, "match", "cluster")["name"] = "outbound|443||fire.media.example.com"
		}),
		"all clusters":       patched(t, func(_, p map[string]any) { delete(at(p, "match"), "cluster") }),
		"the daemon's":       patched(t, func(_, p map[string]any) { at(p, "match", "cluster")["name"] = "headstart-hints" }),
		"a subset's cluster": patched(t, func(_, p map[string]any) { at(p, "match", "cluster")["name"] = "outbound|80|v2|" + fireHost }),
		"a function of a namespace that has none": made(t, fire("prod", "fire.prod.svc.cluster.local")),
		"gateways without Headstart":              patched(t, func(_, p map[string]any) { delete(at(p, "match"), "proxy") }),
		"sidecars":                                patched(t, func(_, p map[string]any) { at(p, "match")["context"] = "SIDECAR_INBOUND" }),
		"another name":                            patched(t, func(o, _ map[string]any) { at(o, "metadata")["name"] = "istio-system-gateways" }),
		"the chart's own":                         patched(t, func(o, _ map[string]any) { at(o, "metadata")["name"] = "headstart-keys" }),
		"the name of another function":            patched(t, func(o, _ map[string]any) { at(o, "metadata")["name"] = "headstart.default.fire" }),
		"one without its labels":                  patched(t, func(o, _ map[string]any) { delete(at(o, "metadata"), "labels") }),
		"endpoints of another control plane": patched(t, func(_, p map[string]any) {
			grpc := at(p, "patch", "value", "eds_cluster_config", "eds_config", "api_config_source")["grpc_services"].([]any)
			at(grpc[0].(map[string]any), "envoy_grpc")["cluster_name"] = "outbound|80||evil.media.svc.cluster.local"
		}),
		"endpoints of another function": patched(t, func(_, p map[string]any) {
			at(p, "patch", "value", "eds_cluster_config")["service_name"] = "media/evil:80"
		}),
		"static endpoints": patched(t, func(_, p map[string]any) {
			at(p, "patch", "value")["load_assignment"] = map[string]any{"cluster_name": "x"}
		}),
		"a socket of the node": patched(t, func(_, p map[string]any) {
			at(p, "patch", "value", "metadata", "filter_metadata", "headstart")["endpoint"] = "/var/run/docker.sock"
		}),
		"templates of another function": patched(t, func(_, p map[string]any) {
			headstart := at(p, "patch", "value", "metadata", "filter_metadata", "headstart")
			headstart["endpoint"], headstart["prefetch"] = istio.IngressSocket, `{"name":"media/evil","input":"s3://videos/a"}`
		}),
		"templates of no function": patched(t, func(_, p map[string]any) {
			headstart := at(p, "patch", "value", "metadata", "filter_metadata", "headstart")
			headstart["endpoint"], headstart["prefetch"] = istio.IngressSocket, ""
		}),
		"no TLS": patched(t, func(_, p map[string]any) {
			at(p, "patch", "value")["transport_socket"] = map[string]any{"name": "envoy.transport_sockets.raw_buffer"}
		}),
		"plain text to all": patched(t, func(_, p map[string]any) {
			at(p, "patch", "value")["transport_socket_matches"].([]any)[0].(map[string]any)["match"] = map[string]any{}
		}),
		"another operation": patched(t, func(_, p map[string]any) { at(p, "patch")["operation"] = "REMOVE" }),
		"a listener":        patched(t, func(_, p map[string]any) { p["applyTo"] = "LISTENER" }),
		"a Lua filter": patched(t, func(o, p map[string]any) {
			p["applyTo"], p["patch"] = "HTTP_FILTER", map[string]any{"operation": "INSERT_FIRST", "value": map[string]any{
				"name": "envoy.filters.http.lua", "typed_config": map[string]any{"inlineCode": "function envoy_on_request() end"},
			}}
		}),
		"a second patch": patched(t, func(o, p map[string]any) {
			at(o, "spec")["configPatches"] = []any{p, map[string]any{"applyTo": "BOOTSTRAP"}}
		}),
		"workloads of its choice": patched(t, func(o, _ map[string]any) { at(o, "spec")["workloadSelector"] = map[string]any{} }),
		"a priority":              patched(t, func(o, _ map[string]any) { at(o, "spec")["priority"] = int64(-10) }),
		"nothing":                 patched(t, func(o, _ map[string]any) { delete(o, "spec") }),
	} {
		if may(e, nil, o, "istio-system") {
			t.Errorf("%s is written", name)
		}
	}
	if may(e, other, nil, "istio-system") || may(e, other, made(t, fire("media", fireHost)), "istio-system") {
		t.Error("an EnvoyFilter of somebody else is deleted or changed")
	}
	stranger := fields(t, `{metadata: {name: headstart.media.fire}, spec: {configPatches: []}}`)
	if may(e, stranger, nil, "istio-system") || may(e, stranger, made(t, fire("media", fireHost)), "istio-system") {
		t.Error("an EnvoyFilter of the name that is not the control plane's is deleted or changed")
	}
}

const (
	extension = `{metadata: {name: headstart-prefetch, labels: {app.kubernetes.io/part-of: headstart}}, spec: {
		selector: {matchLabels: {headstart.dev/gateway: "true"}}, priority: -1000,
		wasm: {type: HTTP, url: "oci://registry/prefetch@sha256:00", failStrategy: FAIL_OPEN, pluginConfig: %s}}}`
	plugin = `{metadata: {name: headstart-prefetch}, spec: {type: HTTP, url: "oci://registry/prefetch@sha256:00",
		selector: {matchLabels: {headstart.dev/gateway: "true"}}, pluginConfig: %s}}`
	first = `{version: v1, hintCluster: headstart-hints}`
)

// pluginConfig is as the control plane makes it.
func pluginConfig(t testing.TB) string {
	t.Helper()
	text, err := istio.PluginConfig()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheControlPlaneMayConfigureThePrefetchFilter(t *testing.T) {
	e := accountPolicy(t, account, "prefetch")
	config := pluginConfig(t)
	for _, kind := range []string{extension, plugin} {
		for _, before := range []string{first, config} {
			message, err := e.judge(controlPlane, fields(t, fmt.Sprintf(kind, before)), fields(t, fmt.Sprintf(kind, config)), "istio-system")
			if message != "" || err != nil {
				t.Errorf("after %s: %q, %v", before, message, err)
			}
		}
		// Somebody has taken the configuration away.
		without := strings.Replace(kind, ", pluginConfig: %s", "", 1)
		if message, err := e.judge(controlPlane, fields(t, without), fields(t, fmt.Sprintf(kind, config)), "istio-system"); message != "" || err != nil {
			t.Errorf("after none: %q, %v", message, err)
		}
	}
}

// With the control plane's token nobody has gateways run other code, or tell others of requests.
func TestAStolenControlPlaneTokenChangesNoCode(t *testing.T) {
	e := accountPolicy(t, account, "prefetch")
	good := pluginConfig(t)
	for name, now := range map[string]string{
		"other code":                 strings.Replace(extension, "sha256:00", "sha256:11", 1),
		"another place":              strings.Replace(extension, "-1000", "1000", 1),
		"all workloads":              strings.Replace(extension, `selector: {matchLabels: {headstart.dev/gateway: "true"}}, `, "", 1),
		"credentials":                strings.Replace(extension, "failStrategy", "imagePullSecret: other, failStrategy", 1),
		"environment":                strings.Replace(extension, "failStrategy", "vmConfig: {env: []}, failStrategy", 1),
		"fails closed":               strings.Replace(extension, "FAIL_OPEN", "FAIL_CLOSE", 1),
		"labels":                     strings.Replace(extension, "part-of: headstart", "part-of: other", 1),
		"no code at all":             strings.Replace(extension, "wasm:", "lua:", 1),
		"no configuration":           strings.Replace(extension, "pluginConfig", "other", 1),
		"hints for somebody else":    fmt.Sprintf(extension, strings.Replace(good, "headstart-hints", "outbound|80||evil.media.svc.cluster.local", 1)),
		"requests to another socket": fmt.Sprintf(extension, strings.Replace(good, istio.IngressSocket, "/run/other.sock", 1)),
		"another filter":             fmt.Sprintf(extension, strings.Replace(good, `"version"`, `"rootId":"x","version"`, 1)),
		"something besides":          fmt.Sprintf(extension, strings.Replace(good, `"version"`, `"functions":[],"version"`, 1)),
	} {
		if strings.Contains(now, "%s") {
			now = fmt.Sprintf(now, good)
		}
		if may(e, fields(t, fmt.Sprintf(extension, first)), fields(t, now), "istio-system") {
			t.Errorf("%s: is written", name)
		}
	}
	if may(e, nil, fields(t, fmt.Sprintf(extension, good)), "istio-system") || may(e, fields(t, fmt.Sprintf(extension, good)), nil, "istio-system") {
		t.Error("it is made or deleted")
	}
}

func TestAStolenControlPlaneTokenScalesNothingElse(t *testing.T) {
	e := accountPolicy(t, account, "scales")
	scale := func(spec, status int) map[string]any {
		return fields(t, fmt.Sprintf(`{metadata: {name: fire}, spec: {replicas: %d}, status: {replicas: %d}}`, spec, status))
	}
	zero := fields(t, `{metadata: {name: fire}, spec: {}, status: {}}`)
	for name, tt := range map[string]struct {
		before, now map[string]any
		namespace   string
		may         bool
	}{
		"from zero":                     {zero, scale(1, 0), "media", true},
		"to zero":                       {scale(7, 7), zero, "default", true},
		"to zero, as a number":          {scale(7, 7), scale(0, 7), "default", true},
		"beside pods on lost nodes":     {scale(3, 3), scale(4, 3), "media", true},
		"from zero to what it had":      {zero, scale(3, 0), "media", true},
		"many more than there are":      {scale(1, 1), scale(5, 1), "media", false},
		"to many":                       {zero, scale(1000, 0), "media", false},
		"to zero where none may be":     {scale(7, 7), zero, "prod", false},
		"from zero where none may be":   {zero, scale(1, 0), "kube-system", false},
		"another one than is told here": {scale(1, 1), scale(1000, 1000), "media", false},
	} {
		if got := may(e, tt.before, tt.now, tt.namespace); got != tt.may {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAStolenControlPlaneTokenSpeaksForNobodyElse(t *testing.T) {
	e := accountPolicy(t, account, "events")
	good := map[string]any{
		"involvedObject": map[string]any{"kind": "Service", "name": "fire"}, "reason": "AnnotationsRefused",
		"source": map[string]any{"component": "headstart-controlplane"}, "reportingComponent": "headstart-controlplane",
	}
	if !may(e, nil, good, "media") {
		t.Error("its own event is refused")
	}
	for name, change := range map[string]map[string]any{
		"of a pod":     {"involvedObject": map[string]any{"kind": "Pod", "name": "fire"}},
		"by a kubelet": {"source": map[string]any{"component": "kubelet"}},
		"by another":   {"reportingComponent": "kubelet"},
	} {
		event := maps.Clone(good)
		maps.Copy(event, change)
		if may(e, nil, event, "media") {
			t.Errorf("%s: is written", name)
		}
	}
}
