package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

var jobDestinations = destinations.Destinations{{Name: "orders", Kind: "postgres"}, {Name: "sessions", Kind: "redis"}}

func TestConnections(t *testing.T) {
	got, err := policy.ParseTemplate(map[string]string{policy.KeyConnections: "orders,sessions"}, nil, jobDestinations)
	if err != nil {
		t.Fatal(err)
	}
	want := &nodeapi.Connections{Id: "id", Name: "shop/chat", Container: "app", Destinations: []string{"orders", "sessions"}, By: "socket",
		Kinds: map[string]string{"orders": "postgres", "sessions": "redis"}}
	if d := cmp.Diff(want, got.Connections.Message("id", "shop/chat", "app"), protocmp.Transform()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	got, err = policy.ParseJob(map[string]string{policy.KeyConnectionsBy: "descriptor"}, nil, nil)
	if err != nil || got.Connections.Message("id", "shop/chat", "") != nil {
		t.Errorf("without connections: %+v, %v", got, err)
	}
}

func TestMistakesWithConnections(t *testing.T) {
	for value, want := range map[string]string{
		"":                  `headstart.dev/connections: is not a list of destinations; write it like orders,sessions`,
		"orders, sessions":  `headstart.dev/connections: "orders, sessions" is not a list of destinations; write it like orders,sessions`,
		"orders,orders":     `headstart.dev/connections: "orders,orders" has a name twice; write each name once`,
		"a,b,c,d,e,f,g,h,i": `headstart.dev/connections: "a,b,c,d,e,f,g,h,i" has more than 8 names; leave out those that the first requests do not need`,
		"orders,order":      `headstart.dev/connections: "order" is not among the operator's destinations; use one of orders, sessions, or ask the operator to allow it`,
	} {
		if _, err := policy.ParseTemplate(map[string]string{policy.KeyConnections: value}, nil, jobDestinations); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", value, err, want)
		}
	}
	const alone = `headstart.dev/connections: "orders" is not among the operator's destinations; ask the operator to allow it`
	if _, err := policy.ParseJob(map[string]string{policy.KeyConnections: "orders"}, nil, nil); err == nil || err.Error() != alone {
		t.Error(err)
	}
	const by = `headstart.dev/connections-by: "fd" is not a way to get connections; use socket or descriptor or connect`
	if _, err := policy.ParseJob(map[string]string{policy.KeyConnectionsBy: "fd"}, nil, nil); err == nil || err.Error() != by {
		t.Error(err)
	}
	const ofPods = "headstart.dev/connections: is of pods; move it to spec.template.metadata.annotations"
	if _, err := policy.Parse(map[string]string{policy.KeyConnections: "orders"}, nil); err == nil || err.Error() != ofPods {
		t.Error(err)
	}
}
