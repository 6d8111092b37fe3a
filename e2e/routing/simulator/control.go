package simulator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/weights"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/route"
)

const (
	// smoothing is the time over which the control plane averages what is counted.
	smoothing = 30 * time.Second
	// samples is over how many requests at least it averages times of service: of a node that
	// gets few, the last ones alone would say nothing.
	samples = 256
	// enough is how many it has to have seen before it says anything of a node.
	enough = 16
	// rttError is the standard deviation of what the control plane takes for a round trip, as
	// part of it: coordinates are estimates.
	rttError = 0.05
	// precision is the sum of a row of weights.
	precision = 1000
)

// control is a control plane: it makes measurements of reports, and weights of measurements.
type control struct {
	e         *engine
	functions []controlled
	rtts      map[[2]int]float64 // between nodes, in seconds, as it takes them to be
	last      []heardReport
}

// controlled is what it knows of one function.
type controlled struct {
	index   int
	sources []int // rows
	row     map[int]int
	demand  []float64 // of each row, since the reports before
	nodes   []weights.Node
	// names of sources and nodes are their numbers.
	sourceNames, nodeNames []string
	// seen is how many requests each node has served, service how long these held a worker.
	seen    []int
	service []float64
	loop    *weights.Loop
	begun   bool // the loop has decided
	// counted says that there was a first measurement, and passed how long before the last
	// one the one before was, until the loop has taken it.
	counted bool
	passed  time.Duration
}

func newControl(e *engine) *control {
	c := &control{e: e, functions: make([]controlled, len(e.w.Functions)), rtts: map[[2]int]float64{}, last: make([]heardReport, len(e.w.Nodes))}
	for f := range c.functions {
		c.functions[f] = controlled{index: f, row: map[int]int{}, loop: weights.NewLoop(weights.ByLatency), nodes: make([]weights.Node, len(e.w.Functions[f].Nodes)),
			seen: make([]int, len(e.w.Functions[f].Nodes)), service: make([]float64, len(e.w.Functions[f].Nodes))}
		for j, n := range e.w.Functions[f].Nodes {
			c.functions[f].nodes[j].Workers = float64(e.w.Nodes[n].Workers)
			c.functions[f].nodeNames = append(c.functions[f].nodeNames, fmt.Sprint(n))
		}
	}
	for s, src := range e.w.Sources {
		f := &c.functions[src.Function]
		f.row[s] = len(f.sources)
		f.sources = append(f.sources, s)
		f.sourceNames = append(f.sourceNames, fmt.Sprint(s))
		f.demand = append(f.demand, 0)
	}
	return c
}

// controlOf is the run's, which is made when it is first asked for.
func controlOf(e *engine) *control {
	if e.state == nil {
		e.state = newControl(e)
	}
	return e.state.(*control)
}

// rtt is what the control plane takes the round trip of two nodes to be.
func (c *control) rtt(a, b int) float64 {
	key := [2]int{min(a, b), max(a, b)}
	rtt, ok := c.rtts[key]
	if !ok {
		r := rand.New(rand.NewPCG(c.e.w.Seed, uint64(key[0])<<32|uint64(key[1])))
		rtt = c.e.w.RTT(a, b).Seconds() * (1 + rttError*r.NormFloat64())
		c.rtts[key] = rtt
	}
	return rtt
}

// function is what a policy is asked about.
func (c *control) function(f *controlled) weights.Function {
	return weights.Function{Demand: f.demand, Nodes: f.nodes, RTT: func(i, j int) float64 {
		return c.rtt(c.e.w.Sources[f.sources[i]].Node, c.e.w.Functions[f.index].Nodes[j])
	}}
}

// measure takes in what nodes have reported since it was called last.
func (c *control) measure() {
	for f := range c.functions {
		fn := &c.functions[f]
		counts := make([]float64, len(fn.demand))
		var span float64
		for j, n := range c.e.w.Functions[f].Nodes {
			now, before := c.e.reported[n], c.last[n]
			fn.nodes[j].Age = c.e.now - now.at
			dt := (now.at - before.at).Seconds()
			if !now.heard || dt <= 0 {
				continue
			}
			span = max(span, dt)
			fn.measure(j, now, before, dt, func(row int, n float64) { counts[row] += n })
		}
		if span == 0 {
			continue
		}
		for row, n := range counts {
			fn.demand[row] = n / span
		}
		fn.counted, fn.passed = true, time.Duration(span*float64(time.Second))
	}
	copy(c.last, c.e.reported)
}

// measure takes in one node's report.
func (f *controlled) measure(j int, now, before heardReport, dt float64, came func(row int, n float64)) {
	mine := now.counts[f.index]
	var earlier count
	if before.heard {
		earlier = before.counts[f.index]
	}
	for row, s := range f.sources {
		n := mine.from[s]
		if earlier.from != nil {
			n -= earlier.from[s]
		}
		came(row, float64(n))
	}
	node := &f.nodes[j]
	if done := mine.done - earlier.done; done > 0 {
		f.seen[j] += done
		window := max(samples, float64(done)/dt*smoothing.Seconds())
		mean := (mine.service - earlier.service).Seconds() / float64(done)
		f.service[j] += (mean - f.service[j]) * min(1, float64(done)/min(float64(f.seen[j]), window))
		if f.seen[j] >= enough {
			node.Service = f.service[j]
		}
		node.Sojourn = (mine.sojourn - earlier.sojourn).Seconds() / float64(done)
	}
	var others time.Duration
	for g := range now.counts {
		if g == f.index {
			continue
		}
		others += now.counts[g].service
		if before.heard {
			others -= before.counts[g].service
		}
	}
	average(&node.Busy, others.Seconds()/dt, dt, f.counted)
}

// average moves a towards x as the time dt allows, or sets it if it is the first.
func average(a *float64, x, dt float64, known bool) {
	if !known {
		*a = x
		return
	}
	*a += (x - *a) * (1 - math.Exp(-dt/smoothing.Seconds()))
}

// FaaSt is the paper's: weights by Inverse, of the last period's measurements, and random
// choice by these.
func FaaSt() Policy {
	return Policy{Name: "FaaSt", start: func(e *engine, source int) balancer {
		b := newWeighted(e.noise, e.endpoints(source))
		c := controlOf(e)
		f := &c.functions[e.w.Sources[source].Function]
		b.set(weights.Inverse(c.function(f))[f.row[source]])
		return b
	}, decide: func(e *engine) {
		c := controlOf(e)
		c.measure()
		for i := range c.functions {
			f := &c.functions[i]
			w := weights.Inverse(c.function(f))
			for row, s := range f.sources {
				e.pushes = append(e.pushes, e.now)
				e.toGateway(s, func() { e.sources[s].balancer.(*weighted).set(w[row]) })
			}
		}
	}}
}

// toGateway has something happen at a gateway when the control plane's word is there, unless
// it does not come through.
func (e *engine) toGateway(source int, then func()) {
	if e.w.cut(e.w.Sources[source].Node, 0, e.now) {
		return
	}
	e.schedule(event{at: e.now + pushDelay, kind: push, then: then})
}

// Static is Balanced's weights without a choice per request: what routing does where the
// filter is not.
func Static() Policy {
	return Policy{Name: "balanced weights alone", start: func(e *engine, source int) balancer {
		b := newWeighted(e.noise, e.endpoints(source))
		b.set(controlOf(e).initial(source))
		return b
	}, decide: func(e *engine) {
		controlOf(e).balance(
			func(s int, row []float64, _ []filterapi.RouteEndpoint) { e.sources[s].balancer.(*weighted).set(row) },
		)
	}}
}

// Headstart is ours: Balanced's weights, and a choice per request.
func Headstart() Policy { return headstart("Headstart", true) }

// Silent is Headstart with functions that say nothing of their load with their answers.
func Silent() Policy { return headstart("Headstart, no load reports", false) }

func headstart(name string, reports bool) Policy {
	return Policy{Name: name, start: func(e *engine, source int) balancer {
		c := controlOf(e)
		b := &perRequest{r: e.noise, table: &route.Table{}, reports: reports, anyOut: func() bool { return len(e.sources[source].outUntil) > 0 }}
		c.initial(source)
		b.table.Set(c.endpoints(&c.functions[e.w.Sources[source].Function], source))
		return b
	}, decide: func(e *engine) {
		controlOf(e).balance(func(s int, _ []float64, list []filterapi.RouteEndpoint) {
			e.sources[s].balancer.(*perRequest).table.Set(list)
		})
	}}
}

// decide has the loop decide on a function's weights.
func (c *control) decide(f *controlled) []weights.Change {
	m := weights.Measured{Sources: f.sourceNames, Nodes: f.nodeNames, Function: c.function(f), Passed: f.passed}
	f.begun, f.passed = true, 0
	return f.loop.Decide(m)
}

// initial is a source's row before anything is measured.
func (c *control) initial(source int) []float64 {
	f := &c.functions[c.e.w.Sources[source].Function]
	if !f.begun {
		c.decide(f)
	}
	return f.loop.Shares(f.row[source])
}

// balance decides on weights, and has those gateways get theirs for which it is worthwhile.
func (c *control) balance(set func(source int, row []float64, list []filterapi.RouteEndpoint)) {
	c.measure()
	for i := range c.functions {
		f := &c.functions[i]
		if !f.counted {
			continue
		}
		for row, change := range c.decide(f) {
			s := f.sources[row]
			switch change {
			case weights.Held:
				continue
			case weights.Replaced:
				c.e.pushes = append(c.e.pushes, c.e.now)
			}
			held, list := f.loop.Shares(row), c.endpoints(f, s)
			c.e.toGateway(s, func() { set(s, held, list) })
		}
	}
}

// endpoints are what a gateway is told of a function.
func (c *control) endpoints(f *controlled, source int) []filterapi.RouteEndpoint {
	row := f.row[source]
	whole := weights.Integers(f.loop.Shares(row), precision)
	list := make([]filterapi.RouteEndpoint, len(whole))
	for j, e := range f.loop.Expect(row) {
		list[j] = filterapi.RouteEndpoint{
			Address: netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(j+1)), Weight: whole[j], Expected: e.Expected,
		}
	}
	return list
}

// perRequest is a gateway with the filter.
type perRequest struct {
	r       *rand.Rand
	table   *route.Table
	reports bool
	// anyOut tells whether an endpoint has ever been ejected.
	anyOut func() bool
}

func (b *perRequest) Pick(now time.Duration, req *request, out func(int) bool) int {
	if b.anyOut() {
		b.table.Eject(out)
	}
	j, ok := b.table.Pick(now, b.r.Uint64())
	if !ok { // Envoy panics, as it says, and takes any
		j = b.r.IntN(b.table.Len())
	}
	req.sent = b.table.Begin(j, now)
	return j
}

func (b *perRequest) Done(now time.Duration, _ int, req *request, l *load) {
	if l == nil || !b.reports {
		b.table.End(req.sent, now, l != nil, nil)
		return
	}
	b.table.End(req.sent, now, true, &route.Load{InFlight: l.inFlight, Workers: l.workers, Service: l.service})
}
