//go:build integration

package connections

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/redistest"
)

// A workflow's runs use the Redis of a destination that is granted to its namespace, if connections with it may be the node's. They
// go on with it when the destination is changed, and when the server has ended their connections; not when it was taken away.
func TestAWorkflowsStore(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	at := func(name, kind, origin string, namespaces ...string) *nodeapi.Destination {
		return &nodeapi.Destination{Name: name, Kind: kind, Address: server.Address, Origin: origin, Namespaces: namespaces}
	}
	other := redistest.Start(t)
	r := newRig(t, at("shops", "redis", "node", "shop"), at("inside", "redis", "sandbox"), at("raw", "tcp", "node"))
	for name, workflow := range map[string]string{"shops": "bank/pay", "inside": "shop/buy", "raw": "shop/buy", "none": "shop/buy"} {
		if c, err := r.State(workflow, name); problem.ReasonOf(err) != problem.ReasonStateUnavailable || c != nil {
			t.Errorf("%s of %s: %v", name, workflow, err)
		}
	}
	ask := func() error {
		c, err := r.State("shop/buy", "shops")
		if err == nil {
			err = c.Ping(t.Context()).Err()
		}
		return err
	}
	if err := ask(); err == nil {
		t.Error("a log-in without a password is taken")
	}
	shops := at("shops", "redis", "node", "shop")
	shops.Address = other.Address
	r.Set([]*nodeapi.Destination{shops})
	before, err := r.State("shop/buy", "shops")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ask(); err != nil {
			t.Error(err)
		}
		other.Restart()
	}
	r.Set(nil)
	if err := ask(); problem.ReasonOf(err) != problem.ReasonStateUnavailable {
		t.Errorf("the destination is taken away: %v", err)
	}
	if err := before.Ping(t.Context()).Err(); err == nil {
		t.Error("a run goes on with a destination that was taken away")
	}
}
