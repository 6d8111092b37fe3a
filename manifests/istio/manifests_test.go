// Package istio_test checks what is shipped for Istio: that it says what the control
// plane and the filter take it to say. What Istio thinks of it is in cluster_test.go.
package istio_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	extensions "istio.io/api/extensions/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	telemetry "istio.io/api/telemetry/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	otlplog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	headermutation "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	session "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/stateful_session/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	headersession "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/header/v3"

	// What the patches name by their types.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/upstream_codec/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/accesslog"
)

// document is one object as it is shipped.
type document struct {
	Metadata struct {
		Name, Namespace string
	}
	Spec json.RawMessage
}

func load(t *testing.T, file string, spec proto.Message) document {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if err := protojson.Unmarshal(d.Spec, spec); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return d
}

func gateways(t *testing.T) []*networking.EnvoyFilter_EnvoyConfigObjectPatch {
	t.Helper()
	var base, keys networking.EnvoyFilter
	load(t, "gateways.yaml", &base)
	load(t, "keys.yaml", &keys)
	return append(base.ConfigPatches, keys.ConfigPatches...)
}

func TestGatewaysWithoutOurSocketsStayAsTheyAre(t *testing.T) {
	want := map[string]string{istio.MetadataKey: istio.MetadataValue}
	for i, p := range gateways(t) {
		if p.Match.Context != networking.EnvoyFilter_GATEWAY || !cmp.Equal(p.Match.GetProxy().GetMetadata(), want) {
			t.Errorf("patch %d is for %v", i, p.Match)
		}
	}
	text, err := os.ReadFile("install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "ISTIO_META_"+istio.MetadataKey) {
		t.Error("the overlay does not set the metadata")
	}
}

// Envoy refuses a listener or a cluster as a whole for one field that it does not know.
func TestPatchesAreWhatEnvoyReads(t *testing.T) {
	clusters := map[string]bool{}
	for i, p := range gateways(t) {
		var m proto.Message
		switch p.ApplyTo {
		case networking.EnvoyFilter_CLUSTER:
			m = &cluster.Cluster{}
		case networking.EnvoyFilter_NETWORK_FILTER:
			m = &listener.Filter{}
		case networking.EnvoyFilter_HTTP_FILTER:
			m = &hcm.HttpFilter{}
		default:
			t.Fatalf("patch %d applies to %v", i, p.ApplyTo)
		}
		value, err := protojson.Marshal(p.Patch.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := protojson.Unmarshal(value, m); err != nil {
			t.Fatalf("patch %d: %v", i, err)
		}
		if c, ok := m.(*cluster.Cluster); ok {
			clusters[c.Name] = true
			if err := c.ValidateAll(); err != nil {
				t.Errorf("patch %d: %v", i, err)
			}
		}
		if f, ok := m.(*hcm.HttpFilter); ok && f.GetTypedConfig() != nil {
			switch f.GetTypedConfig().MessageName() {
			case (&headermutation.HeaderMutation{}).ProtoReflect().Descriptor().FullName():
				checkMutation(t, f)
			case (&session.StatefulSession{}).ProtoReflect().Descriptor().FullName():
				checkSession(t, f)
			default:
				checkRouter(t, f)
			}
		}
	}
	for _, name := range []string{istio.GatewayCluster, "headstart-hints"} {
		if !clusters[name] {
			t.Errorf("there is no cluster %s", name)
		}
	}
}

func checkMutation(t *testing.T, f *hcm.HttpFilter) {
	t.Helper()
	var m headermutation.HeaderMutation
	if err := f.GetTypedConfig().UnmarshalTo(&m); err != nil {
		t.Fatal(err)
	}
	if err := m.ValidateAll(); err != nil {
		t.Error(err)
	}
	if key := m.GetMutations().GetRequestMutations()[0].GetAppend().GetHeader().GetKey(); key != filterapi.HeaderFunction {
		t.Errorf("the daemon is told of the function by %s", key)
	}
	if name := m.GetMutations().GetResponseMutations()[0].GetRemove(); name != filterapi.HeaderSession {
		t.Errorf("clients are not told of %s", name)
	}
}

// A strict session would have a request fail whose instance is not well.
func checkSession(t *testing.T, f *hcm.HttpFilter) {
	t.Helper()
	var s session.StatefulSession
	var by headersession.HeaderBasedSessionState
	if err := errors.Join(f.GetTypedConfig().UnmarshalTo(&s), s.ValidateAll(), s.GetSessionState().GetTypedConfig().UnmarshalTo(&by)); err != nil {
		t.Fatal(err)
	}
	if by.GetName() != filterapi.HeaderSession || s.GetStrict() {
		t.Errorf("the endpoint is named by %s, strictly: %v", by.GetName(), s.GetStrict())
	}
}

// What reads the name of an endpoint comes last, before the router: the TrafficExtension's filter, which names it,
// is there before the patches.
func TestTheNameIsReadLast(t *testing.T) {
	var names []string
	for _, p := range gateways(t) {
		if p.Patch.Operation == networking.EnvoyFilter_Patch_INSERT_BEFORE {
			names = append(names, p.Patch.Value.GetFields()["name"].GetStringValue())
		}
	}
	if d := cmp.Diff([]string{"headstart-function", "headstart-session"}, names); d != "" {
		t.Error(d)
	}
}

// A daemon that an attacker has taken over can give gateways endpoints, and no code: no filter of theirs is discovered
// from a socket of the daemon's, and what Istio brings them is an image by digest.
func TestAttackTheDaemonIsNoSourceOfCode(t *testing.T) {
	for i, p := range gateways(t) {
		text, err := protojson.Marshal(p.Patch.Value)
		if err != nil {
			t.Fatal(err)
		}
		var f hcm.HttpFilter
		if p.ApplyTo == networking.EnvoyFilter_HTTP_FILTER && protojson.Unmarshal(text, &f) == nil && f.GetConfigDiscovery() != nil {
			if from := f.GetConfigDiscovery().GetConfigSource(); from.GetAds() == nil {
				t.Errorf("patch %d has filter %s discovered from %v", i, f.GetName(), from)
			}
		}
		// The script that shows the gateways' key is in the object, as a string, and the daemon's file is a header's value to it.
		for _, code := range []string{"filename", "inlineBytes", "inline_bytes", "extensionConfigSource", "dofile", "loadfile", "loadstring", "require"} {
			if strings.Contains(string(text), code) {
				t.Errorf("patch %d has code in it: %s", i, code)
			}
		}
	}
	var te extensions.TrafficExtension
	load(t, "traffic-extension.yaml", &te)
	if url := te.GetWasm().GetUrl(); !strings.HasPrefix(url, "oci://") || !strings.Contains(url, "@sha256:") {
		t.Errorf("the filters come from %s", url)
	}
}

// checkRouter looks at what a patch adds to the router: a log, or filters of which the last sends.
func checkRouter(t *testing.T, f *hcm.HttpFilter) {
	t.Helper()
	var r router.Router
	if err := f.GetTypedConfig().UnmarshalTo(&r); err != nil {
		t.Fatal(err)
	}
	if err := r.ValidateAll(); err != nil {
		t.Error(err)
	}
	if filters := r.GetUpstreamHttpFilters(); len(filters) > 0 {
		var m headermutation.HeaderMutation
		if err := filters[0].GetTypedConfig().UnmarshalTo(&m); err != nil {
			t.Fatal(err)
		}
		var set []string
		for _, change := range m.GetMutations().GetRequestMutations() {
			if key := change.GetAppend().GetHeader().GetKey(); key != "" {
				set = append(set, key)
			}
		}
		if d := cmp.Diff([]string{filterapi.HeaderFunction, filterapi.HeaderKey}, set); d != "" {
			t.Errorf("the daemon's endpoint says:\n%s", d)
		}
		if last := filters[len(filters)-1].GetName(); last != "envoy.filters.http.upstream_codec" {
			t.Errorf("%s sends the request", last)
		}
		return
	}
	var log otlplog.OpenTelemetryAccessLogConfig
	if err := r.UpstreamLog[0].GetTypedConfig().UnmarshalTo(&log); err != nil {
		t.Fatal(err)
	}
	if err := log.ValidateAll(); err != nil {
		t.Error(err)
	}
	want := accesslog.Format("%METADATA(CLUSTER:headstart:function)%", "%REQ("+filterapi.HeaderSession+")%")
	if got := log.GetBody().GetStringValue(); got != want {
		t.Errorf("it logs %q, want %q", got, want)
	}
	//nolint:staticcheck // SA1019: the oldest Envoy knows no other way to say it
	if got := log.GetCommonConfig().GetBufferSizeBytes().GetValue(); got != accesslog.Batch {
		t.Errorf("it logs %d bytes at a time", got)
	}
}

func TestTheFilterTakesWhatIsShipped(t *testing.T) {
	var te extensions.TrafficExtension
	var wp extensions.WasmPlugin
	for name, d := range map[string]document{
		"TrafficExtension": load(t, "traffic-extension.yaml", &te),
		"WasmPlugin":       load(t, "wasm-plugin.yaml", &wp),
	} {
		if d.Metadata.Name != istio.PrefetchName || d.Metadata.Namespace != istio.DefaultRootNamespace {
			t.Errorf("%s is %s/%s", name, d.Metadata.Namespace, d.Metadata.Name)
		}
	}
	if te.GetWasm().FailStrategy != extensions.FailStrategy_FAIL_OPEN || wp.FailStrategy != extensions.FailStrategy_FAIL_OPEN {
		t.Error("the filter can take a gateway down")
	}
	if te.GetWasm().Url != wp.Url || !strings.Contains(wp.Url, "@sha256:") {
		t.Errorf("%s and %s", te.GetWasm().Url, wp.Url)
	}
	for _, config := range []proto.Message{te.GetWasm().PluginConfig, wp.PluginConfig} {
		data, err := protojson.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := filterapi.ParseConfig(data); err != nil {
			t.Error(err)
		}
	}
}

// Istio composes the filter's name of the object's kind, namespace and name.
func TestTheStandInIsForTheFilterThatIsShipped(t *testing.T) {
	want := map[string]bool{
		"extensions.istio.io/trafficextension/" + istio.DefaultRootNamespace + "." + istio.PrefetchName:                                  true,
		"extensions.istio.io/trafficextension/" + istio.DefaultRootNamespace + "." + istio.PrefetchName + "~istio-translated-wasmplugin": true,
		"extensions.istio.io/wasmplugin/" + istio.DefaultRootNamespace + "." + istio.PrefetchName:                                        true,
	}
	got := map[string]bool{}
	for _, p := range gateways(t) {
		if p.Patch.Operation == networking.EnvoyFilter_Patch_REPLACE {
			got[p.Match.GetListener().FilterChain.Filter.SubFilter.Name] = true
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestTraceTagsAreTheHeadersOfTheGateway(t *testing.T) {
	var spec telemetry.Telemetry
	load(t, "telemetry.yaml", &spec)
	for tag, header := range map[string]string{"headstart.function": filterapi.HeaderFunction, "headstart.request": filterapi.HeaderRequest, "headstart.session": filterapi.HeaderSession} {
		if got := spec.Tracing[0].CustomTags[tag].GetHeader().GetName(); got != header {
			t.Errorf("%s is of the header %q", tag, got)
		}
	}
}

// Whoever makes a gateway, it gets the same.
func TestGatewaysOfOthersGetTheSame(t *testing.T) {
	read := func(file string, into any) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.UnmarshalStrict(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var values struct {
		Labels, Env  map[string]string
		Volumes      []corev1.Volume
		VolumeMounts []corev1.VolumeMount
		Affinity     corev1.Affinity
	}
	read("gateway-chart.yaml", &values)
	var kept corev1.ConfigMap
	read("gateway-api.yaml", &kept)
	var merged appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(kept.Data["deployment"]), &merged); err != nil {
		t.Fatal(err)
	}
	local := readLocalGateways(t).set.Spec.Template
	proxy := local.Spec.Containers[0]
	for what, template := range map[string]corev1.PodTemplateSpec{
		"the Gateway API": merged.Spec.Template,
		"the chart": {ObjectMeta: metav1.ObjectMeta{Labels: values.Labels}, Spec: corev1.PodSpec{Volumes: values.Volumes, Affinity: &values.Affinity,
			Containers: []corev1.Container{{Name: "istio-proxy", VolumeMounts: values.VolumeMounts, Env: []corev1.EnvVar{{Name: "ISTIO_META_" + istio.MetadataKey, Value: values.Env["ISTIO_META_"+istio.MetadataKey]}}}}}},
	} {
		c := template.Spec.Containers[0]
		if d := cmp.Diff(map[string]string{"headstart.dev/gateway": "true"}, template.Labels); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if d := cmp.Diff(local.Spec.Volumes, template.Spec.Volumes); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if d := cmp.Diff(proxy.VolumeMounts, c.VolumeMounts); d != "" {
			t.Errorf("%s: %s", what, d)
		}
		if len(c.Env) != 1 || c.Name != proxy.Name || !slices.Contains(proxy.Env, c.Env[0]) || template.Spec.Affinity.NodeAffinity == nil {
			t.Errorf("%s: %+v", what, template.Spec)
		}
	}
}

// All files, so that one that is new is checked by somebody.
func TestEveryFileIsKnown(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"gateway-api.yaml", "gateway-chart.yaml", "gateways.yaml", "install.yaml", "keys.yaml", "local-gateways.yaml", "telemetry.yaml", "traffic-extension.yaml", "wasm-plugin.yaml"}, files); d != "" {
		t.Error(d)
	}
}
