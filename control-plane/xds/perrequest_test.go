package xds

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	wasmfilter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

// expectations of edge for a function that is ready at addresses 10.0.0.1 and up.
func routedState(f platform.Function, row routing.Row, places int) (platform.State, routing.Weights) {
	st := platform.State{Functions: []platform.Function{f}}
	m := &routing.Matrix{Rows: map[string]routing.Row{edge.ID: row}}
	for i := range max(places, len(row.Weights)) {
		a := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 80)
		if i < len(row.Weights) {
			m.Endpoints = append(m.Endpoints, a)
		}
		if i < places {
			st.Instances = append(st.Instances, ready(f, a.String(), a.String()))
		}
	}
	return st, routing.Weights{f.Name: m}
}

// told is the route filter's configuration, and which filters the function's requests do
// not enter.
func told(t *testing.T, st platform.State, w routing.Weights) (config string, without []string, unused string) {
	t.Helper()
	cfg := full
	cfg.RouteFilterPath = "/opt/headstart/filters.wasm"
	s, found, err := Resources(cfg, edge, st, w)
	if err != nil {
		t.Fatal(err)
	}
	var filter wasmfilter.Wasm
	if err := get[*core.TypedExtensionConfig](s, resource.ExtensionConfigType, module.RouteName).GetTypedConfig().UnmarshalTo(&filter); err != nil {
		t.Fatal(err)
	}
	var text wrapperspb.StringValue
	if err := filter.GetConfig().GetConfiguration().UnmarshalTo(&text); err != nil {
		t.Fatal(err)
	}
	routes := get[*routev3.RouteConfiguration](s, resource.RouteType, routesName)
	for _, name := range []string{module.PrefetchName, module.RouteName} {
		if routes.GetVirtualHosts()[0].GetTypedPerFilterConfig()[name] != nil {
			without = append(without, name)
		}
	}
	return text.GetValue(), without, found[st.Functions[0].Name]
}

func TestTheRouteFilterIsToldWhatToExpect(t *testing.T) {
	near := routing.Expected{RTT: 200 * time.Microsecond, Service: 4 * time.Millisecond, Workers: 2, Others: 0.5}
	far := routing.Expected{RTT: 50 * time.Millisecond, Service: 4 * time.Millisecond, Workers: 8}
	only := []string{module.PrefetchName}
	neither := []string{module.PrefetchName, module.RouteName}
	for _, c := range []struct {
		name    string
		f       platform.Function
		row     routing.Row
		places  int
		config  string
		without []string
		unused  string
	}{
		{"two places", thumbs(), routing.Row{Weights: []uint32{900, 0}, Expected: []routing.Expected{near, far}}, 2,
			"default/thumbs 10.0.0.1:80,900,200,4000,2,500 10.0.0.2:80,0,50000,4000,8,0\n", only, ""},
		{"even weights", thumbs(), routing.Row{Weights: []uint32{7, 7}, Expected: []routing.Expected{near, far}}, 2,
			"default/thumbs 10.0.0.1:80,1,200,4000,2,500 10.0.0.2:80,1,50000,4000,8,0\n", only, ""},
		{"one is new", thumbs(), routing.Row{Weights: []uint32{900, 100}, Expected: []routing.Expected{near, far}}, 3,
			"default/thumbs 10.0.0.1:80,900,200,4000,2,500 10.0.0.2:80,100,50000,4000,8,0 10.0.0.3:80,500,25100,4000,5,250\n", only, "have no weight yet"},
		{"one place", thumbs(), routing.Row{Weights: []uint32{1, 1}, Expected: []routing.Expected{near, far}}, 1, "", neither, ""},
		{"cold", thumbs(), routing.Row{Weights: []uint32{1, 1}, Expected: []routing.Expected{near, far}}, 0, "", neither, ""},
		{"weights only", thumbs(), routing.Row{Weights: []uint32{1, 2}}, 2, "", neither, ""},
		{"too few", thumbs(), routing.Row{Weights: []uint32{1, 2}, Expected: []routing.Expected{near}}, 2, "", neither, "1 expectations for 2 endpoints"},
		{"with an input", video(), routing.Row{Weights: []uint32{1, 2}, Expected: []routing.Expected{near, far}}, 2, "", []string{module.RouteName}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			st, w := routedState(c.f, c.row, c.places)
			config, without, unused := told(t, st, w)
			if want := "v1\n" + c.config; config != want {
				t.Errorf("configuration\n%s, want\n%s", config, want)
			}
			if diff := cmp.Diff(c.without, without); diff != "" {
				t.Errorf("filters that are not entered (-want +got):\n%s", diff)
			}
			if !strings.Contains(unused, c.unused) || (unused == "") != (c.unused == "") {
				t.Errorf("unused %q, want %q", unused, c.unused)
			}
		})
	}
}

// Envoy sends a request to whichever of the cluster's endpoints is named, however that fares.
// So no name is told of one that is withdrawn, and nothing ejects another meanwhile.
func TestWhatIsNamedIsWell(t *testing.T) {
	f := platform.Function{Name: "default/f", Hosts: []string{"f"}}
	there := routing.Expected{RTT: time.Millisecond, Service: time.Millisecond, Workers: 1}
	st, w := routedState(f, routing.Row{Weights: []uint32{1, 1, 1}, Expected: []routing.Expected{there, there, there}}, 3)
	st.Instances[0].Phase = platform.Stopping
	config, _, _ := told(t, st, w)
	if strings.Contains(config, "10.0.0.1:80") || !strings.Contains(config, "10.0.0.2:80") || !strings.Contains(config, "10.0.0.3:80") {
		t.Errorf("the filter is told %q", config)
	}
	if c := functionCluster(f.Name, &packer{}); c.GetOutlierDetection() != nil || c.GetHealthChecks() != nil {
		t.Error("the cluster may find endpoints unwell of which the filter is not told")
	}
}

// What changes for the filter changes nothing else: no cluster is built anew for it.
func TestNewExpectationsAreForTheFilterOnly(t *testing.T) {
	row := routing.Row{Weights: []uint32{1, 2}, Expected: []routing.Expected{{}, {RTT: time.Second}}}
	cfg := full
	cfg.RouteFilterPath = "/opt/headstart/filters.wasm"
	versions := func(row routing.Row) map[string]map[string]string {
		st, w := routedState(thumbs(), row, 2)
		s, _, err := Resources(cfg, edge, st, w)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.ConstructVersionMap(); err != nil {
			t.Fatal(err)
		}
		return s.VersionMap
	}
	before := versions(row)
	row.Expected = []routing.Expected{{RTT: time.Minute}, {}}
	after := versions(row)
	delete(before[resource.ExtensionConfigType], module.RouteName)
	if after[resource.ExtensionConfigType][module.RouteName] == "" {
		t.Error("the filter is not there")
	}
	delete(after[resource.ExtensionConfigType], module.RouteName)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("versions (-before +after):\n%s", diff)
	}
}
