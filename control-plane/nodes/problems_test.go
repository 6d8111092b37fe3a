package nodes_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A node that has two daemons for longer than an update takes is told of: they may be two nodes
// with one name. Those of an embedded platform say that they are alone.
func TestTwoNodesWithOneName(t *testing.T) {
	for name, processes := range map[string][2]string{"on Kubernetes": {"a", "b"}, "embedded": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cp := serve(t)
				cp.lasts = time.Hour
				one := cp.connectAs(t, "edge", &nodeapi.Register{Version: "v1", Process: processes[0], PeerAddress: "10.0.0.1:7443"})
				one.wantFunctions()
				time.Sleep(30 * time.Second)
				began := time.Now()
				other := cp.connectAs(t, "edge", &nodeapi.Register{Version: "v2", Process: processes[1], PeerAddress: "10.0.0.2:7443"})
				other.wantFunctions()
				time.Sleep(time.Minute)
				if got := cp.Twins(time.Now()); len(got) > 0 {
					t.Errorf("while it may be an update: %v", got)
				}
				time.Sleep(2 * time.Minute)
				want := map[string]nodes.Twins{"edge": {Since: began, Daemons: []nodes.Daemon{
					{Address: "10.0.0.1:7443", Process: "a", Version: "v1"}, {Address: "10.0.0.2:7443", Process: "b", Version: "v2"}}}}
				if processes[0] == "" {
					of := want["edge"].Daemons
					of[0].Process, of[1].Process = of[0].Address, of[1].Address
				}
				if d := cmp.Diff(want, cp.Twins(time.Now())); d != "" {
					t.Error(d)
				}
				one.end()
				synctest.Wait()
				if got := cp.Twins(time.Now()); len(got) > 0 {
					t.Errorf("when one has gone: %v", got)
				}
				other.end()
			})
		})
	}
}

// A daemon that comes back from where it was takes its own place.
func TestADaemonThatComesBackIsNoTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cp := serve(t)
		cp.lasts = time.Hour
		first := cp.connectAs(t, "edge", &nodeapi.Register{PeerAddress: "10.0.0.1:7443"})
		first.wantFunctions()
		cp.connectAs(t, "edge", &nodeapi.Register{PeerAddress: "10.0.0.1:7443"}).wantFunctions()
		if err := first.receiveEnd(); err == nil {
			t.Error("the stream of before goes on")
		}
		time.Sleep(4 * time.Minute)
		if got := cp.Twins(time.Now()); len(got) > 0 {
			t.Error(got)
		}
	})
}

// What gateways refuse is told while it holds, with as much of a node's words as fits a screen.
func TestRefusalsOfGateways(t *testing.T) {
	cp := serve(t)
	edge, cloud := cp.connect(t, "edge", "v1"), cp.connect(t, "cloud", "v1")
	tell := func(n *node, m *nodeapi.GatewayRefusals) {
		t.Helper()
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_GatewayRefusals{GatewayRefusals: m}})
		n.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{InFlight: map[string]int32{"told": 1}}}})
	}
	heard := func(node string) { t.Helper(); cp.handler.await(t, node+": load map[told:1]") }
	fire := &nodeapi.GatewayRefusal{TypeUrl: resource.EndpointType, Resources: []string{"city/fire:80"}, Words: "malformed IP address"}
	filter := &nodeapi.GatewayRefusal{TypeUrl: resource.ExtensionConfigType, Resources: []string{"headstart.filters"}}
	tell(cloud, &nodeapi.GatewayRefusals{Refusals: []*nodeapi.GatewayRefusal{fire}})
	heard("cloud")
	tell(edge, &nodeapi.GatewayRefusals{Refusals: []*nodeapi.GatewayRefusal{fire, filter, {Words: "\x1b[2J two\nlines" + strings.Repeat("x", 10_000)}}, More: 7})
	heard("edge")
	want := []routing.Problem{
		{
			Gateways: []string{"edge"},
			Message:  "a gateway there has a problem: \ufffd[2J two lines" + strings.Repeat("x", 512-14),
		},
		{Gateways: []string{"edge"}, Message: "a gateway there refused TypedExtensionConfig headstart.filters, and keeps what it has: without a reason"},
		{Gateways: []string{"edge"}, Message: "gateways there refused 7 more: the log of headstart-node says what"},
		{Function: "city/fire", Gateways: []string{"cloud", "edge"}, Message: "a gateway there refused ClusterLoadAssignment city/fire:80, and keeps what it has: malformed IP address"},
	}
	if d := cmp.Diff(want, cp.Refusals()); d != "" {
		t.Error(d)
	}
	var many []*nodeapi.GatewayRefusal
	for i := range 1000 {
		many = append(many, &nodeapi.GatewayRefusal{Words: strings.Repeat("x", i)})
	}
	edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_GatewayRefusals{GatewayRefusals: &nodeapi.GatewayRefusals{Refusals: many}}})
	edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: "Many"}}})
	cp.handler.await(t, "edge: event Many")
	if got := len(cp.Refusals()); got != 21 {
		t.Errorf("%d problems", got)
	}
	tell(edge, &nodeapi.GatewayRefusals{})
	edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: "None"}}})
	cp.handler.await(t, "edge: event None")
	if got := cp.Refusals(); len(got) != 1 || !cmp.Equal(got[0].Gateways, []string{"cloud"}) {
		t.Errorf("when the edge's have taken all: %v", got)
	}
	cloud.end()
	cp.handler.await(t, "cloud left")
	if got := cp.Refusals(); len(got) > 0 {
		t.Errorf("when the daemon has gone: %v", got)
	}
}

// What nodes say of stores holds until they say something else, or are gone.
func TestStoreProblems(t *testing.T) {
	cp := serve(t)
	edge := cp.connect(t, "edge", "v1")
	tell := func(problems ...*nodeapi.StoreProblem) {
		t.Helper()
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_StoreProblems{StoreProblems: &nodeapi.StoreProblems{Problems: problems}}})
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: strconv.Itoa(len(problems))}}})
		cp.handler.await(t, "edge: event "+strconv.Itoa(len(problems)))
	}
	tell(&nodeapi.StoreProblem{Store: "videos", Message: "no\nsecret" + strings.Repeat("x", 10_000)})
	want := map[string][]nodes.StoreProblem{"edge": {{Store: "videos", Message: "no secret" + strings.Repeat("x", 512-9)}}}
	if d := cmp.Diff(want, cp.StoreProblems()); d != "" {
		t.Error(d)
	}
	tell(make([]*nodeapi.StoreProblem, 1000)...)
	if got := len(cp.StoreProblems()["edge"]); got != 20 {
		t.Errorf("%d problems", got)
	}
	tell()
	if got := cp.StoreProblems(); len(got) > 0 {
		t.Errorf("when all can be used: %v", got)
	}
	edge.end()
	cp.handler.await(t, "edge left")
}

// What nodes say of destinations likewise.
func TestDestinationProblems(t *testing.T) {
	cp := serve(t)
	edge := cp.connect(t, "edge", "v1")
	tell := func(problems ...*nodeapi.DestinationProblem) {
		t.Helper()
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_DestinationProblems{
			DestinationProblems: &nodeapi.DestinationProblems{Problems: problems}}})
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: strconv.Itoa(len(problems))}}})
		cp.handler.await(t, "edge: event "+strconv.Itoa(len(problems)))
	}
	tell(&nodeapi.DestinationProblem{Destination: "orders", Message: "no\nsecret" + strings.Repeat("x", 10_000)})
	want := map[string][]nodes.DestinationProblem{"edge": {{Destination: "orders", Message: "no secret" + strings.Repeat("x", 512-9)}}}
	if d := cmp.Diff(want, cp.DestinationProblems()); d != "" {
		t.Error(d)
	}
	tell(make([]*nodeapi.DestinationProblem, 1000)...)
	if got := len(cp.DestinationProblems()["edge"]); got != 20 {
		t.Errorf("%d problems", got)
	}
	tell()
	if got := cp.DestinationProblems(); len(got) > 0 {
		t.Errorf("when all can be reached: %v", got)
	}
	edge.end()
	cp.handler.await(t, "edge left")
}

// Whatever a node says of what it keeps, the control plane can add it up and show it.
func TestKeeps(t *testing.T) {
	cp := serve(t)
	edge := cp.connect(t, "edge", "v1")
	tell := func(said string, m *nodeapi.Keeps) *nodeapi.Keeps {
		t.Helper()
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Keeps{Keeps: m}})
		edge.send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: said}}})
		cp.handler.await(t, "edge: event "+said)
		return cp.Keeps()["edge"]
	}
	if got := cp.Keeps(); len(got) > 0 {
		t.Errorf("before the node says anything: %v", got)
	}
	got := tell("one", &nodeapi.Keeps{Room: math.MaxInt64, Bytes: -1, Limit: 5, Problems: []string{"no\nroom" + strings.Repeat("x", 10_000)},
		Volumes: []*nodeapi.KeptVolume{{Namespace: "media", Store: "default", Prefix: "s3://models/", Bytes: math.MaxInt64}, {Bytes: math.MinInt64}}})
	want := &nodeapi.Keeps{Room: 1 << 50, Limit: 5, Problems: []string{"no room" + strings.Repeat("x", 512-7)},
		Volumes: []*nodeapi.KeptVolume{{Namespace: "media", Store: "default", Prefix: "s3://models/", Bytes: 1 << 50}, {}}}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
	many := &nodeapi.Keeps{Problems: make([]string, 1000)}
	for range 5000 {
		many.Volumes = append(many.Volumes, &nodeapi.KeptVolume{})
	}
	if got := tell("many", many); len(got.GetVolumes()) != 1024 || len(got.GetProblems()) != 4 {
		t.Errorf("%d volumes, %d problems", len(got.GetVolumes()), len(got.GetProblems()))
	}
	edge.end()
	cp.handler.await(t, "edge left")
	if got := cp.Keeps(); len(got) > 0 {
		t.Errorf("when the node has left: %v", got)
	}
}
