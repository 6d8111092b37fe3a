// Package routing decides how gateways spread each function's requests over its endpoints: it
// makes weights of what was measured, by the function's policy, and keeps those in use until
// others are worthwhile.
//
// It has neither clock nor sockets. A Planner is asked for the weights when the platform has
// changed and each Interval; who asks hands them to the gateways.
package routing

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/topology"
)

// Interval is how often weights are decided on anew: what is quicker is for the choice per
// request. The simulator has the same.
const Interval = 5 * time.Second

const (
	// rememberedFor is how long a gateway has weights whose daemon is not connected: it goes on
	// while that restarts, and would else send requests everywhere.
	rememberedFor = 5 * time.Minute
	// distancesFor is how long round trips are not asked for again, about: topology takes
	// microseconds for each, and a thousand nodes are a million ways, which do not change by
	// the second.
	distancesFor = 30 * time.Second
	// atOnce is how long deciding may take before what is due, and has not moved, waits for the
	// next time: who plans holds up who tells of endpoints.
	atOnce = 200 * time.Millisecond
)

// Measurements are what is known of nodes and gateways: a *survey.Survey.
type Measurements interface {
	// RTT is how far a node is from another.
	RTT(from, to string, now time.Time) topology.Estimate
	// Of is how busy a node is with a function.
	Of(function, node string, now time.Time) signals.Estimate
	// Demand is how many requests come by a gateway, per second, by function; known is false of
	// a gateway that says nothing.
	Demand(gateway string, now time.Time) (rps map[string]float64, known bool)
	// Overdue is for how long a node's next report has been due; known is false of one that
	// is not connected or has said nothing.
	Overdue(node string, now time.Time) (d time.Duration, known bool)
}

// Planner has the weights that are in use. Its methods may be called at the same time.
type Planner struct {
	measured Measurements
	metrics  *metrics

	mu        sync.Mutex
	functions map[string]*function
	gateways  map[string]time.Time // when each was last connected
	heard     map[string]time.Time // by node: until when it is known to be well
	distances distances
	// demand is what gateways say, by gateway and function, each asked once for a Plan.
	demand map[string]map[string]float64
}

// New registers the metrics, which docs/reference/metrics.md describes.
func New(measured Measurements, r prometheus.Registerer) *Planner {
	p := &Planner{measured: measured, metrics: newMetrics(), functions: map[string]*function{}, gateways: map[string]time.Time{}, heard: map[string]time.Time{},
		distances: distances{measured: measured, of: map[string]*distancesFrom{}}}
	r.MustRegister(p.metrics.rows, p.metrics.took, collector{p})
	return p
}

// Plan returns the weights for the gateways, which are the nodes that are connected. What has
// not changed is the same pointer as before. Functions that have come or moved are decided on,
// and of those of which it is an Interval since as many as there is time for, the oldest first.
func (p *Planner) Plan(st platform.State, gateways []string, now time.Time) Weights {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	sources := p.sources(gateways, now)
	p.demand = map[string]map[string]float64{}
	of := endpoints(st)
	next := make(map[string]*function, len(st.Functions))
	var due []*function
	for _, fn := range st.Functions {
		f := p.functions[fn.Name]
		if by := policyOf(fn); f == nil || f.policy != by {
			f = newFunction(fn.Name, by)
		}
		next[fn.Name] = f
		if f.moved(of[fn.Name], sources) {
			p.decide(f, of[fn.Name], sources, now)
		} else if now.Sub(f.decided) >= Interval {
			due = append(due, f)
		}
	}
	slices.SortFunc(due, func(a, b *function) int { return a.decided.Compare(b.decided) })
	for _, f := range due {
		if time.Since(began) < atOnce {
			p.decide(f, of[f.name], sources, now)
		}
	}
	p.functions = next
	p.forget()
	weights := Weights{}
	for name, f := range next {
		if f.matrix != nil {
			weights[name] = f.matrix
		}
	}
	p.metrics.took.Observe(time.Since(began).Seconds())
	return weights
}

// demandOf is how many requests of a function come by a gateway, per second, not a number if
// the gateway says nothing; p.mu is held.
func (p *Planner) demandOf(function, gateway string, now time.Time) float64 {
	of, asked := p.demand[gateway]
	if !asked {
		if rps, known := p.measured.Demand(gateway, now); known {
			of = rps
		}
		p.demand[gateway] = of
	}
	if of == nil {
		return math.NaN()
	}
	return of[function]
}

// Known tells whether it is known how far all endpoints are. A control plane that has just
// begun does well to wait for that before it speaks to gateways, as long as it has patience:
// they would send requests everywhere, where before they knew better.
func (p *Planner) Known(st platform.State, gateways []string, now time.Time) bool {
	nodes := map[string]bool{}
	of := endpoints(st)
	for _, fn := range st.Functions {
		if _, weighted := policies[policyOf(fn)]; weighted && of[fn.Name].choice() {
			for _, node := range of[fn.Name].nodes() {
				nodes[node] = true
			}
		}
	}
	if len(nodes) == 0 {
		return true
	}
	for _, gateway := range gateways {
		for node := range nodes {
			if p.measured.RTT(gateway, node, now).Source == topology.Unknown {
				return false
			}
		}
	}
	return len(gateways) > 0
}

func policyOf(f platform.Function) string {
	if f.Policy.Routing == "" {
		return policy.RoutingBalanced
	}
	return f.Policy.Routing
}

// sources are the gateways that are connected, and those that were lately; p.mu is held.
func (p *Planner) sources(gateways []string, now time.Time) []string {
	for _, name := range gateways {
		p.gateways[name] = now
	}
	maps.DeleteFunc(p.gateways, func(_ string, last time.Time) bool { return now.Sub(last) > rememberedFor })
	return slices.Sorted(maps.Keys(p.gateways))
}

// forget forgets nodes that have no endpoint any more, and gateways that are gone; p.mu is held.
func (p *Planner) forget() {
	used := map[string]bool{}
	for _, f := range p.functions {
		for _, node := range f.nodes {
			used[node] = true
		}
	}
	maps.DeleteFunc(p.heard, func(node string, _ time.Time) bool { return !used[node] })
	maps.DeleteFunc(p.distances.of, func(gateway string, _ *distancesFrom) bool { return p.gateways[gateway].IsZero() })
}

// placed are the endpoints of one function that take hot requests.
type placed struct {
	nodeOf map[netip.AddrPort]string // empty: unknown
	// relayed: another autoscaler takes the requests, and passes them on as it likes.
	relayed bool
}

// choice tells whether there is anything to choose from.
func (p placed) choice() bool { return len(p.nodeOf) > 1 && !p.relayed }

// nodes are those that have endpoints, sorted.
func (p placed) nodes() []string {
	names := slices.Collect(maps.Values(p.nodeOf))
	slices.Sort(names)
	return slices.Compact(names)
}

// endpoints are those that are ready, by function.
func endpoints(st platform.State) map[string]placed {
	of := map[string]placed{}
	for e := range st.Hot() {
		p := of[e.Function]
		if p.nodeOf == nil {
			p.nodeOf = map[netip.AddrPort]string{}
		}
		p.nodeOf[e.Address] = e.Node
		p.relayed = p.relayed || e.Relay
		of[e.Function] = p
	}
	return of
}
