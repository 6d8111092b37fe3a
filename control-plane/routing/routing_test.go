package routing_test

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	fire = "default/fire"
	ms   = time.Millisecond
	// total is what a row's weights sum to.
	total = 10_000
)

// world is what was measured: all that is not set is unknown.
type world struct {
	rtt     map[[2]string]time.Duration
	of      map[string]signals.Estimate // by node
	demand  map[string]float64          // by gateway
	overdue map[string]time.Duration    // by node
}

func (w *world) RTT(from, to string, _ time.Time) topology.Estimate {
	if rtt, known := w.rtt[[2]string{from, to}]; known {
		return topology.Estimate{RTT: rtt, Source: topology.Own, Age: time.Second, Error: 0.05}
	}
	if from == to {
		return topology.Estimate{Source: topology.Itself}
	}
	return topology.Estimate{Source: topology.Unknown}
}

func (w *world) Of(_, node string, _ time.Time) signals.Estimate { return w.of[node] }

func (w *world) Demand(gateway string, _ time.Time) (map[string]float64, bool) {
	rps, known := w.demand[gateway]
	return map[string]float64{fire: rps}, known
}

func (w *world) Overdue(node string, _ time.Time) (time.Duration, bool) {
	d, known := w.overdue[node]
	return d, known
}

var gateways = []string{"edge", "cloud-1", "cloud-2"}

// testbed is the paper's, with two workers at the edge and seven on each cloud node, and so
// many requests per second from the edge.
func testbed(edge float64) *world {
	w := &world{rtt: map[[2]string]time.Duration{}, of: map[string]signals.Estimate{}, demand: map[string]float64{"edge": edge, "cloud-1": 1000, "cloud-2": 1000}, overdue: map[string]time.Duration{}}
	for i, from := range gateways {
		w.overdue[from] = 0
		w.of[from] = honest(100, 7)
		for _, to := range gateways[i+1:] {
			rtt := 50 * ms
			if from != "edge" {
				rtt = ms
			}
			w.rtt[[2]string{from, to}], w.rtt[[2]string{to, from}] = rtt, rtt
		}
	}
	w.of["edge"] = honest(edge, 2)
	return w
}

func honest(rps, capacity float64) signals.Estimate {
	return signals.Estimate{RPS: rps, InFlight: rps * 0.004, SojournTime: 4 * ms, ServiceTime: 4 * ms, Capacity: capacity, Trust: 1}
}

// rig is a planner, and the time.
type rig struct {
	*routing.Planner
	*world
	registry *prometheus.Registry
	state    platform.State
	gateways []string
	now      time.Time
}

func newRig(w *world) *rig {
	r := &rig{world: w, registry: prometheus.NewRegistry(), gateways: gateways, now: time.Unix(1_000_000, 0)}
	r.Planner = routing.New(w, r.registry)
	r.state = platform.State{Functions: []platform.Function{{Name: fire}}}
	for i, node := range gateways {
		r.place(node, fmt.Sprintf("10.0.%d.1:8080", i))
	}
	return r
}

func (r *rig) place(node, address string) {
	r.state.Instances = append(slices.Clone(r.state.Instances), platform.Instance{ID: address, Function: fire,
		Node: node, Phase: platform.Ready,
		Address: netip.MustParseAddrPort(address)})
}

func (r *rig) plan() *routing.Matrix { return r.Plan(r.state, r.gateways, r.now)[fire] }

// pass is what is planned after so much time, looked at each second.
func (r *rig) pass(d time.Duration) (m *routing.Matrix) {
	for end := r.now.Add(d); r.now.Before(end); {
		r.now = r.now.Add(time.Second)
		m = r.plan()
	}
	return m
}

// share is which part of a gateway's requests go to the endpoints of a node.
func (r *rig) share(m *routing.Matrix, gateway, node string) float64 {
	var sum uint32
	for k, a := range m.Endpoints {
		for _, in := range r.state.Instances {
			if in.Node == node && in.Address == a {
				sum += m.Rows[gateway].Weights[k]
			}
		}
	}
	return float64(sum) / total
}

func (r *rig) explain(t *testing.T) routing.Explanation {
	t.Helper()
	e, ok := r.Explain(fire, r.now)
	if !ok {
		t.Fatal("the function is not known")
	}
	return e
}

// node is what is taken to be so of one.
func (r *rig) node(t *testing.T, name string) routing.Node {
	t.Helper()
	all := r.explain(t).Nodes
	i := slices.IndexFunc(all, func(n routing.Node) bool { return n.Name == name })
	if i < 0 {
		t.Fatalf("%s is not in %+v", name, all)
	}
	return all[i]
}

func (r *rig) problems(t *testing.T, want ...routing.Problem) {
	t.Helper()
	if d := cmp.Diff(want, r.Problems()); d != "" {
		t.Error(d)
	}
}

// While there is room all stays near, and the filter hears what to expect; above that the far
// nodes get what the near one has no room for.
func TestRequestsStayNearWhileThereIsRoom(t *testing.T) {
	r := newRig(testbed(200))
	m := r.pass(time.Minute)
	for _, gateway := range gateways {
		if got := r.share(m, gateway, gateway); gateway == "edge" && got != 1 {
			t.Errorf("%s sends itself %v", gateway, got)
		}
	}
	if got := r.share(m, "cloud-1", "edge"); got != 0 {
		t.Errorf("%v of the cloud's go to the edge", got)
	}
	want := []filterapi.Expected{
		{Service: 4 * ms, Workers: 2}, {RTT: 50 * ms, Service: 4 * ms, Workers: 7, Others: 4},
		{RTT: 50 * ms, Service: 4 * ms, Workers: 7, Others: 4},
	}
	got := m.Rows["edge"].Expected
	if others := got[1].Others + got[2].Others; math.Abs(others-8) > 1e-6 {
		t.Errorf("the cloud's own have %v in flight", others)
	}
	got[1].Others, got[2].Others = want[1].Others, want[2].Others
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	r.demand["edge"], r.of["edge"] = 1000, honest(480, 2)
	m = r.pass(2 * time.Minute)
	if got := r.share(m, "edge", "edge"); got > 0.6 || got < 0.3 {
		t.Errorf("with twice what it can do the edge keeps %v", got)
	}
	r.problems(t)
}

// What has not changed is the same pointer; a decision is due each interval, or when
// endpoints or gateways come and go.
func TestWhatHasNotChangedStays(t *testing.T) {
	r := newRig(testbed(200))
	before := r.pass(time.Minute)
	looked := r.rows(t)
	if m := r.pass(10 * time.Minute); m != before {
		t.Error("steady load has changed something")
	}
	if n := r.rows(t) - looked; n != 600/5*3 {
		t.Errorf("it was looked at %v rows in ten minutes", n)
	}
	edge := r.plan().Rows["edge"]
	r.gateways = append(slices.Clone(gateways), "new")
	m := r.plan()
	if d := cmp.Diff(edge.Weights, m.Rows["edge"].Weights); d != "" || m.Rows["new"].Weights == nil {
		t.Errorf("a new gateway has %v and changed another: %s", m.Rows["new"], d)
	}
	r.place("cloud-3", "10.0.3.1:8080")
	if m := r.plan(); len(m.Endpoints) != 4 || len(m.Rows["edge"].Weights) != 4 {
		t.Errorf("a new endpoint: %v", m)
	}
	before = r.plan()
	r.demand["edge"] = 2000
	if r.pass(time.Minute) == before {
		t.Error("load that lasts has changed nothing")
	}
}

// rows is how many were looked at so far.
func (r *rig) rows(t *testing.T) (n float64) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "headstart_weights_rows_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// A gateway goes on while its node's daemon restarts, and so do its weights.
func TestAGatewayWhoseDaemonIsAwayKeepsItsWeights(t *testing.T) {
	r := newRig(testbed(200))
	before := r.pass(time.Minute).Rows["edge"]
	r.gateways = gateways[1:]
	if d := cmp.Diff(before, r.pass(time.Minute).Rows["edge"]); d != "" {
		t.Error(d)
	}
	if m := r.pass(5 * time.Minute); len(m.Rows) != 2 {
		t.Errorf("six minutes later there are %v", m.Rows)
	}
	r.gateways = nil
	if m := r.pass(6 * time.Minute); m != nil || !strings.Contains(r.explain(t).Even, "no gateway") {
		t.Errorf("without gateways there are %v", m)
	}
}

// Endpoints of one node have what the node has, each a part.
func TestEndpointsOfANodeShareWhatItHas(t *testing.T) {
	r := newRig(testbed(200))
	r.place("edge", "10.0.0.2:8080")
	row := r.pass(time.Minute).Rows["edge"]
	if d := cmp.Diff([]uint32{total / 2, total / 2, 0, 0}, row.Weights); d != "" {
		t.Error(d)
	}
	if row.Expected[0].Workers != 1 || row.Expected[1].Workers != 1 || row.Expected[2].Workers != 7 {
		t.Errorf("workers %+v", row.Expected)
	}
	r.state.Instances = slices.DeleteFunc(slices.Clone(r.state.Instances), func(in platform.Instance) bool { return in.Node != "edge" })
	r.gateways = []string{"edge"}
	if row := r.plan().Rows["edge"]; row.Weights[0] != total/2 || row.Weights[1] != total/2 {
		t.Errorf("on the only node %v", row.Weights)
	}
	r.problems(t)
}

// The annotation decides. FaaSt's weights rule alone; evenly is no weights at all.
func TestPolicies(t *testing.T) {
	r := newRig(testbed(200))
	r.state.Functions[0].Policy.Routing = policy.RoutingInverse
	m := r.pass(time.Minute)
	sum := 1.0/4 + 2.0/54
	if got := r.share(m, "edge", "edge"); math.Abs(got-1.0/4/sum) > 1e-3 || m.Rows["edge"].Expected != nil {
		t.Errorf("inverse: %v, %v", got, m.Rows["edge"])
	}
	r.state.Functions[0].Policy.Routing = policy.RoutingEven
	if m := r.plan(); m != nil {
		t.Errorf("even: %v", m)
	}
	if e := r.explain(t); e.Policy != "even" || e.Even != "its annotation says so" {
		t.Errorf("even: %+v", e)
	}
	r.state.Functions[0].Policy.Routing = policy.RoutingBalanced
	if m := r.plan(); r.share(m, "edge", "edge") != 1 {
		t.Errorf("balanced: %v", m)
	}
}

// With one endpoint there is nothing to choose, and what another autoscaler relays is its own.
func TestNothingToChooseFrom(t *testing.T) {
	r := newRig(testbed(200))
	all := r.state.Instances
	r.state.Instances = all[:1]
	if m := r.plan(); m != nil || r.explain(t).Even != "it has less than two endpoints" {
		t.Errorf("one endpoint: %v", m)
	}
	r.state.Instances = nil
	for i, node := range gateways {
		r.state.Endpoints = append(r.state.Endpoints, platform.Endpoint{Function: fire, Address: all[i].Address, Node: node})
	}
	if m := r.plan(); m == nil {
		t.Error("an autoscaler's endpoints have no weights")
	}
	r.state.Endpoints = append(slices.Clone(r.state.Endpoints), platform.Endpoint{
		Function: fire, Address: netip.MustParseAddrPort("10.0.9.9:8012"), Relay: true,
	})
	if m := r.plan(); m != nil || !strings.Contains(r.explain(t).Even, "autoscaler") {
		t.Errorf("with a relay: %v", m)
	}
	r.state = platform.State{}
	if m := r.plan(); m != nil {
		t.Errorf("without the function: %v", m)
	}
	if _, ok := r.Explain(fire, r.now); ok {
		t.Error("it is explained")
	}
}

// Nobody knows how many requests a program works on that does not say. It is taken to be
// some; a node where requests wait has fewer, and one that is full and lets none wait more.
func TestWorkersAreGuessed(t *testing.T) {
	r := newRig(testbed(200))
	unknown := honest(200, 0)
	for _, name := range gateways {
		r.of[name] = unknown
	}
	r.pass(10 * time.Second)
	if n := r.node(t, "edge"); n.Workers != 16 || !n.Guessed {
		t.Errorf("at first %+v", n)
	}
	slow := unknown
	slow.RPS, slow.SojournTime = 500, 40*ms // two workers' worth
	r.of["edge"] = slow
	r.pass(10 * time.Second)
	if n := r.node(t, "edge"); n.Workers < 2 || n.Workers > 3 || !n.Guessed {
		t.Errorf("when requests wait %+v", n)
	}
	lost := r.node(t, "edge").Workers
	r.of["edge"] = unknown // a third of that
	r.pass(time.Minute)
	if n := r.node(t, "edge"); n.Workers != lost {
		t.Errorf("workers come back of themselves: %+v", n)
	}
	busy := unknown
	busy.RPS = 2000 // eight at a time, and none waits
	r.of["edge"] = busy
	r.pass(time.Minute)
	if n := r.node(t, "edge"); n.Workers < 10 || n.Workers > 24 {
		t.Errorf("when it does more than was thought %+v", n)
	}
}

// What a program has told stays when nobody hears of it for a while; others' word does not
// stand for it.
func TestCapacityStays(t *testing.T) {
	r := newRig(testbed(200))
	r.pass(10 * time.Second)
	r.of["edge"] = signals.Estimate{Capacity: 7, SojournTime: 4 * ms, ServiceTime: 4 * ms} // no word of its own is left
	r.pass(10 * time.Second)
	if n := r.node(t, "edge"); n.Workers != 2 || n.Guessed {
		t.Errorf("%+v", n)
	}
	r.of["edge"] = signals.Estimate{} // and none of others'
	r.pass(10 * time.Second)
	if n := r.node(t, "edge"); n.Workers != 2 || n.Guessed || n.Service != 0.004 || n.Sojourn != 0.004 {
		t.Errorf("%+v", n)
	}
	r.of["edge"] = signals.Estimate{Capacity: 7, SojournTime: 4 * ms, ServiceTime: 4 * ms}
	r.place("cloud-3", "10.0.3.1:8080")
	r.of["cloud-3"] = r.of["edge"]
	r.pass(10 * time.Second)
	if n := r.node(t, "cloud-3"); n.Workers != 7 || !n.Guessed {
		t.Errorf("a new node is not as the others: %+v", n)
	}
}

// A node that says that it has much room and is fast, and where requests wait nevertheless,
// does not draw them on itself.
func TestALyingNodeIsDoubted(t *testing.T) {
	r := newRig(testbed(200))
	r.demand["cloud-1"], r.demand["cloud-2"] = 100, 100
	r.pass(10 * time.Second)
	liar := honest(100, 1e6)
	liar.ServiceTime, liar.SojournTime = time.Microsecond, 300*ms // as gateways see it
	r.of["cloud-2"] = liar
	m := r.pass(2 * time.Minute)
	if n := r.node(t, "cloud-2"); !n.Doubted || !n.Guessed || n.Service != 0.3 || n.Workers > 16 {
		t.Errorf("%+v", n)
	}
	if got := r.share(m, "cloud-1", "cloud-2") + r.share(m, "edge", "cloud-2"); got > 0 {
		t.Errorf("it gets %v", got)
	}
	r.problems(t, routing.Problem{
		Function: fire, Gateways: []string{},
		Message: "requests waited on node cloud-2, which said that it had room; it is taken to do what it was seen to do",
	})
}

// One that is overloaded by its own word, too, tells the truth.
func TestAnOverloadedNodeIsBelieved(t *testing.T) {
	r := newRig(testbed(200))
	r.of["cloud-2"] = signals.Estimate{RPS: 1750, SojournTime: 400 * ms, ServiceTime: 4 * ms, Capacity: 7, Trust: 1}
	r.pass(10 * time.Second)
	if n := r.node(t, "cloud-2"); n.Doubted || n.Workers != 7 {
		t.Errorf("%+v", n)
	}
	r.problems(t)
}

// A doubted node is believed again when it has been seen to do what it says, and after an hour.
func TestADoubtedNodeEarnsItsWordBack(t *testing.T) {
	doubted := func(t *testing.T) *rig {
		r := newRig(testbed(200))
		hindered := honest(100, 7)
		hindered.Seen, hindered.SojournTime = 100, 100*ms
		r.of["cloud-2"] = hindered
		r.pass(10 * time.Second)
		if n := r.node(t, "cloud-2"); !n.Doubted {
			t.Fatalf("%+v", n)
		}
		return r
	}
	serves := func(rps float64) signals.Estimate {
		e := honest(rps, 7)
		e.Seen = rps
		return e
	}
	t.Run("by what it does", func(t *testing.T) {
		r := doubted(t)
		for _, c := range []struct {
			rps, least, most float64
			doubted          bool
		}{{100, 100, 200, true}, {300, 300, 800, true}, {700, 700, 1600, true}, {1500, 1750, 1750, false}} {
			r.of["cloud-2"] = serves(c.rps)
			r.pass(time.Minute)
			n := r.node(t, "cloud-2")
			if can := n.Workers / n.Service; can < c.least || can > 1.001*c.most || n.Doubted != c.doubted {
				t.Errorf("when it serves %v it is taken to manage %v: %+v", c.rps, can, n)
			}
		}
	})
	t.Run("by time", func(t *testing.T) {
		r := doubted(t)
		r.of["cloud-2"] = serves(10)
		r.pass(55 * time.Minute)
		if n := r.node(t, "cloud-2"); !n.Doubted {
			t.Errorf("%+v", n)
		}
		r.pass(10 * time.Minute)
		if n := r.node(t, "cloud-2"); n.Doubted || n.Workers != 7 {
			t.Errorf("%+v", n)
		}
	})
	t.Run("not by what it says", func(t *testing.T) {
		r := doubted(t)
		said := honest(1e5, 1e6)
		said.Seen = 100
		r.of["cloud-2"] = said
		r.pass(time.Minute)
		if n := r.node(t, "cloud-2"); !n.Doubted || n.Workers/n.Service > 200.001 {
			t.Errorf("%+v", n)
		}
	})
}

// How much an application fails on its own account changes nothing, and a node that fails more
// than the others gets no more for it.
func TestFailuresCountBesideOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		load := rapid.Float64Range(10, 2000).Draw(t, "load")
		part := rapid.Float64Range(0, 1).Draw(t, "part")
		some := rapid.SliceOfNDistinct(rapid.SampledFrom(gateways), 1, 2, rapid.ID).Draw(t, "nodes")
		// gets is how many requests per second each node does, after a while in which some fail.
		gets := func(failing []string) map[string]float64 {
			r := newRig(testbed(load))
			for _, node := range failing {
				e := r.of[node]
				e.EPS = part * e.RPS
				r.of[node] = e
			}
			m, all := r.pass(2*time.Minute), map[string]float64{}
			for _, node := range gateways {
				for _, gateway := range gateways {
					all[node] += r.demand[gateway] * r.share(m, gateway, node)
				}
			}
			return all
		}
		before := gets(nil)
		if d := cmp.Diff(before, gets(gateways)); d != "" {
			t.Errorf("when all fail %v: %s", part, d)
		}
		var was, is float64
		after := gets(some)
		for _, node := range some {
			was, is = was+before[node], is+after[node]
		}
		if is > was+0.01*(load+2000) {
			t.Errorf("%v get %v for failing, and %v before", some, is, was)
		}
	})
}

// A node that says nothing loses its share by and by, though what it said last is remembered;
// one whose daemon restarts does not, because it goes on answering.
func TestASilentNodeLosesItsShare(t *testing.T) {
	r := newRig(testbed(200))
	r.pass(10 * time.Second)
	delete(r.overdue, "edge")
	if m := r.pass(2 * time.Minute); r.share(m, "edge", "edge") != 1 {
		t.Errorf("a node that answers keeps %v", r.share(m, "edge", "edge"))
	}
	r.of["edge"] = signals.Estimate{Capacity: 7, ServiceTime: 4 * ms, SojournTime: 4 * ms}
	m := r.pass(2 * time.Minute)
	if got := r.share(m, "edge", "edge"); got > 0.05 {
		t.Errorf("a silent node keeps %v", got)
	}
	if n := r.node(t, "edge"); n.Silent < 100 {
		t.Errorf("%+v", n)
	}
	r.problems(t, routing.Problem{
		Function: fire, Gateways: []string{}, Message: "node edge says nothing; it gets few requests, if any",
	})
	r.overdue["edge"], r.of["edge"] = 0, honest(200, 2)
	if m := r.pass(time.Minute); r.share(m, "edge", "edge") != 1 {
		t.Errorf("when it is back it has %v", r.share(m, "edge", "edge"))
	}
	failing := honest(200, 2)
	failing.EPS = 150
	delete(r.overdue, "edge")
	r.of["edge"] = failing
	if m := r.pass(2 * time.Minute); r.share(m, "edge", "edge") > 0.05 {
		t.Errorf("a silent node that fails keeps %v", r.share(m, "edge", "edge"))
	}
}

// Of a gateway that nobody has found yet, what is on its own node is near, and all else as far.
func TestAGatewayOfUnknownLocality(t *testing.T) {
	r := newRig(testbed(200))
	clear(r.rtt)
	r.gateways = append(slices.Clone(gateways), "nowhere")
	m := r.pass(10 * time.Second)
	if got := r.share(m, "edge", "edge"); got != 1 {
		t.Errorf("its own node gets %v", got)
	}
	if got := r.share(m, "nowhere", "cloud-1"); got < 0.1 {
		t.Errorf("one of two that are alike gets %v", got)
	}
	r.problems(t, routing.Problem{
		Function: fire, Gateways: []string{"cloud-1", "cloud-2", "edge", "nowhere"},
		Message: "nobody knows how far other nodes are; all are taken to be as far",
	})
	for _, g := range r.explain(t).Gateways {
		for _, to := range g.To {
			if g.Name != to.Node && to.Source != topology.Unknown {
				t.Errorf("%s to %s: %+v", g.Name, to.Node, to)
			}
		}
	}
}

// A control plane that has just begun knows when it may speak.
func TestKnown(t *testing.T) {
	r := newRig(testbed(200))
	if !r.Known(r.state, gateways, r.now) {
		t.Error("all is measured, and not known")
	}
	if r.Known(r.state, nil, r.now) || r.Known(r.state, append(slices.Clone(gateways), "nowhere"), r.now) {
		t.Error("it is known what nobody has measured")
	}
	one := r.state
	one.Instances = one.Instances[:1]
	if !r.Known(one, nil, r.now) {
		t.Error("there is nothing to be known of one endpoint")
	}
	even := r.state
	even.Functions = []platform.Function{{Name: fire, Policy: policy.Policy{Routing: policy.RoutingEven}}}
	if !r.Known(even, nil, r.now) {
		t.Error("even needs no knowledge")
	}
}

func TestExplain(t *testing.T) {
	r := newRig(testbed(200))
	r.pass(time.Minute)
	e := r.explain(t)
	if e.Policy != "balanced" || e.Even != "" || e.Decided < 0 || e.Decided > 5 || math.Abs(e.Latency-0.0045) > 0.0005 {
		t.Errorf("%+v", e)
	}
	edge := e.Gateways[slices.IndexFunc(e.Gateways, func(g routing.Gateway) bool { return g.Name == "edge" })]
	if edge.Requests != 200 || edge.Held < 50 || len(edge.To) != 3 {
		t.Errorf("%+v", edge)
	}
	for _, to := range edge.To {
		want := routing.To{Node: to.Node, RTT: 0.05, Source: topology.Own, RTTAge: 1, RTTError: 0.05, Others: to.Others, Share: to.Share, Wanted: to.Wanted}
		if to.Node == "edge" {
			want = routing.To{Node: "edge", Share: 1, Wanted: 1, Source: topology.Itself}
		}
		if d := cmp.Diff(want, to); d != "" {
			t.Error(d)
		}
	}
	if n := r.node(t, "edge"); !cmp.Equal(n, routing.Node{Name: "edge", Endpoints: []string{"10.0.0.1:8080"}, Requests: 200, InFlight: 0.8, Service: 0.004, Sojourn: 0.004, Workers: 2, Trust: 1}) {
		t.Errorf("%+v", n)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(testbed(200))
	r.demand["cloud-1"], r.demand["cloud-2"] = 0, 0
	r.plan()
	const want = `
# HELP headstart_weights_rows_total Rows of weights, one for a function and gateway, that were decided on, by what became of them.
# TYPE headstart_weights_rows_total counter
headstart_weights_rows_total{change="expectations"} 0
headstart_weights_rows_total{change="held"} 0
headstart_weights_rows_total{change="replaced"} 3
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(want), "headstart_weights_rows_total"); err != nil {
		t.Error(err)
	}
	r.pass(time.Minute)
	const shares = `
# HELP headstart_weights_share_ratio Part of the function's requests that the weights send to the node.
# TYPE headstart_weights_share_ratio gauge
headstart_weights_share_ratio{function="default/fire",node="cloud-1"} 0
headstart_weights_share_ratio{function="default/fire",node="cloud-2"} 0
headstart_weights_share_ratio{function="default/fire",node="edge"} 1
`
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(shares), "headstart_weights_share_ratio"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

var oddities = []float64{0, math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64, 1e-300, 1e12}

// Whatever is measured, each gateway has a row that Envoy takes, and a filter numbers.
func TestAnythingMayBeMeasured(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom(oddities), rapid.Float64Range(0, 1000))
	span := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "span")) })
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(testbed(200))
		r.state.Functions = []platform.Function{{Name: fire, Policy: policy.Policy{Routing: rapid.SampledFrom([]string{"balanced", "inverse", ""}).Draw(t, "policy")}}}
		for range rapid.IntRange(1, 4).Draw(t, "rounds") {
			for _, node := range gateways {
				r.of[node] = signals.Estimate{RPS: number.Draw(t, "rps"), EPS: number.Draw(t, "eps"), Seen: number.Draw(t, "seen"), InFlight: number.Draw(t, "in flight"), SojournTime: span.Draw(t, "sojourn"),
					ServiceTime: span.Draw(t, "service"), Capacity: number.Draw(t, "capacity"), Age: span.Draw(t, "age"), Trust: rapid.SampledFrom([]float64{0, 0.5, 1, math.NaN()}).Draw(t, "trust")}
				r.demand[node] = number.Draw(t, "demand")
				r.overdue[node] = span.Draw(t, "overdue")
				if rapid.Bool().Draw(t, "silent") {
					delete(r.overdue, node)
				}
				for _, to := range gateways {
					r.rtt[[2]string{node, to}] = span.Draw(t, "rtt")
				}
			}
			m := r.pass(20 * time.Second)
			for _, gateway := range gateways {
				row := m.Rows[gateway]
				var sum uint64
				for _, w := range row.Weights {
					sum += uint64(w)
				}
				if len(row.Weights) != len(m.Endpoints) || sum != total {
					t.Fatalf("%s has %v", gateway, row.Weights)
				}
				for _, e := range row.Expected {
					if e.RTT < 0 || e.Service <= 0 || e.Workers < 1 || !(e.Others >= 0) || math.IsInf(e.Others, 0) {
						t.Fatalf("%s expects %+v", gateway, e)
					}
				}
			}
			if e, ok := r.Explain(fire, r.now); !ok || len(e.Gateways) != 3 {
				t.Fatalf("%+v", e)
			}
		}
	})
}
