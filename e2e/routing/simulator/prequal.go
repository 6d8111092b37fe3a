package simulator

import (
	"math"
	"slices"
	"time"
)

// Prequal's parameters, by their names in the paper (NSDI 2024, section 4): its defaults.
const (
	prequalPool    = 16              // entries of the pool of probes
	prequalProbes  = 3               // r_probe, per request
	prequalRemove  = 1               // r_remove, per request
	prequalAge     = time.Second     // of a probe, at most
	prequalLeast   = 2               // entries, below which the choice is random
	prequalDelta   = 1.0             // delta of the reuse budget, equation 1
	prequalHot     = 0.8408964152537 // Q_RIF = 2^-0.25
	prequalHistory = 128             // requests in flight of probes, for their quantile
)

// Prequal is Google's: probes to random endpoints bring requests in flight and latency on the
// node; of those in the pool the one with the least latency gets the request, unless it is
// hot, among the highest in flight; if all are hot, the one with the fewest. Distance is no
// part of it.
func Prequal() Policy {
	return Policy{Name: "Prequal", start: func(e *engine, source int) balancer {
		return &prequal{e: e, source: source, n: e.endpoints(source)}
	}}
}

type prequalEntry struct {
	endpoint, inFlight int
	latency            time.Duration
	at                 time.Duration
	uses               float64
}

type prequal struct {
	passive
	e         *engine
	source, n int
	pool      []prequalEntry
	seen      []int
	worst     bool // is removed next, else the oldest
}

func (b *prequal) Pick(now time.Duration, _ *request, out func(int) bool) int {
	for range prequalProbes {
		j := b.e.noise.IntN(b.n)
		b.e.ask(b.source, j, func(l load) { b.got(j, l) })
	}
	b.pool = slices.DeleteFunc(b.pool, func(p prequalEntry) bool { return now-p.at > prequalAge || out(p.endpoint) })
	j := b.e.noise.IntN(b.n)
	for k := 0; k < b.n && out(j); k++ {
		j = (j + 1) % b.n
	}
	if len(b.pool) >= prequalLeast {
		k := b.choose()
		p := &b.pool[k]
		j = p.endpoint
		p.inFlight++ // it is one more now, whether the next probe says so or not
		if p.uses--; p.uses < 1 {
			b.pool = slices.Delete(b.pool, k, k+1)
		}
	}
	for range prequalRemove {
		b.remove()
	}
	return j
}

// reuse is the budget of equation 1. Where the pool has as many as there are endpoints, age
// alone ends a probe.
func (b *prequal) reuse() float64 {
	m := float64(min(prequalPool, b.n))
	rate := (1-m/float64(b.n))*prequalProbes - prequalRemove
	if rate <= 0 {
		return math.Inf(1)
	}
	return max(1, (1+prequalDelta)/rate)
}

func (b *prequal) got(endpoint int, l load) {
	if len(b.seen) >= prequalHistory {
		b.seen = b.seen[1:]
	}
	b.seen = append(b.seen, l.inFlight)
	if len(b.pool) >= prequalPool {
		oldest := 0
		for k := range b.pool {
			if b.pool[k].at < b.pool[oldest].at {
				oldest = k
			}
		}
		b.pool = slices.Delete(b.pool, oldest, oldest+1)
	}
	b.pool = append(b.pool, prequalEntry{endpoint: endpoint, inFlight: l.inFlight, latency: l.latency, at: b.e.now, uses: b.reuse()})
}

// hot is from how many requests in flight on an endpoint is hot.
func (b *prequal) hot() int {
	if len(b.seen) == 0 {
		return math.MaxInt
	}
	sorted := slices.Clone(b.seen)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(prequalHot*float64(len(sorted))))]
}

// better tells whether pool entry x is to be preferred over y.
func better(x, y prequalEntry, hot int) bool {
	xHot, yHot := x.inFlight > hot, y.inFlight > hot
	switch {
	case xHot != yHot:
		return yHot
	case xHot:
		return x.inFlight < y.inFlight
	default:
		return x.latency < y.latency
	}
}

func (b *prequal) choose() int {
	hot, best := b.hot(), 0
	for k := range b.pool {
		if better(b.pool[k], b.pool[best], hot) {
			best = k
		}
	}
	return best
}

// remove takes the oldest and the worst probe out in turns, as long as there are enough.
func (b *prequal) remove() {
	if len(b.pool) <= min(prequalPool, b.n)/2 {
		return
	}
	gone, hot := 0, b.hot()
	for k := range b.pool {
		if b.worst && better(b.pool[gone], b.pool[k], hot) || !b.worst && b.pool[k].at < b.pool[gone].at {
			gone = k
		}
	}
	b.worst = !b.worst
	b.pool = slices.Delete(b.pool, gone, gone+1)
}
