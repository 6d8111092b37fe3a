package trigger_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/trigger"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Two different nodes, whatever their order; and who comes or goes moves only what it gets
// or had.
func TestAssignmentsAreStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9.-]{1,20}`), 1, 50, rapid.ID).Draw(t, "nodes")
		function := rapid.String().Draw(t, "function")
		chosen := trigger.Assign(function, nodes)
		if len(chosen) != min(2, len(nodes)) || len(chosen) == 2 && chosen[0] == chosen[1] {
			t.Fatalf("chose %q", chosen)
		}
		if other := trigger.Assign(function, rapid.Permutation(nodes).Draw(t, "order")); !slices.Equal(chosen, other) {
			t.Errorf("chose %q and %q", chosen, other)
		}
		gone := rapid.SampledFrom(nodes).Draw(t, "gone")
		left := slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n == gone })
		after := trigger.Assign(function, left)
		for _, node := range chosen {
			if node != gone && !slices.Contains(after, node) {
				t.Errorf("%s left, and %s lost its stream: %q, then %q", gone, node, chosen, after)
			}
		}
		if !slices.Contains(chosen, gone) && !slices.Equal(chosen, after) {
			t.Errorf("%s left, which had nothing: %q, then %q", gone, chosen, after)
		}
	})
}

// No node has much more than its share.
func TestAssignmentsAreSpread(t *testing.T) {
	var nodes []string
	for i := range 10 {
		nodes = append(nodes, fmt.Sprint("node-", i))
	}
	share := map[string]int{}
	for i := range 1000 {
		for _, node := range trigger.Assign(fmt.Sprint("default/f", i), nodes) {
			share[node]++
		}
	}
	for _, node := range nodes {
		if n := share[node]; n < 150 || n > 250 {
			t.Errorf("%s has %d of 2000", node, n)
		}
	}
	if trigger.Assign("default/f", nil) == nil {
		t.Error("nobody is a list, too")
	}
}

// daemons are the nodes that are connected, and what they were told.
type daemons struct {
	connected map[string]*nodeapi.Register
	told      []string
	last      map[string]*nodeapi.Triggers
	away      string
}

func (d *daemons) Connected() map[string]*nodeapi.Register { return d.connected }

func (d *daemons) Send(node string, m *nodeapi.ControlMessage) error {
	if node == d.away {
		return errors.New("it went just now")
	}
	d.told = append(d.told, node)
	d.last[node] = m.GetTriggers()
	return nil
}

// heard returns who was told something since the last time.
func (d *daemons) heard() []string {
	slices.Sort(d.told)
	heard := d.told
	d.told = nil
	return heard
}

func join(names ...string) *daemons {
	d := &daemons{connected: map[string]*nodeapi.Register{}, last: map[string]*nodeapi.Triggers{}}
	for _, name := range names {
		d.connected[name] = &nodeapi.Register{Triggers: true}
	}
	return d
}

// begun is a teller to whom all nodes have come.
func begun(d *daemons) *trigger.Teller {
	t := trigger.NewTeller(d)
	t.Begin(nil)
	d.heard()
	return t
}

func triggered(name string) platform.Function {
	return platform.Function{Name: name, Policy: policy.Policy{Trigger: "redis://jobs/frames", TriggerStore: "queues", TriggerTries: 7, Input: "s3://videos/{header.ce-subject}",
		Named: map[string]string{"mask": "s3://masks/{header.ce-subject}"}}}
}

func TestOnlyThoseWhoConsumeAreTold(t *testing.T) {
	d := join("a", "b", "c", "d")
	d.connected["old"] = &nodeapi.Register{}
	teller := begun(d)
	fire := triggered("default/fire")
	deleting := triggered("default/gone")
	deleting.Deleting = true
	functions := []platform.Function{fire, deleting, {Name: "default/plain"}}
	able := []string{"a", "b", "c", "d"}
	teller.Tell(functions)
	want := trigger.Assign("default/fire", able)
	slices.Sort(want)
	if got := d.heard(); !slices.Equal(got, want) {
		t.Fatalf("%q were told, want %q", got, want)
	}
	message := &nodeapi.Triggers{Triggers: []*nodeapi.Trigger{{Function: "default/fire", Store: "queues", Stream: "redis://jobs/frames", Tries: 7,
		Input: "s3://videos/{header.ce-subject}", Inputs: map[string]string{"mask": "s3://masks/{header.ce-subject}"}}}}
	if diff := cmp.Diff(message, d.last[want[0]], protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	teller.Tell(functions)
	if got := d.heard(); len(got) != 0 {
		t.Errorf("%q were told the same again", got)
	}
	// One of the two leaves; a third one has it.
	delete(d.connected, want[0])
	teller.Tell(functions)
	able = slices.DeleteFunc(able, func(n string) bool { return n == want[0] })
	now := trigger.Assign("default/fire", able)
	third := slices.DeleteFunc(slices.Clone(now), func(n string) bool { return n == want[1] })
	if got := d.heard(); !slices.Equal(got, third) {
		t.Errorf("%q were told, want %q", got, third)
	}
	// It is back, with a new stream: it is told again, and the third one that it is not asked any more.
	d.connected[want[0]] = &nodeapi.Register{Triggers: true}
	teller.Joined(want[0])
	teller.Tell(functions)
	both := append(third, want[0])
	slices.Sort(both)
	if got := d.heard(); !slices.Equal(got, both) {
		t.Errorf("%q were told, want %q", got, both)
	}
	if len(d.last[third[0]].GetTriggers()) != 0 {
		t.Errorf("%s still consumes", third[0])
	}
	teller.Tell(nil)
	if got := d.heard(); !slices.Equal(got, want) || len(d.last[want[0]].GetTriggers())+len(d.last[want[1]].GetTriggers()) != 0 {
		t.Errorf("%q were told that there is nothing any more, want %q", got, want)
	}
}

// A node that was away while its streams were given to others is told so when it is back.
func TestANodeThatIsBackWithoutAStream(t *testing.T) {
	d := join("a")
	teller := begun(d)
	teller.Tell([]platform.Function{triggered("default/fire")})
	d.heard()
	teller.Joined("a")
	teller.Tell(nil)
	if got := d.heard(); !slices.Equal(got, []string{"a"}) || len(d.last["a"].GetTriggers()) != 0 {
		t.Errorf("%q were told; a consumes %v", got, d.last["a"])
	}
}

// A node that could not be told is told the next time.
func TestANodeThatGoesMeanwhile(t *testing.T) {
	d := join("a")
	d.away = "a"
	teller := begun(d)
	functions := []platform.Function{triggered("default/fire")}
	teller.Tell(functions)
	d.away = ""
	teller.Tell(functions)
	if got := d.heard(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q were told", got)
	}
}

// The nodes come back one by one to a control plane that was restarted. Those that consume go
// on, and nobody else is told to for a moment.
func TestARestartMovesNoStream(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	functions := []platform.Function{triggered("default/fire"), triggered("default/smoke"), triggered("default/flood")}
	d := join(names...)
	begun(d).Tell(functions)
	before := d.last
	d = join()
	restarted := trigger.NewTeller(d)
	for _, name := range names {
		d.connected[name] = &nodeapi.Register{Triggers: true}
		restarted.Joined(name)
		restarted.Tell(functions)
	}
	if got := d.heard(); len(got) != 0 {
		t.Errorf("%q were told before all were there", got)
	}
	restarted.Begin(functions)
	if got := d.heard(); !slices.Equal(got, names) {
		t.Errorf("%q were told, want each, and once", got)
	}
	if diff := cmp.Diff(before, d.last, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
