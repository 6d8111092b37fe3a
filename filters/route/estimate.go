package route

import (
	"math"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// rttLimit and serviceLimit bound what is believed of an endpoint.
	rttLimit, serviceLimit = 10 * time.Second, time.Hour
	// serviceUnknown is taken where nobody has said.
	serviceUnknown = 10 * time.Millisecond
	// workersLimit bounds what an endpoint can draw on itself.
	workersLimit = 10_000
	// inFlightLimit bounds how many requests an endpoint can say that it has.
	inFlightLimit = 100 * workersLimit

	// memory is, in times of service, after what time half of what was heard of the other
	// gateways' requests is forgotten: queues change as fast as requests are served, and one
	// that is longer for longer shows in the average.
	memory = 1
	// chance is the square of what a normal distribution's positive part has on average if its
	// mean is 0, 1/sqrt(2 pi) of the deviation, times 4: see positive.
	chance = 2 / math.Pi
	// regard is how often a request's wait counts at least: once for itself, and by half for
	// those who will wait because of it. If each had an eye to itself only, the near queue would
	// fill until it is as bad as the far way is long, for everybody. With more regard so many go
	// far before they need to that the slowest hundredth are these.
	regard = 1.5
	// spill is the share of the weight that is farther away by which an endpoint is known to
	// be full by far. There the queue is never over, so that each request in it has everybody
	// after it wait, and the slowest hundredth go far whatever is done: what is left is the mean,
	// see optimal. Half of it counts by a quarter, and so on: the fewer have to go far, the more of
	// the slowest hundredth are those that need not have.
	spill = 0.5
	// spillMost is what is believed of that share: an endpoint is full, and never more than that.
	spillMost = 0.99
	// learn is how much one answer counts in averages.
	learn = 1.0 / 8
	// patience is how many times the expected time may pass without any answer before an
	// endpoint is taken to be as slow as it is silent.
	patience = 3
	// slower is how many times longer than expected answers have to take before they are
	// believed rather than what was said. Less is chance.
	slower = 3
	// slowLimit bounds how much slower.
	slowLimit = 1000
	// jump is how many times longer than already believed one answer may count for. When this
	// gateway has stood still for a moment, all that was under way is late at once, which says
	// little of the endpoint; one that is slow is believed to be after four answers.
	jump = 2
	// relief is how much an answer counts that comes sooner than a slow endpoint was believed
	// to answer: it was alone when it tried that (see expect).
	relief = 1.0 / 2
	// failure is what a request that fails counts as, in times of what was expected: one that
	// fails at once must not look like one that is answered at once. It is Envoy that ejects.
	failure = 100
	// forgive is in what time without an answer half of an endpoint's slowness is forgotten, in
	// seconds, so that it is tried again.
	forgive = 5.0
)

// endpoint is one, and what has been seen of it. Times without a unit are in seconds.
type endpoint struct {
	filterapi.RouteEndpoint
	rtt, service, workers float64
	// turn is how long those hold a worker that a request has to wait for.
	turn float64
	// regard is how often a wait here counts.
	regard float64

	// sent are this gateway's own requests in flight, of this worker; elsewhere are those of
	// its others, and told is how many of sent these know of. id is what they call it.
	sent, elsewhere, told int
	id                    uint32
	// toldOthers and toldSlow are what they know of others and slow.
	toldOthers, toldSlow float64
	// shared says that it is among those that workers tell each other of.
	shared bool
	// others are those of other gateways when it last said so, usual is their average.
	others, usual float64
	heard         time.Duration
	// slow is how many times longer than expected its answers take, slowAt when the last was.
	// tried is when it got a request though it was slow.
	slow          float64
	slowAt, tried time.Duration
	// unheard are those of sent that began after its last sign of life, silentSince is when the first of them did.
	// What it had before takes its time.
	unheard     int
	silentSince time.Duration
	out         bool
}

func believed(e filterapi.RouteEndpoint) filterapi.RouteEndpoint {
	e.RTT = min(max(0, e.RTT), rttLimit)
	if e.Service <= 0 {
		e.Service = serviceUnknown
	}
	e.Service = min(e.Service, serviceLimit)
	if !(e.Workers >= 1) { // or not a number
		e.Workers = 1
	}
	e.Workers = min(e.Workers, workersLimit)
	if !(e.Others >= 0) { // or not a number
		e.Others = 0
	}
	e.Others = min(e.Others, inFlightLimit)
	return e
}

func (e *endpoint) said(said filterapi.RouteEndpoint) {
	before := e.rtt + e.service
	e.RouteEndpoint = said
	e.rtt, e.service, e.workers = said.RTT.Seconds(), said.Service.Seconds(), said.Workers
	if e.slowAt == 0 { // no answer has been seen
		e.slow = 1
	} else { // the answers have taken as long as they have, whatever is expected now
		e.slow = rescaled(e.slow, before/(e.rtt+e.service))
	}
	if e.heard == 0 {
		e.others, e.usual, e.turn = said.Others, said.Others, e.service
	}
}

// rescaled is slow by other expectations, which are so many times shorter. What is not enough
// to be believed does not become it by that: it may be of few answers, and else what it began
// with.
func rescaled(slow, shorter float64) float64 {
	after := min(slow*shorter, slowLimit)
	if slow <= slower {
		return min(after, max(1, slow))
	}
	return after
}

// expect returns in what time an answer is to be expected, and what the request costs, in
// seconds.
//
// All own requests in flight count as if they were on the node, also those on their way: so
// many more may be on their way from other gateways, of which nobody has heard.
func (e *endpoint) expect(now time.Duration) (expected, cost float64) {
	others, forgotten := e.othersNow(now)
	ahead := positive(float64(e.sent+e.elsewhere)+others+1-e.workers, forgotten)
	wait := ahead / e.workers * e.turn
	expected = e.rtt + e.service + wait
	cost = expected + (e.regard-1)*wait
	if e.slow > slower { // it is forgiven only
		slow := e.slowNow(now)
		if (now - e.tried).Seconds() < e.slow*expected { // one request tries it, and is not answered yet
			slow = e.slow
		}
		if slow > slower {
			cost *= slow
		}
	}
	if e.unheard > 0 {
		if silent := (now - e.silentSince).Seconds(); silent > patience*expected {
			cost = max(cost, silent)
		}
	}
	return expected, cost
}

// slowNow is slow, as far as it is not forgiven.
func (e *endpoint) slowNow(now time.Duration) float64 {
	return 1 + (e.slow-1)*math.Exp2(-max(0, (now-e.slowAt).Seconds())/forgive)
}

// othersNow is how many requests of other gateways it has: what it said last, as far as that
// still counts, and what it usually says. The variance of that is what was not heard of, or is
// forgotten: as many as chance has it, which is a Poisson distribution, whose variance is its
// mean.
func (e *endpoint) othersNow(now time.Duration) (mean, variance float64) {
	half := memory * e.turn
	fresh := half / (half + max(0, (now-e.heard).Seconds()))
	mean = e.usual + (e.others-e.usual)*fresh
	return mean, mean * (1 - fresh)
}

// positive is the average of what a normal distribution has above 0, about: who may find a
// free worker or a queue has to expect more than the wait behind an average number of
// requests. It is exact where the mean is 0 or far from it, and else too much by at most 0.071
// of the deviation.
func positive(mean, variance float64) float64 {
	return max(0, mean+math.Sqrt(mean*mean+chance*variance)) / 2
}

func (e *endpoint) begin(now time.Duration) {
	if e.unheard == 0 {
		e.silentSince = now
	}
	e.unheard++
	if e.slow > slower {
		e.tried = now
	}
	e.sent++
}

func (e *endpoint) over(sent Sent) {
	e.sent = max(0, e.sent-1)
	if sent.at >= e.silentSince {
		e.unheard = max(0, e.unheard-1)
	}
}

// outcome is what has come of a request.
type outcome int

const (
	failed   outcome = iota
	erred            // the function has answered, with an error of its own
	answered         // and without
)

func outcomeOf(ok bool) outcome {
	if ok {
		return answered
	}
	return failed
}

// answer is of a request that is over.
func (e *endpoint) answer(now time.Duration, sent Sent, o outcome, load *Load) {
	if o == failed {
		e.learn(now, failure, learn) // no stall explains it
		return
	}
	e.unheard = 0
	if load != nil {
		e.hear(now, *load)
	}
	if sent.expected <= 0 {
		return
	}
	ratio := min((now-sent.at).Seconds()/sent.expected, slowLimit)
	if o == erred && ratio < e.slowNow(now) {
		return // who fails at once is not fast
	}
	e.took(now, ratio)
}

// took counts an answer that took so many times what was expected.
func (e *endpoint) took(now time.Duration, ratio float64) {
	slow := e.slowNow(now)
	if slow > slower && ratio < slow {
		e.learn(now, ratio, relief)
		return
	}
	e.learn(now, min(ratio, jump*max(slow, slower)), learn)
}

// learn counts that a request took so many times what was expected, with a share of what is
// believed.
func (e *endpoint) learn(now time.Duration, ratio, share float64) {
	slow := e.slowNow(now)
	e.slow, e.slowAt = slow+(ratio-slow)*share, now
}

func (e *endpoint) hear(now time.Duration, load Load) {
	if load.Workers > 0 {
		e.workers = float64(min(load.Workers, workersLimit))
	}
	if load.Service > 0 {
		e.turn += (min(load.Service, serviceLimit).Seconds() - e.turn) * learn
	}
	e.hearOthers(now, float64(max(0, min(max(0, load.InFlight), inFlightLimit)-e.sent-e.elsewhere)))
}

func (e *endpoint) hearOthers(now time.Duration, others float64) {
	e.others, e.heard = others, now
	e.usual += (others - e.usual) * learn
}
