package nodes_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/wiretest"
)

// What a newer daemon says is heard as far as it is known, and the rest is passed over.
func TestANewerDaemon(t *testing.T) {
	cp := serve(t)
	cp.handler.activate = func(_ context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
		cp.handler.hear("%s: activate %s", node, a.GetFunction())
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{Request: a.GetRequest(), Instance: "one"}}}
	}
	cp.SetFunctions(functions("default/fire"))
	n := cp.connectAs(t, "edge-1", wiretest.Newer(&nodeapi.Register{Version: "v9", Instances: []*nodeapi.InstanceStatus{{Id: "one", Phase: 99}}}))
	n.wantFunctions("default/fire")
	for _, m := range []*nodeapi.NodeMessage{
		{}, // of a kind that is not known
		{Kind: &nodeapi.NodeMessage_Instance{Instance: &nodeapi.InstanceStatus{Id: "one", Phase: 99}}},
		{Kind: &nodeapi.NodeMessage_Load{Load: &nodeapi.Load{InFlight: map[string]int32{"default/fire": 2}}}},
		{Kind: &nodeapi.NodeMessage_Event{Event: &nodeapi.Event{Reason: "SomethingNew"}}},
		{Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: "a", Function: "default/fire"}}},
	} {
		n.send(wiretest.Newer(m))
	}
	if b := n.receive().GetBound(); b.GetRequest() != "a" || b.GetInstance() != "one" {
		t.Errorf("bound %v", b)
	}
	want := []string{"edge-1 joined with v9", "edge-1: instance one", "edge-1: load map[default/fire:2]", "edge-1: event SomethingNew", "edge-1: activate default/fire"}
	if d := cmp.Diff(want, cp.handler.await(t, "edge-1: activate default/fire")); d != "" {
		t.Error(d)
	}
	// It is still there, and is told what all others are.
	cp.SetFunctions(functions())
	n.wantFunctions()
	n.end()
	cp.handler.await(t, "edge-1 left")
}
