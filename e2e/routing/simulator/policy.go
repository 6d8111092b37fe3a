package simulator

import (
	"math"
	"math/rand/v2"
	"time"
)

// Policies are all ways of routing that are compared; the last two are bounds.
func Policies() []Policy {
	return []Policy{RoundRobin(), LeastRequest(), PeakEWMA(), Locality(), FaaSt(), Prequal(), Static(), Silent(), Headstart(), Oracle(), Foreseeing()}
}

// passive does not care for answers.
type passive struct{}

func (passive) Done(time.Duration, int, *request, *load) {}

// better of two endpoints that are in: Envoy's power of two choices.
func choose2(r *rand.Rand, n int, out func(int) bool, cost func(int) float64) int {
	best, least := -1, math.Inf(1)
	for range 2 {
		j := r.IntN(n)
		for k := 0; k < n && out(j); k++ {
			j = (j + 1) % n
		}
		if c := cost(j); c < least || best < 0 {
			best, least = j, c
		}
	}
	return best
}

func (e *engine) endpoints(source int) int {
	return len(e.w.Functions[e.w.Sources[source].Function].Nodes)
}

// RoundRobin is Envoy's, and Knative's default.
func RoundRobin() Policy {
	return Policy{Name: "round robin", start: func(e *engine, source int) balancer {
		n := e.endpoints(source)
		return &roundRobin{n: n, next: e.noise.IntN(n)}
	}}
}

type roundRobin struct {
	passive
	n, next int
}

func (b *roundRobin) Pick(_ time.Duration, _ *request, out func(int) bool) int {
	for range b.n {
		b.next = (b.next + 1) % b.n
		if !out(b.next) {
			break
		}
	}
	return b.next
}

// LeastRequest is Envoy's: the one of two random endpoints that has fewer requests of this
// gateway in flight.
func LeastRequest() Policy {
	return Policy{Name: "least request", start: func(e *engine, source int) balancer {
		return &leastRequest{e: e, pending: make([]int, e.endpoints(source))}
	}}
}

type leastRequest struct {
	e       *engine
	pending []int
}

func (b *leastRequest) Pick(_ time.Duration, _ *request, out func(int) bool) int {
	j := choose2(b.e.noise, len(b.pending), out, func(j int) float64 { return float64(b.pending[j]) })
	b.pending[j]++
	return j
}

func (b *leastRequest) Done(_ time.Duration, j int, _ *request, _ *load) { b.pending[j]-- }

// PeakEWMA is Finagle's and Linkerd's: of two random endpoints the one with the lower product
// of latency and requests in flight. The latency rises at once and falls slowly.
func PeakEWMA() Policy {
	return Policy{Name: "peak EWMA", start: func(e *engine, source int) balancer {
		n := e.endpoints(source)
		return &peakEWMA{e: e, pending: make([]int, n), cost: make([]float64, n), stamp: make([]time.Duration, n)}
	}}
}

const (
	// ewmaDecay and ewmaPenalty are Finagle's defaults.
	ewmaDecay   = 10 * time.Second
	ewmaPenalty = math.MaxInt64 / 2
)

type peakEWMA struct {
	e       *engine
	pending []int
	cost    []float64
	stamp   []time.Duration
}

func (b *peakEWMA) observe(now time.Duration, j int, took float64) {
	w := math.Exp(-float64(now-b.stamp[j]) / float64(ewmaDecay))
	b.stamp[j] = now
	if took > b.cost[j] {
		b.cost[j] = took
	} else {
		b.cost[j] = b.cost[j]*w + took*(1-w)
	}
}

func (b *peakEWMA) Pick(now time.Duration, _ *request, out func(int) bool) int {
	j := choose2(b.e.noise, len(b.pending), out, func(j int) float64 {
		b.observe(now, j, 0)
		if b.cost[j] == 0 && b.pending[j] > 0 {
			return ewmaPenalty + float64(b.pending[j])
		}
		return b.cost[j] * float64(b.pending[j]+1)
	})
	b.pending[j]++
	return j
}

func (b *peakEWMA) Done(now time.Duration, j int, req *request, _ *load) {
	b.pending[j]--
	b.observe(now, j, float64(now-req.began))
}

// Locality is Istio's failover: least request within the gateway's own locality, and in
// others as far as too few of its endpoints are healthy.
func Locality() Policy {
	return Policy{Name: "locality failover", start: func(e *engine, source int) balancer {
		b := &locality{leastRequest: leastRequest{e: e, pending: make([]int, e.endpoints(source))}}
		region := e.w.Nodes[e.w.Sources[source].Node].Region
		for j := range b.pending {
			b.far = append(b.far, e.w.Nodes[e.node(source, j)].Region != region)
			if !b.far[j] {
				b.local++
			}
		}
		return b
	}}
}

// overprovisioning is Envoy's default factor: below 1/1.4 of healthy endpoints, requests go
// to the next priority as well.
const overprovisioning = 1.4

type locality struct {
	leastRequest
	far   []bool
	local int
}

func (b *locality) Pick(now time.Duration, r *request, out func(int) bool) int {
	healthy := 0
	for j := range b.far {
		if !b.far[j] && !out(j) {
			healthy++
		}
	}
	far := b.e.noise.Float64() >= overprovisioning*float64(healthy)/float64(max(1, b.local))
	return b.leastRequest.Pick(now, r, func(j int) bool { return b.far[j] != far || out(j) })
}

// weighted is by shares.
type weighted struct {
	passive
	r    *rand.Rand
	sums []float64
}

func newWeighted(r *rand.Rand, n int) *weighted {
	w := &weighted{r: r, sums: make([]float64, n)}
	for j := range w.sums {
		w.sums[j] = float64(j + 1)
	}
	return w
}

func (b *weighted) set(row []float64) {
	var sum float64
	for j, x := range row {
		sum += x
		b.sums[j] = sum
	}
}

// Pick draws until an endpoint is in. Envoy takes those without weight when all others are
// out: they are of a lower priority.
func (b *weighted) Pick(_ time.Duration, _ *request, out func(int) bool) int {
	n := len(b.sums)
	for range 2 * n {
		x, j := b.r.Float64()*b.sums[n-1], 0
		for j < n-1 && b.sums[j] <= x {
			j++
		}
		if !out(j) {
			return j
		}
	}
	return choose2(b.r, n, out, func(int) float64 { return 0 })
}

// Oracle knows all queues, all that is on its way, how long each request will take on each
// node, and how long ways are on average: it picks the node where the request is done first.
// It is selfish: no request steps back for others.
func Oracle() Policy { return clairvoyant("oracle", false) }

// Foreseeing is Oracle and knows, besides, the jitter that each request will meet.
func Foreseeing() Policy { return clairvoyant("oracle, foreseeing jitter", true) }

func clairvoyant(name string, jitter bool) Policy {
	return Policy{Name: name, knows: true, start: func(e *engine, source int) balancer {
		return &oracle{e: e, source: source, jitter: jitter}
	}}
}

type oracle struct {
	passive
	e       *engine
	source  int
	jitter  bool
	scratch []time.Duration
}

func (b *oracle) Pick(now time.Duration, r *request, _ func(int) bool) int {
	best, least := 0, time.Duration(math.MaxInt64)
	from := b.e.w.Sources[b.source].Node
	for j := range b.e.endpoints(b.source) {
		way := b.e.way(r, j)
		if !b.jitter {
			way = b.e.w.rtt(from, b.e.node(b.source, j), 0)
		}
		if way >= least {
			continue
		}
		n := b.e.node(b.source, j)
		at := now + way/2
		end := b.e.servers[n].finish(at, r.work, b.e.speeds[n], b.scratch)
		if took := end - now + way - way/2; took < least {
			if _, down := b.e.w.down(n, at, end); down || b.e.w.cut(from, n, now) || b.e.w.cut(from, n, end) {
				continue
			}
			best, least = j, took
		}
	}
	return best
}
