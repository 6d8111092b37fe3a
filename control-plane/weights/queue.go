package weights

import "math"

// steep is the utilization from which on the price is continued as a straight line. Queueing
// theory has it grow without end, but also knows steady states only: more requests than
// workers, for a while, is a long wait and not an infinite one.
const steep = 0.95

// queue is a node as one with c workers and a wait before them.
type queue struct {
	service, workers, busy float64
	exponent               float64
	// value and slope of growth at steep.
	atSteep, slopeAtSteep float64
}

func newQueue(n Node) queue {
	q := queue{service: n.Service, workers: n.Workers, busy: n.Busy,
		// Less than one worker is what is left of a silent node: it waits as one does.
		exponent: math.Sqrt(2*(max(1, n.Workers)+1)) - 1}
	q.atSteep, q.slopeAtSteep = q.growth(steep)
	return q
}

// utilization is the share of its workers' time that a node is busy if it gets load
// requests per second of the function.
func (q *queue) utilization(load float64) float64 {
	return (load*q.service + q.busy) / q.workers
}

// wait is the expected time before a worker is free, in seconds, by Sakasegawa's
// approximation of M/M/c ("An approximation formula L_q = alpha*rho^beta/(1-rho)", 1977):
//
//	Wq = s/c * rho^(sqrt(2(c+1))-1) / (1-rho)
func (q *queue) wait(load float64) float64 {
	rho := q.utilization(load)
	within := min(rho, steep)
	w := math.Pow(within, q.exponent) / (1 - within)
	if beyond := rho - steep; beyond > 0 { // rho*Wq is the integral of growth
		w = (steep*w + beyond*q.atSteep + beyond*beyond*q.slopeAtSteep/2) / rho
	}
	return q.service / q.workers * w
}

// growth is d/drho of rho^(a+1)/(1-rho), which is rho*Wq in units of s/c, and its own slope.
func (q *queue) growth(rho float64) (value, slope float64) {
	a, idle := q.exponent, 1-rho
	p := math.Pow(rho, a-1) // a >= 1
	value = p * rho * ((a+1)/idle + rho/(idle*idle))
	slope = p * ((a+1)*a/idle + 2*(a+1)*rho/(idle*idle) + 2*rho*rho/(idle*idle*idle))
	return value, slope
}

// price is what one more request per second costs everybody, in seconds: its own time on
// the node, and what it makes the others wait. That is d/dx of x*(s + Wq), with the other
// functions' requests counted among the others. slope is its derivative.
func (q *queue) price(load float64) (price, slope float64) {
	rho := q.utilization(load)
	value, grows := q.atSteep, q.slopeAtSteep
	if rho < steep {
		value, grows = q.growth(rho)
	} else {
		value += (rho - steep) * grows
	}
	unit := q.service / q.workers
	return q.service + unit*value, unit * grows * unit
}
