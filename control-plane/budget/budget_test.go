package budget

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// table is a dealer of 10 connections to orders, with the daemons that tests ask for by their nodes.
type table struct {
	*dealer
	t     *testing.T
	now   time.Time
	ids   map[string]int64
	obeys map[string]int64
}

// newTable has waited until nobody can hold what another control plane has allowed.
func newTable(t *testing.T) *table {
	now := time.Unix(1_000, 0)
	d := &table{dealer: newDealer(map[string]int{"orders": 10}, now), t: t, now: now, ids: map[string]int64{}, obeys: map[string]int64{}}
	d.now = d.now.Add(expiry + margin)
	return d
}

func (d *table) says(node string, held, wanted int32) {
	d.ids[node]++
	d.Report(daemonID{node, "p"}, &nodeapi.Unused{Id: d.ids[node], Allowances: d.obeys[node],
		Destinations: []*nodeapi.UnusedConnections{{Destination: "orders", Held: held, Wanted: wanted}}}, d.now)
}

// deal returns the shares that are told, by node; each daemon obeys at once.
func (d *table) deal() map[string]int32 {
	d.t.Helper()
	shares := map[string]int32{}
	for _, told := range d.Deal(d.now) {
		m := told.Allowances
		if m.GetAnswers() != d.ids[told.To.Node] || m.GetExpiresIn().AsDuration() != expiry {
			d.t.Errorf("told %v", m)
		}
		d.obeys[told.To.Node] = m.GetId()
		shares[told.To.Node] = 0
		for _, a := range m.GetDestinations() {
			shares[told.To.Node] = a.GetUnused()
		}
	}
	return shares
}

func (d *table) want(what string, want map[string]int32) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.deal()); diff != "" {
		d.t.Errorf("%s: -want +got\n%s", what, diff)
	}
}

func TestAShareCountsUntilItsDaemonObeysLess(t *testing.T) {
	d := newTable(t)
	d.says("a", 0, 20)
	d.want("alone", map[string]int32{"a": 10})
	d.says("a", 10, 20)
	d.says("b", 0, 20)
	d.want("a second one comes", map[string]int32{"a": 5, "b": 0})
	d.want("nothing new", map[string]int32{})
	d.says("a", 7, 20)
	d.want("a has closed three", map[string]int32{"a": 5, "b": 3})
	d.says("a", 5, 20)
	d.want("a has closed all", map[string]int32{"a": 5, "b": 5})
	for range 3 {
		d.now = d.now.Add(expiry / 3)
		d.says("a", 4, 20)
		d.says("b", 5, 20)
		d.want("nothing changes", map[string]int32{"a": 5, "b": 5})
	}
}

func TestAShareCountsUntilItExpires(t *testing.T) {
	d := newTable(t)
	d.says("a", 0, 20)
	d.want("alone", map[string]int32{"a": 10})
	d.Left(daemonID{"a", "p"})
	d.says("b", 0, 1)
	d.want("a has gone", map[string]int32{"b": 0})
	d.now = d.now.Add(expiry + margin - time.Millisecond)
	d.want("not yet", map[string]int32{})
	d.now = d.now.Add(time.Millisecond)
	d.want("it has expired", map[string]int32{"b": 1})
	// A process that takes the place of another has nothing of its share.
	d.ids["b"], d.obeys["b"] = 0, 0
	d.says("b", 0, 10)
	d.want("b again", map[string]int32{"b": 9})
}

func TestEachGetsOneBeforeAnyGetsTwo(t *testing.T) {
	d := newTable(t)
	want := map[string]int32{}
	for _, node := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		d.says(node, 0, 3)
		want[node] = 1
	}
	d.says("k", 0, 3)
	want["k"] = 0
	d.want("eleven for ten", want)
}

// A control plane that takes over lets nodes keep what they have, and no more, until that of before has expired.
func TestAnotherControlPlaneKeeps(t *testing.T) {
	d := newTable(t)
	d.dealer = newDealer(d.budgets, d.now)
	d.says("a", 4, 9)
	d.says("b", 0, 9)
	for _, told := range d.Deal(d.now) {
		m := told.Allowances
		if held := map[string]int32{"a": 4}[told.To.Node]; !m.GetKeep() || len(m.GetDestinations()) > 1 || held > 0 && m.GetDestinations()[0].GetUnused() != held {
			t.Errorf("%s is told %v", told.To.Node, m)
		}
		d.obeys[told.To.Node] = m.GetId()
	}
	d.now = d.now.Add(expiry + margin)
	d.says("a", 4, 9)
	d.says("b", 0, 9)
	d.want("it knows", map[string]int32{"a": 5, "b": 5})
}

// Whatever a daemon says, it gets no more than its share, and what it says cannot be the ruin of others for longer than an expiry.
func TestAttackANodeLiesAboutItsConnections(t *testing.T) {
	d := newTable(t)
	d.says("b", 0, 20)
	d.want("alone", map[string]int32{"b": 10})
	d.says("a", 1<<30, 1<<30)
	d.says("b", 10, 20)
	d.want("another claims all", map[string]int32{"a": 0, "b": 5})
	d.obeys["a"] = 1 << 62
	d.says("a", -1<<30, -1<<30)
	d.Report(daemonID{"a", "p"}, &nodeapi.Unused{Id: -5, Allowances: -1, Destinations: []*nodeapi.UnusedConnections{
		{Destination: "payroll", Held: 7, Wanted: 7}, nil, {Destination: "orders", Wanted: 1}, {Destination: "orders", Wanted: 1 << 30},
	}}, d.now)
	d.says("b", 5, 20)
	told := d.Deal(d.now)
	if len(told) != 2 || len(told[0].Allowances.GetDestinations()) != 1 || told[0].Allowances.GetDestinations()[0].GetUnused() != 5 {
		t.Errorf("told %v", told)
	}
}

// What one deal costs with a thousand nodes that have all reported since the last one.
func BenchmarkDeal(b *testing.B) {
	d := newDealer(map[string]int{"a": 500, "b": 500, "c": 500, "d": 500, "e": 500, "f": 500, "g": 500, "h": 500}, time.Unix(0, 0))
	now := time.Unix(0, 0).Add(expiry + margin)
	obeys := map[string]int64{}
	for i := range b.N {
		now = now.Add(2 * time.Second)
		for n := range 1000 {
			node := strconv.Itoa(n)
			m := &nodeapi.Unused{Id: int64(i + 1), Allowances: obeys[node]}
			for name := range d.budgets {
				m.Destinations = append(m.Destinations, &nodeapi.UnusedConnections{Destination: name, Wanted: int32(n%5 + i%2)})
			}
			d.Report(daemonID{node, "p"}, m, now)
		}
		for _, told := range d.Deal(now) {
			obeys[told.To.Node] = told.Allowances.GetId()
		}
	}
}
