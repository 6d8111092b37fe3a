// Package route picks the endpoint for each request: the one where it is likely to be
// answered first, by what the control plane has said of the endpoints and by what the gateway
// itself has seen since. It knows neither Envoy nor a clock: whoever calls it brings the
// time.
//
// It takes from Prequal (Wydrowski et al., "Load is not what you should balance", NSDI
// 2024) that requests in flight are the signal that is never late, and that latency decides
// among endpoints that have room: there the hot-cold rule, here one estimate of the time to
// the answer, which knows distances as well.
package route

import (
	"net/netip"
	"sort"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Load is what an endpoint says of itself with an answer.
type Load struct {
	// InFlight is how many requests it had then, from whatever gateway, without the one that
	// it answered.
	InFlight int
	// Workers is how many requests it works on at a time; 0: it did not say.
	Workers int
	// Service is how long requests hold one of them on average, of whatever function they
	// are: those that one has to wait for. 0: it did not say.
	Service time.Duration
}

const (
	// few is how many endpoints are all looked at for each request.
	few = 12
	// Of more, nearest are looked at because they are near, and drawn are drawn by weight.
	// Beyond the nearest one is drawn of as many again, one of twice as many, and so on: near
	// and far, whatever their weight, it is where to go when all that have weight are full.
	nearest, drawn = 8, 2
)

// Table is what a gateway knows of a function's endpoints. It is not for several goroutines
// at the same time.
type Table struct {
	endpoints []endpoint
	list      uint32 // how often they were set
	index     map[netip.AddrPort]int
	ids       map[uint32]int // by what other workers call it
	near      []int          // the nearest, nearest first
	// weights and rooms are running sums, to draw from.
	weights, rooms []float64
	// shared are those that workers tell each other of. began says that this one has told
	// something, and generation for which text what it has told counts.
	shared     []int
	generation time.Duration
	began      bool
}

// Set replaces the endpoints. Those that stay keep what has been seen of them.
func (t *Table) Set(list []filterapi.RouteEndpoint) {
	index := make(map[netip.AddrPort]int, len(list))
	t.ids, t.shared = make(map[uint32]int, len(list)), t.shared[:0]
	next := make([]endpoint, len(list))
	t.near = make([]int, len(list))
	t.weights, t.rooms = make([]float64, len(list)), make([]float64, len(list))
	t.leave(list)
	var weight float64
	for i, e := range list {
		e = believed(e)
		if before, ok := t.index[e.Address]; ok {
			next[i] = t.endpoints[before]
		}
		index[e.Address] = i
		next[i].said(e)
		next[i].id = idOf(e.Address)
		t.ids[next[i].id] = i
		if next[i].shared {
			t.shared = append(t.shared, i)
		}
		t.near[i] = i
		weight += float64(e.Weight)
		t.weights[i] = weight
	}
	sort.SliceStable(t.near, func(a, b int) bool { return next[t.near[a]].RTT < next[t.near[b]].RTT })
	regardAll(next, t.near, weight)
	room := 0.0
	for k, i := range t.near {
		room += next[i].Workers
		t.rooms[k] = room
	}
	t.endpoints, t.index = next, index
	t.list++
}

// Pick returns the endpoint for a request that begins now, as an index into the list. random
// are random bits. ok is false if no endpoint is in: Envoy's own policy then decides.
func (t *Table) Pick(now time.Duration, random uint64) (index int, ok bool) {
	best := choice{index: -1}
	n := len(t.endpoints)
	if n <= few {
		first := int(random % uint64(max(1, n)))
		for k := range n {
			t.consider(&best, (first+k)%n, now)
		}
		return best.index, best.index >= 0
	}
	for range drawn {
		t.consider(&best, draw(t.weights, 0, &random), now)
	}
	for _, i := range t.near[:nearest] {
		t.consider(&best, i, now)
	}
	for low := nearest; low < n; low *= 2 {
		t.consider(&best, t.near[draw(t.rooms[:min(2*low, n)], low, &random)], now)
	}
	if best.index < 0 { // all of these are out
		first := int(random % uint64(n))
		for k := range n {
			t.consider(&best, (first+k)%n, now)
		}
	}
	return best.index, best.index >= 0
}

type choice struct {
	index int
	cost  float64
}

func (t *Table) consider(best *choice, i int, now time.Duration) {
	e := &t.endpoints[i]
	if e.out {
		return
	}
	if _, cost := e.expect(now); best.index < 0 || cost < best.cost {
		*best = choice{i, cost}
	}
}

// draw returns an index from low on, by running sums.
func draw(sums []float64, low int, random *uint64) int {
	*random = *random*6364136223846793005 + 1442695040888963407 // Knuth's MMIX; the upper bits are good
	before := 0.0
	if low > 0 {
		before = sums[low-1]
	}
	high := len(sums) - 1
	x := before + float64(*random>>11)/(1<<53)*(sums[high]-before)
	for low < high {
		if middle := (low + high) / 2; sums[middle] > x {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// Sent is a request that is on its way.
type Sent struct {
	address  netip.AddrPort
	index    int    // of the endpoint in the list
	list     uint32 // the list's number
	at       time.Duration
	expected float64 // seconds
}

// Begin says that a request goes to endpoint i. What it returns is for End.
func (t *Table) Begin(i int, now time.Duration) Sent {
	e := &t.endpoints[i]
	expected, _ := e.expect(now)
	e.begin(now)
	t.share(i)
	return Sent{address: e.Address, index: i, list: t.list, at: now, expected: expected}
}

// find returns where the endpoint of a request is now.
func (t *Table) find(sent Sent) (i int, ok bool) {
	if sent.list == t.list {
		return sent.index, true
	}
	i, ok = t.index[sent.address]
	return i, ok
}

// End says that a request is over: it is answered, or has failed. load is what the answer
// said, or nil.
func (t *Table) End(sent Sent, now time.Duration, answered bool, load *Load) {
	if i, ok := t.find(sent); ok {
		t.endpoints[i].over(sent)
		t.endpoints[i].answer(now, sent, outcomeOf(answered), load)
	}
}

// Answered says that the answer to a request has begun, or that it has failed. It is in
// flight until Over says otherwise: an answer may take longer than what it has to wait for.
func (t *Table) Answered(sent Sent, now time.Duration, answered bool, load *Load) {
	t.learn(sent, now, outcomeOf(answered), load)
}

// Erred is Answered for an error that the function itself has answered. It is a sign of life,
// but no sign of speed.
func (t *Table) Erred(sent Sent, now time.Duration, load *Load) { t.learn(sent, now, erred, load) }

func (t *Table) learn(sent Sent, now time.Duration, o outcome, load *Load) {
	i, ok := t.find(sent)
	if !ok {
		return
	}
	if load != nil { // it has no longer the one that it answers, which is still counted here
		with := *load
		with.InFlight++
		load = &with
	}
	t.endpoints[i].answer(now, sent, o, load)
}

// Over says that a request is over, whatever came of it.
func (t *Table) Over(sent Sent) {
	if i, ok := t.find(sent); ok {
		t.endpoints[i].over(sent)
	}
}

// Len is how many endpoints there are.
func (t *Table) Len() int { return len(t.endpoints) }

// Eject says which endpoints must get no requests.
func (t *Table) Eject(out func(i int) bool) {
	for i := range t.endpoints {
		t.endpoints[i].out = out(i)
	}
}
