package xds

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

var full = Config{ListenPort: 8080, FilterPath: "/opt/headstart/filters.wasm", OTLPSocket: "/run/headstart/otlp.sock", TraceSampling: 100}

func mustResources(t *testing.T, cfg Config, st platform.State) *cache.Snapshot {
	t.Helper()
	s, _, err := Resources(cfg, edge, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get[T types.Resource](s *cache.Snapshot, typeURL, name string) T {
	r, _ := s.GetResources(typeURL)[name].(T)
	return r
}

func names(s *cache.Snapshot, typeURL string) []string {
	return slices.Sorted(maps.Keys(s.GetResources(typeURL)))
}

func TestResourceNames(t *testing.T) {
	st := platform.State{Functions: []platform.Function{video(), thumbs()}}
	for name, c := range map[string]struct {
		cfg  Config
		st   platform.State
		want map[string][]string
	}{
		"no functions": {Config{ListenPort: 1}, platform.State{}, map[string][]string{
			resource.ListenerType: {"gateway"}, resource.RouteType: {"functions"}, resource.ClusterType: {"headstart-hints", "headstart-ingress"},
		}},
		"everything": {full, st, map[string][]string{
			resource.ListenerType: {"gateway"}, resource.RouteType: {"functions"},
			resource.ClusterType:  {"default/thumbs", "default/video", "headstart-hints", "headstart-ingress", "headstart-otlp"},
			resource.EndpointType: {"default/thumbs", "default/video"}, resource.ExtensionConfigType: {"headstart.prefetch"},
		}},
	} {
		s := mustResources(t, c.cfg, c.st)
		got := map[string][]string{}
		for typeURL := range servedTypes {
			if n := names(s, typeURL); len(n) > 0 {
				got[typeURL] = n
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestColdAndHot(t *testing.T) {
	f := video()
	starting := ready(f, "s", "")
	starting.Phase = platform.Starting
	stopping := ready(f, "p", "10.0.0.9:1")
	stopping.Phase = platform.Stopping
	for name, c := range map[string]struct {
		instances []platform.Instance
		want      []string
	}{
		"no instance":    {nil, []string{edge.IngressSocket}},
		"not ready":      {[]platform.Instance{starting}, []string{edge.IngressSocket}},
		"withdrawn":      {[]platform.Instance{stopping}, []string{edge.IngressSocket, "10.0.0.9:1 DRAINING"}},
		"replaced":       {[]platform.Instance{stopping, ready(f, "n", "10.0.0.2:80")}, []string{"10.0.0.2:80", "10.0.0.9:1 DRAINING"}},
		"same address":   {[]platform.Instance{stopping, ready(f, "n", "10.0.0.9:1")}, []string{"10.0.0.9:1"}},
		"another's":      {[]platform.Instance{ready(thumbs(), "t", "10.0.0.7:80")}, []string{edge.IngressSocket}},
		"ready":          {[]platform.Instance{starting, ready(f, "b", "10.0.0.3:80"), ready(f, "a", "10.0.0.2:80")}, []string{"10.0.0.2:80", "10.0.0.3:80"}},
		"twice reported": {[]platform.Instance{ready(f, "a", "10.0.0.2:80"), ready(f, "b", "10.0.0.2:80")}, []string{"10.0.0.2:80"}},
		"IPv6":           {[]platform.Instance{ready(f, "a", "[fd00::2]:80")}, []string{"fd00::2:80"}},
	} {
		s := mustResources(t, full, platform.State{Functions: []platform.Function{f}, Instances: c.instances})
		var got []string
		for _, group := range get[*endpoint.ClusterLoadAssignment](s, resource.EndpointType, f.Name).GetEndpoints() {
			for _, e := range group.GetLbEndpoints() {
				a := e.GetEndpoint().GetAddress()
				if p := a.GetPipe(); p != nil {
					got = append(got, p.GetPath())
					continue
				}
				text := fmt.Sprintf("%s:%d", a.GetSocketAddress().GetAddress(), a.GetSocketAddress().GetPortValue())
				if h := e.GetHealthStatus(); h != core.HealthStatus_UNKNOWN {
					text += " " + h.String()
				}
				got = append(got, text)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestOnlyFunctionsWithAnInputEnterTheFilter(t *testing.T) {
	with, without := video(), thumbs()
	with.Policy.Input, without.Policy.Input = "s3://{header.x-bucket}/{header.x-key}", ""
	without.Policy.BodyInput = true // which is no concern of the filter's
	for _, path := range []string{full.FilterPath, ""} {
		cfg := full
		cfg.FilterPath = path
		s := mustResources(t, cfg, platform.State{Functions: []platform.Function{with, without}})
		disabled := map[string]bool{}
		for _, v := range get[*routev3.RouteConfiguration](s, resource.RouteType, routesName).GetVirtualHosts() {
			for range v.GetTypedPerFilterConfig() {
				disabled[v.GetName()] = true
			}
		}
		want := map[string]bool{}
		if path != "" { // Envoy refuses to disable a filter that is not there
			want[without.Name] = true
		}
		if diff := cmp.Diff(want, disabled); diff != "" {
			t.Errorf("filter %q (-want +got):\n%s", path, diff)
		}
	}
}

func TestRoutes(t *testing.T) {
	f := video()
	s := mustResources(t, full, platform.State{Functions: []platform.Function{f}})
	hosts := get[*routev3.RouteConfiguration](s, resource.RouteType, routesName).GetVirtualHosts()
	if len(hosts) != 1 || !slices.Equal(hosts[0].GetDomains(), f.Hosts) {
		t.Fatalf("virtual hosts %v", hosts)
	}
	var got []string
	for _, r := range hosts[0].GetRoutes()[1:] { // the first refuses what is malformed
		var header string
		if h := r.GetMatch().GetHeaders(); len(h) > 0 {
			header = h[0].GetName()
		}
		got = append(got, header+" -> "+r.GetRoute().GetCluster())
		if want := 95 * time.Second; r.GetRoute().GetTimeout().AsDuration() != want || r.GetRoute().GetIdleTimeout().AsDuration() != want {
			t.Errorf("timeouts %v and %v, want cold start, execution and slack: %v", r.GetRoute().GetTimeout(), r.GetRoute().GetIdleTimeout(), want)
		}
	}
	want := []string{"x-key -> headstart-ingress", " -> default/video"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	added := hosts[0].GetRequestHeadersToAdd()
	if len(added) != 1 || added[0].GetHeader().GetKey() != filterapi.HeaderFunction || added[0].GetHeader().GetValue() != f.Name ||
		added[0].GetAppendAction() != core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
		t.Errorf("headers added: %v", added)
	}
}

// Whatever names an input leads to the daemon, with or without a filter.
func TestRoutesOfPathAndQuery(t *testing.T) {
	f := video()
	f.Policy.Path, f.Policy.Input = "/v1.0/{camera}/{+rest}", "s3://{query.bucket}/{path.camera}/{header.x-key}"
	hosts := get[*routev3.RouteConfiguration](mustResources(t, full, platform.State{Functions: []platform.Function{f}}), resource.RouteType, routesName).GetVirtualHosts()
	var got []string
	for _, r := range hosts[0].GetRoutes()[1:] {
		m := r.GetMatch()
		way := m.GetPrefix() + m.GetSafeRegex().GetRegex()
		for _, h := range m.GetHeaders() {
			way += " " + h.GetName()
		}
		for _, q := range m.GetQueryParameters() {
			way += " ?" + q.GetName()
		}
		got = append(got, way+" -> "+r.GetRoute().GetCluster())
	}
	want := []string{"/ x-key -> headstart-ingress", "/ ?bucket -> headstart-ingress", "/v1[.]0/[^/]+/.+ -> headstart-ingress", "/ -> default/video"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// The filter accepts what the control plane sends it.
func TestPluginConfiguration(t *testing.T) {
	s := mustResources(t, full, platform.State{Functions: []platform.Function{video(), thumbs()}})
	var w wasmfilter.Wasm
	var text wrapperspb.StringValue
	if err := get[*core.TypedExtensionConfig](s, resource.ExtensionConfigType, module.PrefetchName).GetTypedConfig().UnmarshalTo(&w); err != nil {
		t.Fatal(err)
	}
	if err := w.GetConfig().GetConfiguration().UnmarshalTo(&text); err != nil {
		t.Fatal(err)
	}
	got, err := filterapi.ParseConfig([]byte(text.GetValue()))
	if err != nil {
		t.Fatal(err)
	}
	want := &filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster, Functions: []filterapi.Function{
		{Name: "default/thumbs", Hosts: thumbs().Hosts},
		{Name: "default/video", Hosts: video().Hosts, Input: video().Policy.Input},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if get[*clusterv3.Cluster](s, resource.ClusterType, got.HintCluster) == nil {
		t.Errorf("there is no cluster %s", got.HintCluster)
	}
}

func TestResourcesRefuse(t *testing.T) {
	double := thumbs()
	double.Hosts = video().Hosts[:1]
	noHost := thumbs()
	noHost.Hosts = nil
	for name, c := range map[string]struct {
		gw   Gateway
		st   platform.State
		want string
	}{
		"no ingress socket": {Gateway{ID: "edge", HintSocket: "/h"}, platform.State{}, "ingress socket: path of 0 bytes, must be 1 to 107"},
		"long hint socket":  {Gateway{ID: "edge", IngressSocket: "/i", HintSocket: strings.Repeat("x", 108)}, platform.State{}, "hint socket: path of 108 bytes, must be 1 to 107"},
		"one host, two functions": {edge, platform.State{Functions: []platform.Function{video(), double}},
			"plugin configuration: functions[1].hosts[0]: video.default.example.com is already a host of default/thumbs"},
		"no host":        {edge, platform.State{Functions: []platform.Function{noHost}}, "plugin configuration: functions[0].hosts: must be 1 to 64"},
		"name of a host": {edge, platform.State{Functions: []platform.Function{{Name: "headstart-ingress", Hosts: []string{"a"}}}}, `plugin configuration: functions[0].name: "headstart-ingress" is not namespace/name`},
		"address without port": {edge, platform.State{Functions: []platform.Function{video()}, Instances: []platform.Instance{ready(video(), "one", "10.0.0.2")}},
			`instance one of default/video: address "10.0.0.2" is not ip:port`},
		"address of a name": {edge, platform.State{Functions: []platform.Function{video()}, Instances: []platform.Instance{ready(video(), "one", "metadata:80")}},
			`instance one of default/video: address "metadata:80" is not ip:port`},
	} {
		if _, _, err := Resources(full, c.gw, c.st, nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// Whatever the platform says is either refused or makes valid, consistent resources,
// the same for every order; only those of an instance's function depend on instances.
func TestResourcesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[a-z]{4,8}`) // seldom the same twice
		name, host := rapid.StringMatching(`[a-z]{1,3}/[a-z]{4,8}`), label
		if rapid.Bool().Draw(t, "hostile") {
			name, host = rapid.OneOf(name, rapid.String()), rapid.OneOf(host, rapid.String())
		}
		functions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) platform.Function {
			return platform.Function{
				Name: name.Draw(t, "name"), Hosts: rapid.SliceOfN(host, 1, 3).Draw(t, "hosts"),
				RequestTimeout: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "timeout")),
				Policy:         policy.Policy{Input: rapid.SampledFrom([]string{"", "s3://bucket/{header.x-key}"}).Draw(t, "input")},
			}
		}), 0, 5).Draw(t, "functions")
		var instances []platform.Instance
		for i, f := range functions {
			if rapid.Bool().Draw(t, "hot") {
				instances = append(instances, ready(f, fmt.Sprint(i), fmt.Sprintf("10.0.0.%d:80", i+1)), ready(f, "x", "10.0.1.1:80"))
			}
		}
		st := platform.State{Functions: functions, Instances: instances}
		s, _, err := Resources(full, edge, st, nil)
		if err != nil {
			return
		}
		if err := s.Consistent(); err != nil {
			t.Fatal(err)
		}
		for typeURL := range servedTypes {
			for _, r := range s.GetResources(typeURL) {
				validate(t, r)
			}
		}
		mixed := platform.State{Functions: rapid.Permutation(functions).Draw(t, "functions"), Instances: rapid.Permutation(instances).Draw(t, "instances")}
		if diff := changed(t, s, mixed); len(diff) > 0 {
			t.Fatalf("another order changes %v", diff)
		}
		for _, k := range changed(t, s, platform.State{Functions: functions}) {
			if k.typeURL != resource.EndpointType || !slices.ContainsFunc(instances, func(i platform.Instance) bool { return i.Function == k.name }) {
				t.Fatalf("without its instances %v changes", k)
			}
		}
	})
}

// changed lists the resources that differ in st.
func changed(t *rapid.T, s *cache.Snapshot, st platform.State) []key {
	other, _, err := Resources(full, edge, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys []key
	for typeURL := range servedTypes {
		for name, r := range s.GetResources(typeURL) {
			if !proto.Equal(r, other.GetResources(typeURL)[name]) {
				keys = append(keys, key{typeURL, name})
			}
		}
	}
	return keys
}

// validate checks a message by Envoy's own rules, and all that are packed in it.
func validate(t interface{ Fatalf(string, ...any) }, m proto.Message) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			t.Fatalf("%T: %v", m, err)
		}
	}
	if a, ok := m.(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatalf("%s: %v", a.GetTypeUrl(), err)
		}
		validate(t, inner)
		return
	}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				validate(t, v.Message().Interface())
				return true
			})
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				validate(t, v.List().Get(i).Message().Interface())
			}
		case !f.IsList() && !f.IsMap() && f.Message() != nil:
			validate(t, v.Message().Interface())
		}
		return true
	})
}

func TestListenerWithoutExtras(t *testing.T) {
	s := mustResources(t, Config{ListenPort: 8080}, platform.State{})
	l := get[*listenerv3.Listener](s, resource.ListenerType, listenerName)
	if got := l.GetAddress().GetSocketAddress(); got.GetAddress() != "0.0.0.0" || got.GetPortValue() != 8080 {
		t.Errorf("listens on %v", got)
	}
	m := resource.GetHTTPConnectionManager(l.GetFilterChains()[0].GetFilters()[0])
	if m.GetTracing() != nil || len(m.GetHttpFilters()) != 1 {
		t.Errorf("tracing %v, filters %v", m.GetTracing(), m.GetHttpFilters())
	}
}
