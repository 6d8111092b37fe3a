package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// dialMesh serves a Server that knows the peer as one of nodes, without any as "edge",
// and connects to it.
func dialMesh(t *testing.T, nodes ...string) (*Server, *grpc.ClientConn) {
	t.Helper()
	m := New(Config{IngressSocket: ingressPath, Endpoints: platform.Function.AssignmentName, Cluster: istio.ClusterOf,
		Verify: func(_ context.Context, id string) error {
			if id != edge.ID && !slices.Contains(nodes, id) {
				return errors.New("another's certificate")
			}
			return nil
		}}, slog.New(slog.DiscardHandler))
	return m, dialTo(t, m.Register)
}

func updateMesh(t *testing.T, m *Server, st platform.State) {
	t.Helper()
	if err := m.Update(st, nil); err != nil {
		t.Fatal(err)
	}
}

// changes receives the next response and acknowledges it: each assignment's version, and
// what is removed.
func (e *envoy) changes() (changed map[string]string, removed []string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	changed = map[string]string{}
	for _, res := range r.GetResources() {
		changed[res.GetName()] = res.GetVersion()
	}
	return changed, r.GetRemovedResources()
}

func (e *envoy) wantChanged(names ...string) map[string]string {
	e.t.Helper()
	changed, removed := e.changes()
	if got := slices.Sorted(maps.Keys(changed)); !slices.Equal(got, names) || len(removed) > 0 {
		e.t.Errorf("changed %q, removed %q, want %q changed", got, removed, names)
	}
	return changed
}

func meshState(instances ...platform.Instance) platform.State {
	return platform.State{Functions: []platform.Function{inMesh(video()), inMesh(thumbs())}, Instances: instances}
}

// A node hears all once, and then what changes.
func TestMeshUpdatesReachTheNodes(t *testing.T) {
	m, conn := dialMesh(t)
	e := connect(t, conn)
	e.subscribe("*") // before anything is known
	updateMesh(t, m, meshState())
	before := e.wantChanged("default/thumbs:80", "default/video:80")
	updateMesh(t, m, meshState()) // nothing new: the next response is of what follows
	updateMesh(t, m, meshState(ready(video(), "a", "10.0.0.1:80")))
	e.wantChanged("default/video:80")
	updateMesh(
		t, m,
		meshState(ready(video(), "a", "10.0.0.1:80"), ready(video(), "b", ""), ready(thumbs(), "c", "10.0.0.2:80")),
	)
	e.wantChanged("default/thumbs:80")
	updateMesh(t, m, platform.State{Functions: []platform.Function{inMesh(video())}})
	changed, removed := e.changes()
	if !slices.Equal(removed, []string{"default/thumbs:80"}) || len(changed) != 1 || changed["default/video:80"] != before["default/video:80"] {
		t.Errorf("changed %v, removed %q", changed, removed)
	}
	// A node that has it all already, from a control plane before this one.
	e.close()
	e = connect(t, conn)
	e.send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"},
		InitialResourceVersions: changed,
	})
	e.wantChanged()
}

// A control plane that knows nothing yet takes nothing away.
func TestMeshSaysNothingBeforeTheFirstState(t *testing.T) {
	m, conn := dialMesh(t)
	e := connect(t, conn)
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType,
		ResourceNamesSubscribe:  []string{"*"},
		InitialResourceVersions: map[string]string{"default/video:80": "of before"}})
	updateMesh(t, m, platform.State{Functions: []platform.Function{inMesh(video())}})
	e.wantChanged("default/video:80")
}

func TestMeshNamesAreLimited(t *testing.T) {
	m, conn := dialMesh(t)
	updateMesh(t, m, meshState())
	e := connect(t, conn)
	names := make([]string, maxNames/2)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	for range 3 {
		e.send(&discovery.DeltaDiscoveryRequest{
			Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names,
		})
	}
	if got := e.refused(); got != codes.ResourceExhausted {
		t.Errorf("%v", got)
	}
}

// A node that names what it wants hears of nothing else.
func TestMeshNamedSubscriptions(t *testing.T) {
	m, conn := dialMesh(t)
	updateMesh(t, m, meshState())
	e := connect(t, conn)
	e.subscribe("default/video:80", "default/unknown:80")
	e.wantChanged("default/video:80")
	updateMesh(t, m, meshState(ready(video(), "a", "10.0.0.1:80"), ready(thumbs(), "b", "10.0.0.2:80")))
	e.wantChanged("default/video:80")
	e.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"default/thumbs:80"},
		ResourceNamesUnsubscribe: []string{"default/video:80"},
	})
	e.wantChanged("default/thumbs:80")
	updateMesh(t, m, meshState())
	e.wantChanged("default/thumbs:80")
}

func TestMeshRefusesStrangers(t *testing.T) {
	node := func(id string) *core.Node { return &core.Node{Id: id} }
	for name, c := range map[string]struct {
		requests []*discovery.DeltaDiscoveryRequest
		want     codes.Code
	}{
		"another node": {[]*discovery.DeltaDiscoveryRequest{{Node: node("cloud"), TypeUrl: resource.EndpointType}}, codes.PermissionDenied},
		"no node":      {[]*discovery.DeltaDiscoveryRequest{{TypeUrl: resource.EndpointType}}, codes.InvalidArgument},
		"another type": {[]*discovery.DeltaDiscoveryRequest{{Node: node("edge"), TypeUrl: resource.ClusterType}}, codes.InvalidArgument},
		"a node that changes": {[]*discovery.DeltaDiscoveryRequest{
			{Node: node("edge"), TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"x"}},
			{Node: node("cloud"), TypeUrl: resource.EndpointType},
		}, codes.PermissionDenied},
		"a node that vanishes": {[]*discovery.DeltaDiscoveryRequest{
			{Node: node("edge"), TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"x"}},
			{Node: node(""), TypeUrl: resource.EndpointType},
		}, codes.PermissionDenied},
	} {
		m, conn := dialMesh(t)
		updateMesh(t, m, meshState())
		e := connect(t, conn)
		for _, r := range c.requests {
			e.send(r)
		}
		if got := e.refused(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// follow has a node hear of everything.
func follow(t *testing.T, conn *grpc.ClientConn, node string) *envoy {
	t.Helper()
	e := connect(t, conn)
	e.send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: node}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"},
	})
	return e
}

// twoReady has video at two addresses.
func twoReady() platform.State {
	return meshState(ready(video(), "a", "10.0.0.1:80"), ready(video(), "b", "10.0.0.2:80"))
}

func videoWeights(weights map[string][]uint32) routing.Weights {
	rows := map[string]routing.Row{}
	for node, w := range weights {
		rows[node] = routing.Row{Weights: w}
	}
	return routing.Weights{video().Name: {Endpoints: addressesOf("10.0.0.1", "10.0.0.2"), Rows: rows}}
}

func updateWeights(t *testing.T, m *Server, st platform.State, rows map[string][]uint32) {
	t.Helper()
	if err := m.Update(st, videoWeights(rows)); err != nil {
		t.Fatal(err)
	}
}

// Each node hears of its own row, and of it only if it is another one: Envoy builds a
// cluster anew for what it is sent.
func TestMeshWeightsReachTheirNode(t *testing.T) {
	m, conn := dialMesh(t, "cloud", "lab")
	updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {9, 1}, "cloud": {1, 9}})
	edge, cloud, lab := follow(t, conn, "edge"), follow(t, conn, "cloud"), follow(t, conn, "lab")
	const v = "default/video:80"
	both := []string{"default/thumbs:80", v}
	e, c, l := edge.wantChanged(both...), cloud.wantChanged(both...), lab.wantChanged(both...)
	if e[v] == c[v] || e[v] == l[v] {
		t.Errorf("different rows are the same version: %s, %s, %s", e[v], c[v], l[v])
	}
	updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {9, 1}, "cloud": {1, 9}}) // the same, made anew
	updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {9, 1}, "cloud": {2, 8}})
	cloud.wantChanged(v)
	// which is evenly as before
	updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {1, 9}, "cloud": {2, 8}, "lab": {3, 3}})
	if got := edge.wantChanged(v); got[v] != c[v] {
		t.Errorf("the row that cloud had is version %s for edge, and was %s", got[v], c[v])
	}
	updateMesh(t, m, meshState()) // the next that cloud and lab hear of
	for _, node := range []*envoy{edge, cloud, lab} {
		node.wantChanged(v)
	}
}

// What changes while a node is busy with what came before, it is told afterwards: the
// newest, once.
func TestMeshNodesThatAreSlow(t *testing.T) {
	m, conn := dialMesh(t)
	updateMesh(t, m, meshState())
	e := follow(t, conn, "edge")
	r, err := e.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for i := range maxChanges + 10 { // more than are remembered
		updateMesh(t, m, meshState(ready(video(), "a", fmt.Sprintf("10.0.%d.%d:80", i/250, 1+i%250))))
	}
	updateMesh(t, m, platform.State{Functions: []platform.Function{inMesh(video())}})
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	changed, removed := e.changes()
	if !slices.Equal(removed, []string{"default/thumbs:80"}) || len(changed) != 0 { // video is as it was
		t.Errorf("changed %v, removed %q", changed, removed)
	}
}

// Another control plane that knows the same calls it the same.
func TestMeshVersionsAreTheContents(t *testing.T) {
	versions := func(before ...platform.State) map[string]string {
		m, conn := dialMesh(t)
		for _, st := range before {
			updateMesh(t, m, st)
		}
		updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {9, 1}})
		return follow(t, conn, "edge").wantChanged("default/thumbs:80", "default/video:80")
	}
	if a, b := versions(), versions(meshState(), twoReady()); !maps.Equal(a, b) {
		t.Errorf("%v and %v", a, b)
	}
}

func TestMeshProblems(t *testing.T) {
	m, conn := dialMesh(t, "cloud", "lab")
	updateWeights(t, m, twoReady(), map[string][]uint32{"edge": {9, 1}, "cloud": {0, 0}})
	edge, cloud, lab := follow(t, conn, "edge"), follow(t, conn, "cloud"), follow(t, conn, "lab")
	for _, node := range []*envoy{edge, cloud, lab} {
		node.changes()
	}
	const evenly = "; its requests are spread evenly"
	want := []routing.Problem{
		{
			Function: "default/video", Gateways: []string{"cloud"},
			Message: "all weights of ready endpoints are 0; requests are spread evenly",
		},
		{Function: "default/video", Gateways: []string{"lab"}, Message: "no weights for this gateway" + evenly},
	}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A refusal stays until the node takes something.
	updateMesh(t, m, meshState())
	r, err := edge.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	edge.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no room"},
	})
	updateMesh(t, m, twoReady())
	r, err = edge.stream.Recv() // the server has read what was sent before
	if err != nil {
		t.Fatal(err)
	}
	want = []routing.Problem{{
		Gateways: []string{"edge"}, Message: "refused its endpoints, and keeps those that it has: no room",
	}}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("after a refusal (-want +got):\n%s", diff)
	}
	edge.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	updateMesh(t, m, meshState())
	edge.changes()
	if got := m.Problems(); len(got) > 0 {
		t.Errorf("after it took one: %v", got)
	}
}

// reckon has a node hear what its gateways' filter is to reckon with.
func reckon(t *testing.T, conn *grpc.ClientConn, node string) *envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := extension.NewExtensionConfigDiscoveryServiceClient(conn).DeltaExtensionConfigs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e := &envoy{t, stream, cancel}
	e.send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: node}, TypeUrl: resource.ExtensionConfigType, ResourceNamesSubscribe: []string{"*"},
	})
	return e
}

// lines receives the next response and acknowledges it: each line by its name, and what is
// removed.
func (e *envoy) lines() (lines map[string]string, removed []string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	lines = map[string]string{}
	for _, res := range r.GetResources() {
		var c core.TypedExtensionConfig
		var line wrapperspb.StringValue
		if err := errors.Join(res.GetResource().UnmarshalTo(&c), c.GetTypedConfig().UnmarshalTo(&line)); err != nil {
			e.t.Fatal(err)
		}
		if c.GetName() != res.GetName() {
			e.t.Errorf("%q is named %q inside", res.GetName(), c.GetName())
		}
		lines[res.GetName()] = line.GetValue()
	}
	return lines, r.GetRemovedResources()
}

func (e *envoy) wantLines(want map[string]string, wantRemoved ...string) {
	e.t.Helper()
	lines, removed := e.lines()
	if diff := cmp.Diff(want, lines); diff != "" || !slices.Equal(removed, wantRemoved) {
		e.t.Errorf("removed %q, want %q; lines (-want +got):\n%s", removed, wantRemoved, diff)
	}
}

// thumbsAt is thumbs at two addresses, with a row for each of the nodes.
func thumbsAt(rows map[string]routing.Row) (platform.State, routing.Weights) {
	st := meshState(
		ready(thumbs(), "a", "10.0.0.1:80"), ready(thumbs(), "b", "10.0.0.2:80"), ready(video(), "c", "10.0.0.1:80"),
		ready(video(), "d", "10.0.0.2:80"),
	)
	m := &routing.Matrix{Endpoints: addressesOf("10.0.0.1", "10.0.0.2"), Rows: rows}
	return st, routing.Weights{thumbs().Name: m, video().Name: m}
}

// Each node hears what its own gateways are to expect, by the name that they have for the
// cluster. Nobody picks an endpoint for requests with an input.
func TestMeshExpectationsReachTheirNode(t *testing.T) {
	m, conn := dialMesh(t, "cloud")
	near, far := filterapi.Expected{RTT: 200 * time.Microsecond, Service: 4 * time.Millisecond, Workers: 2, Others: 0.5}, filterapi.Expected{RTT: 50 * time.Millisecond}
	rows := func(edge ...filterapi.Expected) map[string]routing.Row {
		return map[string]routing.Row{
			"edge": {Weights: []uint32{900, 0}, Expected: edge}, "cloud": {Weights: []uint32{1, 2}},
		}
	}
	st, w := thumbsAt(rows(near, far))
	edge, cloud, endpoints := reckon(t, conn, "edge"), reckon(t, conn, "cloud"), follow(t, conn, "edge")
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	const name, cluster = "default/thumbs:80", "outbound|80||default.thumbs.svc.cluster.local"
	edge.wantLines(map[string]string{name: cluster + " 10.0.0.1:80,900,200,4000,2,500 10.0.0.2:80,0,50000,0,0,0"})
	cloud.wantLines(map[string]string{})
	endpoints.wantChanged("default/thumbs:80", "default/video:80")

	_, w = thumbsAt(rows(far, near))
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	edge.wantLines(map[string]string{name: cluster + " 10.0.0.1:80,900,50000,0,0,0 10.0.0.2:80,0,200,4000,2,500"})
	// One place: nothing to pick from.
	st.Instances = slices.DeleteFunc(st.Instances, func(i platform.Instance) bool { return i.ID == "b" })
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	edge.wantLines(map[string]string{}, name)
	endpoints.wantChanged("default/thumbs:80") // and had heard of no expectation

	if got := reckon(t, conn, "nobody").refused(); got != codes.PermissionDenied {
		t.Errorf("another node: %v", got)
	}
}

// What of the expectations cannot be used, and what a node refuses, shows.
func TestMeshExpectationProblems(t *testing.T) {
	m, conn := dialMesh(t)
	st, w := thumbsAt(map[string]routing.Row{
		"edge": {Weights: []uint32{900, 1}, Expected: make([]filterapi.Expected, 1)},
	})
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	e := reckon(t, conn, "edge")
	e.wantLines(map[string]string{})
	want := []routing.Problem{{
		Function: "default/thumbs", Gateways: []string{"edge"},
		Message: "1 expectations for 2 endpoints; weights alone say where requests go",
	}}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	w[thumbs().Name] = &routing.Matrix{
		Endpoints: addressesOf("10.0.0.1", "10.0.0.2"),
		Rows:      map[string]routing.Row{"edge": {Weights: []uint32{900, 1}, Expected: make([]filterapi.Expected, 2)}},
	}
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	r, err := e.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no room"},
	})
	updateMesh(t, m, meshState())
	if _, err = e.stream.Recv(); err != nil { // the server has read what was sent before
		t.Fatal(err)
	}
	want = []routing.Problem{{
		Gateways: []string{"edge"}, Message: "refused its expectations, and keeps those that it has: no room",
	}}
	if diff := cmp.Diff(want, m.Problems()); diff != "" {
		t.Errorf("after a refusal (-want +got):\n%s", diff)
	}
}

// An endpoint that no header can name stays, and weights rule.
func TestMeshEndpointsThatNoFilterCanPick(t *testing.T) {
	m, conn := dialMesh(t)
	const zoned = "[fe80::1%eth0]:80"
	st := meshState(ready(thumbs(), "a", "10.0.0.1:80"), ready(thumbs(), "b", zoned))
	w := routing.Weights{thumbs().Name: {Endpoints: append(addressesOf("10.0.0.1"), netip.MustParseAddrPort(zoned)),
		Rows: map[string]routing.Row{"edge": {Weights: []uint32{900, 1}, Expected: make([]filterapi.Expected, 2)}}}}
	if err := m.Update(st, w); err != nil {
		t.Fatal(err)
	}
	reckon(t, conn, "edge").wantLines(map[string]string{})
	follow(t, conn, "edge").wantChanged("default/thumbs:80", "default/video:80")
	if got := m.Problems(); len(got) != 1 || !strings.Contains(
		got[0].Message, "is not an address of an endpoint; weights alone say where requests go",
	) {
		t.Errorf("problems %+v", got)
	}
}
