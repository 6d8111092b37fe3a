package pass_test

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/pass"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

// daemons are connected, and remember what they were told last and how often.
type daemons struct {
	of    map[string]*nodeapi.Register
	last  map[string]*nodeapi.Passes
	often map[string]int
}

func (d *daemons) Connected() map[string]*nodeapi.Register { return d.of }

func (d *daemons) Send(node string, m *nodeapi.ControlMessage) error {
	if d.of[node] == nil {
		return errors.New("away")
	}
	d.last[node] = m.GetPasses()
	d.often[node]++
	return nil
}

// A node is told its passes when they change and before they expire, and not otherwise. Daemons of a version before
// are told nothing.
func TestNodesHaveTheirPasses(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemons{of: map[string]*nodeapi.Register{"a": {Shares: true}, "b": {Shares: true}, "old": {}},
		last: map[string]*nodeapi.Passes{}, often: map[string]int{}}
	p := pass.NewTeller(d, key)
	now := time.Unix(1_700_000_000, 0)
	tenants := map[string][]string{"a": {"bank", "shop"}, "old": {"shop"}, "away": {"shop"}}
	p.Tell(tenants, now)
	for step, c := range []struct {
		do    func()
		often int
		has   []string
	}{
		{func() {}, 1, []string{"bank", "shop"}},
		{func() { p.Tell(tenants, now) }, 1, []string{"bank", "shop"}},
		{func() { now = now.Add(capability.PassRenewal); p.Tell(tenants, now) }, 2, []string{"bank", "shop"}},
		{func() { tenants = map[string][]string{"a": {"shop"}}; p.Tell(tenants, now) }, 3, []string{"shop"}},
		{func() { p.Joined("a"); p.Tell(tenants, now) }, 4, []string{"shop"}},
		{func() { tenants = nil; p.Tell(tenants, now) }, 5, nil},
		{func() { p.Tell(tenants, now.Add(time.Hour)) }, 5, nil},
	} {
		c.do()
		got := map[string]bool{}
		for _, one := range d.last["a"].GetPasses() {
			if err := (capability.Pass{Node: "a", Namespace: one.GetNamespace()}).Admits([]ed25519.PublicKey{public}, one.GetToken(), now); err != nil {
				t.Errorf("step %d: %v", step, err)
			}
			got[one.GetNamespace()] = true
		}
		if d.often["a"] != c.often || len(got) != len(c.has) {
			t.Errorf("step %d: told %d times, last %v", step, d.often["a"], got)
		}
	}
	if d.often["b"]+d.often["old"]+d.often["away"] > 0 {
		t.Errorf("others were told: %v", d.often)
	}
}

// A control plane that signs nothing gives no passes.
func TestWithoutAKeyThereAreNone(t *testing.T) {
	d := &daemons{of: map[string]*nodeapi.Register{"a": {Shares: true}}}
	pass.NewTeller(d, nil).Tell(map[string][]string{"a": {"shop"}}, time.Now())
	if d.last != nil {
		t.Error("it was told something")
	}
}

// Nodes that have come at once are not all given their next passes at once.
func TestRenewalsAreSpread(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemons{of: map[string]*nodeapi.Register{}, last: map[string]*nodeapi.Passes{}, often: map[string]int{}}
	tenants := map[string][]string{}
	for i := range 100 {
		node := fmt.Sprint("n", i)
		d.of[node], tenants[node] = &nodeapi.Register{Shares: true}, []string{"shop"}
	}
	p, now := pass.NewTeller(d, key), time.Unix(1_700_000_000, 0)
	p.Tell(tenants, now)
	p.Tell(tenants, now.Add(capability.PassRenewal/2))
	renewed := 0
	for _, often := range d.often {
		renewed += often - 1
	}
	if renewed == 0 || renewed == 100 {
		t.Errorf("%d of 100 are renewed after half the time", renewed)
	}
}
