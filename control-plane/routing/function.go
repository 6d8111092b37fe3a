package routing

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/topology"
	"github.com/headstart-mesh/headstart/control-plane/weights"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// precision is the sum of a row's weights: a hundredth of a percent is no request to miss.
const precision = 10_000

// policies are the values of headstart.dev/routing that have weights. With others requests are
// spread evenly.
var policies = map[string]weights.Policy{
	policy.RoutingBalanced: weights.ByLatency,
	policy.RoutingInverse:  weights.ByInverse,
}

// function is what is decided of one.
type function struct {
	name, policy string
	loop         *weights.Loop // nil: evenly
	decided      time.Time

	// placed has the endpoints as they were then, addresses and nodes the same sorted.
	placed    placed
	addresses []netip.AddrPort
	nodes     []string
	gateways  []string
	replaced  map[string]time.Time // by gateway: when its shares were
	learnt    map[string]*learnt   // by node
	measured  []node               // as nodes
	lost      []string             // gateways of which nobody knows how far any other node is
	latency   float64              // expected of a request, in seconds
	matrix    *Matrix              // nil: evenly
}

func newFunction(name, by string) *function {
	f := &function{name: name, policy: by, replaced: map[string]time.Time{}, learnt: map[string]*learnt{}}
	if p, weighted := policies[by]; weighted {
		f.loop = weights.NewLoop(p)
	}
	return f
}

// moved tells whether other endpoints, or other gateways, are there than were decided on.
func (f *function) moved(at placed, gateways []string) bool {
	return f.decided.IsZero() || at.relayed != f.placed.relayed || !maps.Equal(at.nodeOf, f.placed.nodeOf) || !slices.Equal(gateways, f.gateways)
}

// decide looks at a function's weights; p.mu is held.
func (p *Planner) decide(f *function, at placed, sources []string, now time.Time) {
	if at.relayed != f.placed.relayed || !maps.Equal(at.nodeOf, f.placed.nodeOf) {
		f.move(at)
	}
	var passed time.Duration // nothing was counted before the first time
	if !f.decided.IsZero() {
		passed = now.Sub(f.decided)
	}
	f.decided, f.gateways = now, sources
	if f.loop == nil || !at.choice() || len(sources) == 0 {
		f.matrix, f.measured, f.lost = nil, nil, nil
		return
	}
	m := p.measure(f, passed, now)
	changes := f.loop.Decide(m)
	for i, c := range changes {
		p.metrics.rows.WithLabelValues(changeNames[c]).Inc()
		if c == weights.Replaced {
			f.replaced[sources[i]] = now
		}
	}
	maps.DeleteFunc(f.replaced, func(gateway string, _ time.Time) bool { return p.gateways[gateway].IsZero() })
	f.latency = f.expectedLatency(m.Function)
	f.publish(changes)
}

// move takes over where the endpoints are.
func (f *function) move(at placed) {
	f.placed = at
	f.addresses = slices.SortedFunc(maps.Keys(at.nodeOf), netip.AddrPort.Compare)
	f.nodes = at.nodes()
	f.matrix = nil
	maps.DeleteFunc(f.learnt, func(node string, _ *learnt) bool { return !slices.Contains(f.nodes, node) })
}

// count is how many endpoints each node has, by name.
func (f *function) count() map[string]int {
	n := make(map[string]int, len(f.nodes))
	for _, node := range f.placed.nodeOf {
		n[node]++
	}
	return n
}

// measure is what the loop is told; p.mu is held.
func (p *Planner) measure(f *function, passed time.Duration, now time.Time) weights.Measured {
	m := weights.Measured{Sources: f.gateways, Nodes: f.nodes, Passed: passed}
	count := f.count()
	f.measured = make([]node, len(f.nodes))
	for j, name := range f.nodes {
		e := p.measured.Of(f.name, name, now)
		c := f.learnt[name]
		if c == nil {
			c = &learnt{}
			f.learnt[name] = c
		}
		f.measured[j] = c.learn(e, count[name], passed)
		f.measured[j].Node.Age = p.silence(name, e, now)
	}
	f.compare()
	for _, n := range f.measured {
		m.Function.Nodes = append(m.Function.Nodes, n.Node)
	}
	f.lost = nil
	rtts := make([]float64, 0, len(f.gateways)*len(f.nodes))
	for _, gateway := range f.gateways {
		m.Function.Demand = append(m.Function.Demand, p.demandOf(f.name, gateway, now))
		away := p.distances.from(gateway, now)
		unknown, others := 0, 0
		for _, name := range f.nodes {
			rtt := math.NaN()
			e := away.to(name, now)
			if e.Source == topology.Unknown {
				unknown++
			} else {
				rtt = e.RTT.Seconds()
			}
			if e.Source != topology.Itself {
				others++
			}
			rtts = append(rtts, rtt)
		}
		if others > 0 && unknown == others {
			f.lost = append(f.lost, gateway)
		}
	}
	m.Function.RTT = func(i, j int) float64 { return rtts[i*len(f.nodes)+j] }
	return m
}

// expectedLatency is that of the requests as they are spread now.
func (f *function) expectedLatency(of weights.Function) float64 {
	shares := make(weights.Matrix, len(f.gateways))
	of.Demand = make([]float64, len(f.gateways))
	for i := range shares {
		shares[i], of.Demand[i] = f.loop.Shares(i), f.loop.Demand(i)
	}
	return weights.Latency(of, shares)
}

// publish makes the matrix anew if a row of it is another one.
func (f *function) publish(changes []weights.Change) {
	before := f.matrix
	if before != nil && len(before.Rows) == len(f.gateways) && !slices.ContainsFunc(changes, func(c weights.Change) bool { return c != weights.Held }) {
		return
	}
	f.matrix = &Matrix{Endpoints: f.addresses, Rows: make(map[string]Row, len(f.gateways))}
	index := make(map[string]int, len(f.nodes))
	for j, name := range f.nodes {
		index[name] = j
	}
	count := f.count()
	for i, gateway := range f.gateways {
		row := Row{}
		if before != nil && changes[i] != weights.Replaced {
			row = before.Rows[gateway]
		}
		if row.Weights == nil {
			row.Weights = f.weightsOf(i, index, count)
		}
		if policies[f.policy].PerRequest && (row.Expected == nil || changes[i] != weights.Held) {
			row.Expected = f.expected(i, index, count)
		}
		f.matrix.Rows[gateway] = row
	}
}

// weightsOf is gateway i's, of each endpoint; the endpoints of a node share what it has.
func (f *function) weightsOf(i int, index, count map[string]int) []uint32 {
	shares := f.loop.Shares(i)
	row := make([]float64, len(f.addresses))
	for k, a := range f.addresses {
		node := f.placed.nodeOf[a]
		row[k] = shares[index[node]] / float64(count[node])
	}
	return weights.Integers(row, precision)
}

// expected is what the filter of gateway i reckons with.
func (f *function) expected(i int, index, count map[string]int) []filterapi.Expected {
	of := f.loop.Expect(i)
	row := make([]filterapi.Expected, len(f.addresses))
	for k, a := range f.addresses {
		node := f.placed.nodeOf[a]
		row[k] = of[index[node]].Expected
		row[k].Workers /= float64(count[node])
		row[k].Others /= float64(count[node])
	}
	return row
}
