package xds

import (
	"bytes"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const ingressPath = "/run/headstart/gateway/ingress.sock"

// inMesh is a function that has a Kubernetes Service.
func inMesh(f platform.Function) platform.Function {
	f.Service, f.ServicePort = strings.ReplaceAll(f.Name, "/", ".")+".svc.cluster.local", 80
	return f
}

// meshAssignments is what a Server has for the gateway edge, by AssignmentName, as
// Envoy's own types read it.
func meshAssignments(t interface{ Fatal(...any) }, st platform.State, w routing.Weights, socket string) (
	map[string]*endpoint.ClusterLoadAssignment, error,
) {
	m := New(Config{IngressSocket: socket, Endpoints: platform.Function.AssignmentName}, slog.New(slog.DiscardHandler))
	err := m.Update(st, w)
	out := map[string]*endpoint.ClusterLoadAssignment{}
	for name, f := range m.functions {
		weights, _ := f.pool.split("edge")
		var a endpoint.ClusterLoadAssignment
		if err := proto.Unmarshal(f.encode(weights), &a); err != nil {
			t.Fatal(err)
		}
		out[name] = &a
	}
	return out, err
}

// assigned reads an assignment named default/video:80.
func assigned(t *testing.T, endpoints string) *endpoint.ClusterLoadAssignment {
	t.Helper()
	var a endpoint.ClusterLoadAssignment
	if err := protojson.Unmarshal(
		[]byte(`{"cluster_name":"default/video:80","endpoints":[`+endpoints+`]}`), &a,
	); err != nil {
		t.Fatal(err)
	}
	return &a
}

const daemonBelow = `{"priority":2,"load_balancing_weight":1,"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":"` + ingressPath + `"}}},
	"metadata":{"filter_metadata":{"envoy.transport_socket_match":{"` + istio.NodeSocketKey + `":"` + istio.NodeSocket + `"}}}}]}`

func TestMeshAssignment(t *testing.T) {
	instance := func(phase platform.Phase, address, sni string) platform.Instance {
		return platform.Instance{
			ID: "i", Function: video().Name, Node: "edge", Phase: phase, Address: at(address), MeshSNI: sni,
		}
	}
	plain := func(address string) string {
		return `{"endpoint":{"address":{"socket_address":{"address":"` + address + `","port_value":8080}}}}`
	}
	const tls = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.3","port_value":8080}}},
		"metadata":{"filter_metadata":{"envoy.transport_socket_match":{"tlsMode":"istio"}}}}`
	for name, c := range map[string]struct {
		instances []platform.Instance
		endpoints []platform.Endpoint
		want      string
	}{
		"no instance":     {nil, nil, daemonBelow},
		"starting":        {[]platform.Instance{instance(platform.Starting, "10.0.0.1:8080", "")}, nil, daemonBelow},
		"withdrawn":       {[]platform.Instance{instance(platform.Stopping, "10.0.0.1:8080", "")}, nil, daemonBelow},
		"another's":       {[]platform.Instance{{Function: "default/thumbs", Phase: platform.Ready, Address: at("10.0.0.1:8080")}}, nil, daemonBelow},
		"ready":           {[]platform.Instance{instance(platform.Ready, "10.0.0.1:8080", "")}, nil, `{"load_balancing_weight":1,"lb_endpoints":[` + plain("10.0.0.1") + `]},` + daemonBelow},
		"with a sidecar":  {[]platform.Instance{instance(platform.Ready, "10.0.0.3:8080", "outbound_.80_._.video")}, nil, `{"load_balancing_weight":1,"lb_endpoints":[` + tls + `]},` + daemonBelow},
		"two, one of all": {[]platform.Instance{instance(platform.Ready, "10.0.0.3:8080", "x"), instance(platform.Ready, "10.0.0.1:8080", ""), instance(platform.Starting, "10.0.0.9:8080", "")}, nil, `{"load_balancing_weight":2,"lb_endpoints":[` + plain("10.0.0.1") + `,` + tls + `]},` + daemonBelow},
		"an address twice": {[]platform.Instance{instance(platform.Ready, "10.0.0.3:8080", ""), instance(platform.Ready, "10.0.0.3:8080", "x")}, nil,
			`{"load_balancing_weight":1,"lb_endpoints":[` + tls + `]},` + daemonBelow},
		"another autoscaler's": {nil, []platform.Endpoint{
			{Function: video().Name, Address: at("10.0.0.3:8080"), MeshTLS: true},
			{Function: video().Name, Address: at("10.0.0.1:8080")},
		},
			`{"load_balancing_weight":2,"lb_endpoints":[` + plain("10.0.0.1") + `,` + tls + `]},` + daemonBelow},
		"IPv6": {[]platform.Instance{instance(platform.Ready, "[fd00::1]:8080", "")}, nil, `{"load_balancing_weight":1,"lb_endpoints":[` + plain("fd00::1") + `]},` + daemonBelow},
	} {
		got, err := meshAssignments(
			t,
			platform.State{
				Functions: []platform.Function{inMesh(video())}, Instances: c.instances, Endpoints: c.endpoints,
			},
			nil, ingressPath,
		)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(
			map[string]*endpoint.ClusterLoadAssignment{"default/video:80": assigned(t, c.want)}, got,
			protocmp.Transform(),
		); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The requests go by weight; who has none is a spare, and the daemon comes last.
func TestMeshAssignmentByWeight(t *testing.T) {
	at := func(address, weight string) string {
		return `{"endpoint":{"address":{"socket_address":{"address":"` + address + `","port_value":80}}}` + weight + `}`
	}
	const first, second, third = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	st := platform.State{Functions: []platform.Function{inMesh(video())},
		Instances: []platform.Instance{ready(video(), "c", third+":80"), ready(video(), "a", first+":80"), ready(video(), "b", second+":80")}}
	for name, c := range map[string]struct {
		row  []uint32
		want string
	}{
		"weighed": {[]uint32{300, 20, 1}, `{"load_balancing_weight":3,"lb_endpoints":[` + at(first, `,"load_balancing_weight":300`) + `,` + at(second, `,"load_balancing_weight":20`) + `,` + at(third, `,"load_balancing_weight":1`) + `]},` + daemonBelow},
		"a spare": {[]uint32{0, 7, 3}, `{"load_balancing_weight":2,"lb_endpoints":[` + at(second, `,"load_balancing_weight":7`) + `,` + at(third, `,"load_balancing_weight":3`) + `]},` +
			`{"priority":1,"load_balancing_weight":1,"lb_endpoints":[` + at(first, "") + `]},` + daemonBelow},
		"all the same": {[]uint32{5, 5, 5}, `{"load_balancing_weight":3,"lb_endpoints":[` + at(first, "") + `,` + at(second, "") + `,` + at(third, "") + `]},` + daemonBelow},
	} {
		w := routing.Weights{
			video().Name: {Endpoints: addressesOf(first, second, third), Rows: map[string]routing.Row{
				"edge": {Weights: c.row},
			}},
		}
		got, err := meshAssignments(t, st, w, ingressPath)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(assigned(t, c.want), got["default/video:80"], protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// addressesOf are ports 80 of hosts.
func addressesOf(hosts ...string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, h := range hosts {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(h), 80))
	}
	return out
}

// One instance's mistake is not the others'.
func TestUnknownAddressesAreLeftOut(t *testing.T) {
	st := platform.State{Functions: []platform.Function{
		inMesh(video()), inMesh(thumbs()),
		func() platform.Function { f := video(); f.Name = "default/local"; return f }(),
	},
		Instances: []platform.Instance{ready(video(), "a", "10.0.0.1:8080"), ready(video(), "b", ""), ready(thumbs(), "c", "")}}
	got, err := meshAssignments(t, st, nil, ingressPath)
	if err != nil || len(got) != 2 || len(got["default/video:80"].GetEndpoints()) != 2 || len(got["default/thumbs:80"].GetEndpoints()) != 1 {
		t.Errorf("got %v", got)
	}
	long := "/" + strings.Repeat("a", 107)
	if got, err := meshAssignments(t, st, nil, long); err == nil || len(got) > 0 {
		t.Errorf("socket %q: %v, %v", long, got, err)
	}
	// its node adds the daemon
	if got, _ := meshAssignments(t, st, nil, ""); len(got["default/thumbs:80"].GetEndpoints()) != 0 {
		t.Errorf("without a socket: %v", got)
	}
}

// What Envoy gets is valid and the same for the same state, whatever its order.
func TestMeshAssignmentsAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		st := platform.State{Functions: []platform.Function{inMesh(video()), inMesh(thumbs())}}
		address := rapid.SampledFrom([]string{"10.0.0.1:80", "10.0.0.2:80", "10.0.0.2:81", "[fd00::1]:80", "wrong", ""})
		for range rapid.IntRange(0, 6).Draw(t, "instances") {
			st.Instances = append(st.Instances, platform.Instance{
				Function: rapid.SampledFrom([]string{"default/video", "default/thumbs", "default/unknown"}).Draw(t, "function"),
				Phase:    rapid.SampledFrom([]platform.Phase{platform.Starting, platform.Ready, platform.Stopping}).Draw(t, "phase"),
				Address:  at(address.Draw(t, "address")),
				MeshSNI:  rapid.SampledFrom([]string{"", "x"}).Draw(t, "sni"),
			})
		}
		w := routing.Weights{"default/video": matrixOf(t)}
		want, _ := meshAssignments(t, st, w, ingressPath)
		for _, a := range want {
			if err := a.ValidateAll(); err != nil {
				t.Fatal(err)
			}
		}
		slices.Reverse(st.Functions)
		slices.Reverse(st.Instances)
		got, _ := meshAssignments(t, st, w, ingressPath)
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("in another order (-want +got):\n%s", diff)
		}
	})
}

// Expectations have another version exactly if a gateway's filter is told another thing, though
// versions are made without the text.
func TestExpectationsVersionsAreTheContents(t *testing.T) {
	duration := rapid.Map(
		rapid.IntRange(-1, 3), func(i int) time.Duration { return time.Duration(i) * time.Microsecond / 2 },
	)
	expected := rapid.Custom(func(t *rapid.T) filterapi.Expected {
		return filterapi.Expected{RTT: duration.Draw(t, "RTT"), Service: duration.Draw(t, "service"), Workers: rapid.SampledFrom([]float64{-1, 0, 0.4, 0.6, 1, math.NaN()}).Draw(t, "workers"),
			Others: rapid.SampledFrom([]float64{0, 0.001, 0.0011, 1, math.NaN(), math.Inf(1)}).Draw(t, "others")}
	})
	row := rapid.Custom(func(t *rapid.T) routing.Row {
		return routing.Row{
			Weights:  rapid.SliceOfN(rapid.Uint32Range(0, 1), 2, 2).Draw(t, "weights"),
			Expected: rapid.SliceOfN(expected, 2, 2).Draw(t, "expected"),
		}
	})
	cluster, ready := rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]int{1, 2, 2, 3})
	rapid.Check(t, func(t *rapid.T) {
		told := func(cluster string, ready int, row routing.Row) (version string, content []byte) {
			f := hotFunction{name: "default/thumbs:80", cluster: cluster, ready: addresses{}}
			for _, a := range addressesOf("10.0.0.1", "10.0.0.2", "10.0.0.3")[:ready] {
				f.ready[a] = false
			}
			made, err := f.with(
				&routing.Matrix{
					Endpoints: addressesOf("10.0.0.1", "10.0.0.2"), Rows: map[string]routing.Row{"edge": row},
				},
				nil,
			)
			if err != nil {
				t.Fatal(err)
			}
			if version = made.split(itsExpectations, "edge").version; version == "" {
				return "", nil
			}
			return version, made.resource(itsExpectations, "edge")
		}
		c, n, r := cluster.Draw(t, "cluster"), ready.Draw(t, "ready"), row.Draw(t, "row")
		version, content := told(c, n, r)
		another := expected.Draw(t, "another")
		r = routing.Row{Weights: slices.Clone(r.Weights), Expected: slices.Clone(r.Expected)}
		[]func(e *filterapi.Expected){
			func(*filterapi.Expected) { c = cluster.Draw(t, "other cluster") },
			func(*filterapi.Expected) { n = ready.Draw(t, "others ready") },
			func(*filterapi.Expected) { r.Weights[1] = 1 - r.Weights[1] },
			func(e *filterapi.Expected) { e.RTT = another.RTT },
			func(e *filterapi.Expected) { e.Service = another.Service },
			func(e *filterapi.Expected) { e.Workers = another.Workers },
			func(e *filterapi.Expected) { e.Others = another.Others },
		}[rapid.IntRange(0, 6).Draw(t, "different")](&r.Expected[1])
		otherVersion, other := told(c, n, r)
		if (version == otherVersion) != bytes.Equal(content, other) {
			t.Errorf("versions %q and %q of\n%q and\n%q", version, otherVersion, content, other)
		}
	})
}
