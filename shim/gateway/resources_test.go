package gateway

import (
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
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

var full = Config{Node: "edge", Port: 8080, RelaySocket: "/run/headstart/gateway.sock", IngressSocket: "/run/headstart/ingress.sock",
	HintSocket: "/run/headstart/hint.sock", AdminSocket: "/run/headstart/envoy.sock",
	Filters: "/opt/headstart/filters.wasm", OTLPSocket: "/run/headstart/otlp.sock", TraceSampling: 100}

// plain is full without all that need not be.
func plain() Config {
	c := full
	c.Filters, c.OTLPSocket = "", ""
	return c
}

// video is a function with an input, thumbs one without.
func video() *nodeapi.Function {
	return &nodeapi.Function{Name: "default/video", Hosts: []string{"video.default.example.com", "video.default"}, HasInput: true, InputTemplate: "s3://videos/{header.x-key}",
		RequestTimeout: durationpb.New(60 * time.Second), ReadyTimeout: durationpb.New(30 * time.Second)}
}

func thumbs() *nodeapi.Function {
	return &nodeapi.Function{Name: "default/thumbs", Hosts: []string{"thumbs.default.example.com"},
		RequestTimeout: durationpb.New(10 * time.Second), ReadyTimeout: durationpb.New(20 * time.Second)}
}

// resources are those of a gateway by type and name.
type resources map[string]map[string]types.Resource

func resourcesOf(cfg Config, functions []*nodeapi.Function, picked map[string]bool) (resources, error) {
	var clusters []string
	for _, f := range functions {
		clusters = append(clusters, f.GetName())
	}
	all, err := cfg.Resources(functions, clusters, picked)
	out := resources{}
	for _, r := range all {
		t := "type.googleapis.com/" + string(r.ProtoReflect().Descriptor().FullName())
		if out[t] == nil {
			out[t] = map[string]types.Resource{}
		}
		out[t][cache.GetResourceName(r)] = r
	}
	return out, err
}

func mustResources(t *testing.T, cfg Config, functions ...*nodeapi.Function) resources {
	t.Helper()
	r, err := resourcesOf(cfg, functions, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get[T types.Resource](s resources, typeURL, name string) T {
	r, _ := s[typeURL][name].(T)
	return r
}

func TestResourceNames(t *testing.T) {
	for name, c := range map[string]struct {
		cfg       Config
		functions []*nodeapi.Function
		want      map[string][]string
	}{
		"no functions": {plain(), nil, map[string][]string{
			resource.ListenerType: {"gateway"}, resource.RouteType: {"functions"},
			resource.ClusterType: {"headstart-hints", "headstart-ingress", "headstart-log"},
		}},
		"everything": {full, []*nodeapi.Function{video(), thumbs()}, map[string][]string{
			resource.ListenerType: {"gateway"}, resource.RouteType: {"functions"},
			resource.ClusterType:         {"default/thumbs", "default/video", "headstart-hints", "headstart-ingress", "headstart-log", "headstart-otlp"},
			resource.ExtensionConfigType: {module.Name},
		}},
	} {
		got := map[string][]string{}
		for typeURL, byName := range mustResources(t, c.cfg, c.functions...) {
			got[typeURL] = slices.Sorted(maps.Keys(byName))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The daemon is the last of a function's endpoints, and alone while there is no other.
func TestTheDaemonComesLast(t *testing.T) {
	b, err := full.Daemon()
	if err != nil {
		t.Fatal(err)
	}
	instances := &endpoint.ClusterLoadAssignment{
		ClusterName: "default/video", Endpoints: []*endpoint.LocalityLbEndpoints{{Priority: 1}},
	}
	above, err := proto.Marshal(instances)
	if err != nil {
		t.Fatal(err)
	}
	var both endpoint.ClusterLoadAssignment
	if err := proto.Unmarshal(append(above, b...), &both); err != nil {
		t.Fatal(err)
	}
	last := both.GetEndpoints()[len(both.GetEndpoints())-1]
	if both.GetClusterName() != "default/video" || len(both.GetEndpoints()) != 2 || last.GetPriority() <= 1 ||
		last.GetLbEndpoints()[0].GetEndpoint().GetAddress().GetPipe().GetPath() != full.IngressSocket {
		t.Errorf("got %v", &both)
	}
}

// Requests of a function without an input enter the filters only if these pick its instances, and what
// changes for that changes no cluster: those would be built again for it.
func TestOnlyFunctionsWithSeveralInstancesEnterTheFilters(t *testing.T) {
	before := mustResources(t, full, video(), thumbs())
	after, err := resourcesOf(full, []*nodeapi.Function{video(), thumbs()}, map[string]bool{"default/thumbs": true})
	if err != nil {
		t.Fatal(err)
	}
	disabled := func(r resources) (names []string) {
		for _, v := range get[*routev3.RouteConfiguration](r, resource.RouteType, routesName).GetVirtualHosts() {
			if v.GetTypedPerFilterConfig()[module.Name] != nil {
				names = append(names, v.GetName())
			}
		}
		return names
	}
	if got := disabled(before); !slices.Equal(got, []string{"default/thumbs"}) {
		t.Errorf("not entered with one instance: %q", got)
	}
	if got := disabled(after); len(got) != 0 {
		t.Errorf("not entered with several of one: %q", got)
	}
	for name, c := range before[resource.ClusterType] {
		if !proto.Equal(c, after[resource.ClusterType][name]) {
			t.Errorf("cluster %s is another", name)
		}
	}
}

// Envoy sends a request to whichever of the cluster's endpoints is named, however that fares. So nothing
// ejects one of which the route filter is told.
func TestWhatIsNamedIsWell(t *testing.T) {
	if c := functionCluster("default/f", &packer{}); c.GetOutlierDetection() != nil || c.GetHealthChecks() != nil {
		t.Error("the cluster may find endpoints unwell of which the filter is not told")
	}
}

func TestOnlyFunctionsWithAnInputEnterTheFilter(t *testing.T) {
	with, without := video(), thumbs()
	with.HasInput, with.InputTemplate = false, ""
	with.InputTemplates = map[string]string{"mask": "s3://{header.x-bucket}/{header.x-key}"}
	without.BodyInput = true // which is no concern of the filter's
	for _, path := range []string{full.Filters, ""} {
		cfg := plain()
		cfg.Filters = path
		s := mustResources(t, cfg, with, without)
		disabled := map[string]bool{}
		for _, v := range get[*routev3.RouteConfiguration](s, resource.RouteType, routesName).GetVirtualHosts() {
			for range v.GetTypedPerFilterConfig() {
				disabled[v.GetName()] = true
			}
		}
		want := map[string]bool{}
		if path != "" { // Envoy refuses to disable a filter that is not there
			want[without.GetName()] = true
		}
		if diff := cmp.Diff(want, disabled); diff != "" {
			t.Errorf("filter %q (-want +got):\n%s", path, diff)
		}
	}
}

func TestRoutes(t *testing.T) {
	f := video()
	s := mustResources(t, full, f)
	hosts := get[*routev3.RouteConfiguration](s, resource.RouteType, routesName).GetVirtualHosts()
	if len(hosts) != 1 || !slices.Equal(hosts[0].GetDomains(), f.GetHosts()) {
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
			t.Errorf(
				"timeouts %v and %v, want cold start, execution and slack: %v", r.GetRoute().GetTimeout(),
				r.GetRoute().GetIdleTimeout(), want,
			)
		}
	}
	want := []string{"x-key -> headstart-ingress", " -> default/video"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	added := hosts[0].GetRequestHeadersToAdd()
	if len(added) != 1 || added[0].GetHeader().GetKey() != filterapi.HeaderFunction || added[0].GetHeader().GetValue() != f.GetName() ||
		added[0].GetAppendAction() != core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
		t.Errorf("headers added: %v", added)
	}
}

// Whatever names an input leads to the daemon, with or without a filter.
func TestRoutesOfPathAndQuery(t *testing.T) {
	f := video()
	f.InputTemplate = reference.Join("/v1.0/{camera}/{+rest}", "s3://{query.bucket}/{path.camera}/{header.x-key}")
	f.InputTemplates = map[string]string{"mask": "s3://masks/{header.x-mask}/{header.x-key}",
		"text": reference.Join("/v1.0/{camera}/{+rest}", "s3://text/{query.lang}/{path.camera}")}
	hosts := get[*routev3.RouteConfiguration](mustResources(t, full, f), resource.RouteType, routesName).GetVirtualHosts()
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
	want := []string{"/ x-key -> headstart-ingress", "/ x-mask -> headstart-ingress",
		"/ ?bucket -> headstart-ingress", "/ ?lang -> headstart-ingress", "/v1[.]0/[^/]+/.+ -> headstart-ingress", "/ -> default/video"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
}

// The filter accepts what the control plane sends it.
func TestPluginConfiguration(t *testing.T) {
	s := mustResources(t, full, video(), thumbs())
	var w wasmfilter.Wasm
	var text wrapperspb.StringValue
	if err := get[*core.TypedExtensionConfig](s, resource.ExtensionConfigType, module.Name).GetTypedConfig().UnmarshalTo(&w); err != nil {
		t.Fatal(err)
	}
	if err := w.GetConfig().GetConfiguration().UnmarshalTo(&text); err != nil {
		t.Fatal(err)
	}
	got, err := filterapi.ParseConfig([]byte(text.GetValue()))
	if err != nil {
		t.Fatal(err)
	}
	want := &filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if get[*clusterv3.Cluster](s, resource.ClusterType, got.HintCluster) == nil {
		t.Errorf("there is no cluster %s", got.HintCluster)
	}
	other := video()
	other.InputTemplate = "s3://other/{header.x-key}"
	after := mustResources(t, full, other)
	if !proto.Equal(after[resource.ExtensionConfigType][module.Name], s[resource.ExtensionConfigType][module.Name]) {
		t.Error("an annotation's change starts the filter again")
	}
	if !proto.Equal(after[resource.ClusterType]["default/video"], s[resource.ClusterType]["default/video"]) {
		t.Error("an annotation's change builds the function's cluster again")
	}
}

// All ways to a function with an input say to the filter what it is, and those to others nothing.
func TestRoutesHaveTheTemplates(t *testing.T) {
	s := mustResources(t, full, video(), thumbs())
	for _, v := range get[*routev3.RouteConfiguration](s, resource.RouteType, routesName).GetVirtualHosts() {
		for _, r := range v.GetRoutes()[1:] { // the first refuses what is malformed
			text := r.GetMetadata().GetFilterMetadata()["headstart"].GetFields()["prefetch"].GetStringValue()
			if v.GetName() == "default/thumbs" {
				if r.GetMetadata() != nil {
					t.Errorf("%s has %s", v.GetName(), text)
				}
				continue
			}
			got, err := filterapi.ParseFunction([]byte(text))
			if err != nil || got.Name != v.GetName() || got.Input != video().GetInputTemplate() {
				t.Errorf("%s has %s: %v", v.GetName(), text, err)
			}
		}
	}
}

func TestResourcesRefuse(t *testing.T) {
	double := thumbs()
	double.Hosts = video().GetHosts()[:1]
	noHost := thumbs()
	noHost.Hosts = nil
	for name, c := range map[string]struct {
		edit      func(*Config)
		functions []*nodeapi.Function
		want      string
	}{
		"no ingress socket":       {func(c *Config) { c.IngressSocket = "" }, nil, "ingress socket: path of 0 bytes, must be 1 to 107"},
		"long hint socket":        {func(c *Config) { c.HintSocket = strings.Repeat("x", 108) }, nil, "hint socket: path of 108 bytes, must be 1 to 107"},
		"one host, two functions": {nil, []*nodeapi.Function{video(), double}, "functions[1].hosts[0]: video.default.example.com is already a host of default/thumbs"},
		"many hosts": {nil, []*nodeapi.Function{{Name: "a/b", Hosts: make([]string, 65)}},
			"functions[0].hosts: must be 1 to 64"},
		"a host with a port": {nil, []*nodeapi.Function{{Name: "a/b", Hosts: []string{"b:80"}}},
			`functions[0].hosts[0]: "b:80" is not a host name in lower case without a port`},
		"one name, two functions": {nil, []*nodeapi.Function{thumbs(), thumbs()}, "functions[1].name: default/thumbs is there twice"},
		"wrong template": {nil, []*nodeapi.Function{{Name: "a/b", Hosts: []string{"b"}, InputTemplate: "gs://x/y"}},
			"functions[0].input: must start with s3://, redis://, http:// or https://: no other store is supported"},
		"no host":        {nil, []*nodeapi.Function{noHost}, "functions[0].hosts: must be 1 to 64"},
		"name of a host": {nil, []*nodeapi.Function{{Name: "headstart-ingress", Hosts: []string{"a"}}}, `functions[0].name: "headstart-ingress" is not namespace/name`},
	} {
		cfg := full
		if c.edit != nil {
			c.edit(&cfg)
		}
		if _, err := resourcesOf(cfg, c.functions, nil); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// Whatever the functions are, they are either refused or make valid resources, the same for every order.
func TestResourcesProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		label := rapid.StringMatching(`[a-z]{4,8}`) // seldom the same twice
		name, host := rapid.StringMatching(`[a-z]{1,3}/[a-z]{4,8}`), label
		if rapid.Bool().Draw(t, "hostile") {
			name, host = rapid.OneOf(name, rapid.String()), rapid.OneOf(host, rapid.String())
		}
		functions := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *nodeapi.Function {
			input := rapid.SampledFrom([]string{"", "s3://bucket/{header.x-key}"}).Draw(t, "input")
			return &nodeapi.Function{
				Name: name.Draw(t, "name"), Hosts: rapid.SliceOfN(host, 1, 3).Draw(t, "hosts"), HasInput: input != "",
				InputTemplate:  input,
				RequestTimeout: durationpb.New(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "timeout"))),
			}
		}), 0, 5).Draw(t, "functions")
		picked := map[string]bool{}
		for _, f := range functions {
			picked[f.GetName()] = rapid.Bool().Draw(t, "picked")
		}
		all, err := resourcesOf(full, functions, picked)
		if err != nil {
			return
		}
		mixed, err := resourcesOf(full, rapid.Permutation(functions).Draw(t, "order"), picked)
		if err != nil {
			t.Fatal(err)
		}
		for typeURL, byName := range all {
			for name, r := range byName {
				validate(t, r)
				if !proto.Equal(r, mixed[typeURL][name]) {
					t.Fatalf("another order changes %s", name)
				}
			}
		}
	})
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
	s := mustResources(t, plain())
	l := get[*listenerv3.Listener](s, resource.ListenerType, listenerName)
	if got := l.GetAddress().GetSocketAddress(); got.GetAddress() != "0.0.0.0" || got.GetPortValue() != 8080 {
		t.Errorf("listens on %v", got)
	}
	m := resource.GetHTTPConnectionManager(l.GetFilterChains()[0].GetFilters()[0])
	if m.GetTracing() != nil || len(m.GetHttpFilters()) != 1 {
		t.Errorf("tracing %v, filters %v", m.GetTracing(), m.GetHttpFilters())
	}
}
