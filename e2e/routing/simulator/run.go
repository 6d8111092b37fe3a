package simulator

import (
	"math/rand/v2"
	"time"
)

const (
	// timeout is when a gateway gives a request up.
	timeout = time.Second
	// retries is how often a gateway sends a refused request elsewhere, as Istio does.
	retries = 2
	// errorsInRow eject an endpoint for ejection (Envoy's outlier detection: consecutive_5xx
	// and base_ejection_time), longer each time.
	errorsInRow = 5
	ejection    = 30 * time.Second
	// reportEvery is how often nodes report to the control plane; reportDelay is the way.
	reportEvery, reportDelay = time.Second, 50 * time.Millisecond
	// decideEvery is how often the control plane makes weights; pushDelay is their way.
	decideEvery, pushDelay = 5 * time.Second, 100 * time.Millisecond
)

// balancer is what one gateway does for one function.
type balancer interface {
	// Pick returns the endpoint for a request, as index into the function's nodes. out tells
	// which endpoints are ejected.
	Pick(now time.Duration, req *request, out func(endpoint int) bool) int
	// Done says that a request is answered, or has failed. l is nil if there was no answer.
	Done(now time.Duration, endpoint int, req *request, l *load)
}

// Policy is a way of routing.
type Policy struct {
	Name string
	// start returns the balancer of a source.
	start func(e *engine, source int) balancer
	// decide is what a control plane does at its times, from reports; nil: there is none.
	decide func(e *engine)
	// knows says that balancers look at the servers themselves.
	knows bool
}

type kind int8

const (
	arrive kind = iota // at the node
	depart             // from the node
	answer             // back at the gateway
	fail               // the gateway hears of a failure
	probe              // at the node
	probed             // back at the gateway
	report             // nodes report
	decide             // the control plane decides
	push               // gateways get what it decided
	up                 // a node is back
)

type event struct {
	at       time.Duration
	seq      int
	kind     kind
	request  int
	endpoint int
	sent     time.Duration
	load     load
	// refused says that the request was not begun.
	refused bool
	then    func()
}

// engine is a run.
type engine struct {
	w        *World
	policy   Policy
	now      time.Duration
	seq      int
	events   *heap[event]
	requests []request
	servers  []server
	speeds   []func(time.Duration) float64
	sources  []gateway
	noise    *rand.Rand // for what is no part of the world: choices, probes

	// reported is what the control plane knows of each node, and since when.
	reported []heardReport
	// pushes are when a gateway's row of weights was replaced.
	pushes []time.Duration

	result *Result
	state  any // the policy's control plane
}

type heardReport struct {
	at     time.Duration
	heard  bool
	counts []count
}

type gateway struct {
	balancer balancer
	errors   map[int]int // by endpoint, in a row
	outUntil map[int]time.Duration
	ejected  map[int]int
}

// Run routes the world's requests by a policy.
func Run(w *World, policy Policy) *Result {
	e := &engine{w: w, policy: policy, requests: w.requests(), servers: make([]server, len(w.Nodes)), speeds: make([]func(time.Duration) float64, len(w.Nodes)),
		sources: make([]gateway, len(w.Sources)), noise: rand.New(rand.NewPCG(w.Seed, 1<<40)), result: newResult(w, policy.Name), reported: make([]heardReport, len(w.Nodes))}
	e.events = newHeap(func(a, b event) bool {
		if a.at != b.at {
			return a.at < b.at
		}
		return a.seq < b.seq
	})
	for n := range e.servers {
		counts := make([]count, len(w.Functions))
		for f := range counts {
			counts[f].from = make([]int, len(w.Sources))
		}
		e.servers[n] = server{free: make([]time.Duration, w.Nodes[n].Workers), recent: map[int]*ring{}, counts: counts}
		e.speeds[n] = e.speed(n)
	}
	for _, f := range w.Faults {
		if f.Down {
			for _, n := range f.Nodes {
				e.schedule(event{at: f.To, kind: up, endpoint: n})
			}
		}
	}
	for s := range e.sources {
		e.sources[s] = gateway{errors: map[int]int{}, outUntil: map[int]time.Duration{}, ejected: map[int]int{}}
		e.sources[s].balancer = policy.start(e, s)
	}
	if policy.decide != nil {
		e.schedule(event{at: reportEvery, kind: report})
		e.schedule(event{at: decideEvery, kind: decide})
	}
	next := 0
	for {
		if next < len(e.requests) && (e.events.len() == 0 || e.requests[next].at <= e.events.items[0].at) {
			e.now = e.requests[next].at
			e.send(next)
			next++
			continue
		}
		if e.events.len() == 0 {
			break
		}
		ev := e.events.pop()
		e.now = ev.at
		e.handle(ev)
	}
	e.result.finish(e.pushes)
	return e.result
}

// speed remembers nodes that have no faults, which are most.
func (e *engine) speed(n int) func(time.Duration) float64 {
	for i := range e.w.Faults {
		if f := &e.w.Faults[i]; f.Slow > 0 && f.has(n) {
			return func(at time.Duration) float64 { return e.w.speed(n, at) }
		}
	}
	speed := e.w.Nodes[n].Speed
	return func(time.Duration) float64 { return speed }
}

func (e *engine) schedule(ev event) {
	ev.seq = e.seq
	e.seq++
	e.events.push(ev)
}

// node is where an endpoint of a source's function is.
func (e *engine) node(source, endpoint int) int {
	return e.w.Functions[e.w.Sources[source].Function].Nodes[endpoint]
}

// way is the round trip of a request to an endpoint.
func (e *engine) way(r *request, endpoint int) time.Duration {
	return e.w.rtt(e.w.Sources[r.source].Node, e.node(r.source, endpoint), r.jitter)
}

func (e *engine) send(i int) {
	r := &e.requests[i]
	g := &e.sources[r.source]
	endpoint := g.balancer.Pick(e.now, r, func(j int) bool { return g.outUntil[j] > e.now })
	r.tries++
	r.began = e.now
	from, to := e.w.Sources[r.source].Node, e.node(r.source, endpoint)
	if e.w.cut(from, to, e.now) {
		e.schedule(event{at: e.now + timeout, kind: fail, request: i, endpoint: endpoint, sent: e.now})
		return
	}
	at := e.now + e.way(r, endpoint)/2
	if e.policy.knows {
		e.servers[to].expect(at, r.work)
	}
	e.schedule(event{at: at, kind: arrive, request: i, endpoint: endpoint, sent: e.now})
}

func (e *engine) handle(ev event) {
	switch ev.kind {
	case arrive:
		e.arrive(ev)
	case depart:
		e.servers[ev.endpoint].inFlight--
		ev.then()
	case answer:
		e.answer(ev)
	case fail:
		e.fail(ev)
	case probe, probed, push:
		ev.then()
	case up:
		s := &e.servers[ev.endpoint]
		for k := range s.free {
			s.free[k] = e.now
		}
	case report:
		e.report()
	case decide:
		e.policy.decide(e)
		if e.now+decideEvery < e.w.Length {
			e.schedule(event{at: e.now + decideEvery, kind: decide})
		}
	}
}

// arrive is a request's arrival at its node. As workers take requests in their order, when
// it will be done is known now.
func (e *engine) arrive(ev event) {
	r := &e.requests[ev.request]
	n := e.node(r.source, ev.endpoint)
	s, from, f := &e.servers[n], e.w.Sources[r.source].Node, e.w.Sources[r.source].Function
	if e.policy.knows {
		s.coming = s.coming[1:]
	}
	back := e.way(r, ev.endpoint) / 2
	if _, down := e.w.down(n, e.now, e.now); down {
		e.schedule(event{at: e.now + back, kind: fail, request: ev.request, endpoint: ev.endpoint, sent: ev.sent, refused: true})
		return
	}
	found := s.inFlight
	s.inFlight++
	s.counts[f].from[r.source]++
	at := e.now
	start, end := take(s.free, e.now, r.work, e.speeds[n])
	if since, down := e.w.down(n, e.now, end); down {
		e.schedule(event{at: since, kind: depart, endpoint: n, then: func() {
			e.schedule(event{at: since + back, kind: fail, request: ev.request, endpoint: ev.endpoint, sent: ev.sent})
		}})
		return
	}
	e.schedule(event{at: end, kind: depart, endpoint: n, then: func() {
		c := &s.counts[f]
		c.done++
		c.service += end - start
		c.sojourn += end - at
		if s.service == 0 {
			s.service = end - start
		}
		s.service += (end - start - s.service) / serviceSamples
		if s.recent[found] == nil {
			s.recent[found] = &ring{}
		}
		s.recent[found].add(end - at)
		if e.w.cut(from, n, end) {
			e.schedule(event{at: max(end, ev.sent+timeout), kind: fail, request: ev.request, endpoint: ev.endpoint, sent: ev.sent})
			return
		}
		e.schedule(event{at: end + back, kind: answer, request: ev.request, endpoint: ev.endpoint, sent: ev.sent, load: s.load()})
	}})
}

// serviceSamples is over about how many requests a server averages.
const serviceSamples = 16

func (e *engine) answer(ev event) {
	r := &e.requests[ev.request]
	g := &e.sources[r.source]
	g.errors[ev.endpoint] = 0
	g.balancer.Done(e.now, ev.endpoint, r, &ev.load)
	e.result.add(r, e.now-r.at, e.node(r.source, ev.endpoint))
}

func (e *engine) fail(ev event) {
	r := &e.requests[ev.request]
	g := &e.sources[r.source]
	g.balancer.Done(e.now, ev.endpoint, r, nil)
	out := g.outUntil[ev.endpoint] > e.now // what fails then was sent before
	if g.errors[ev.endpoint]++; g.errors[ev.endpoint] >= errorsInRow && !out {
		g.errors[ev.endpoint] = 0
		g.ejected[ev.endpoint]++
		g.outUntil[ev.endpoint] = e.now + time.Duration(g.ejected[ev.endpoint])*ejection
	}
	if ev.refused && r.tries <= retries {
		e.send(ev.request)
		return
	}
	r.failed = true
	e.result.add(r, e.now-r.at, -1)
}

// ask sends a probe from a source to an endpoint; got is called with what it brings back.
func (e *engine) ask(source, endpoint int, got func(l load)) {
	from, to := e.w.Sources[source].Node, e.node(source, endpoint)
	half := e.w.rtt(from, to, e.noise.NormFloat64()) / 2
	if e.w.cut(from, to, e.now) {
		return
	}
	e.schedule(event{at: e.now + half, kind: probe, then: func() {
		if _, down := e.w.down(to, e.now, e.now); down || e.w.cut(from, to, e.now) {
			return
		}
		l := e.servers[to].load()
		e.schedule(event{at: e.now + half, kind: probed, then: func() { got(l) }})
	}})
}

// report has each node tell the control plane, which is beside node 0, what it has counted.
func (e *engine) report() {
	at := e.now
	for n := range e.servers {
		if _, down := e.w.down(n, at, at); down || e.w.cut(n, 0, at) {
			continue
		}
		s := &e.servers[n]
		r := heardReport{at: at, heard: true, counts: make([]count, len(s.counts))}
		for f, c := range s.counts {
			c.from = append([]int(nil), c.from...)
			r.counts[f] = c
		}
		e.schedule(event{at: at + reportDelay, kind: push, then: func() { e.reported[n] = r }})
	}
	if at+reportEvery < e.w.Length {
		e.schedule(event{at: at + reportEvery, kind: report})
	}
}
