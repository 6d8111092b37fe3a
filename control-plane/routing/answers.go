package routing

import (
	"math"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/signals"
)

const (
	// counted is in what time half of the requests are forgotten that a node has answered or
	// failed. It gets hardly any while it fails, so this is when it is tried again.
	counted = 30 * time.Second
	// most is as how many requests all that is remembered counts at most: that a node fails has
	// to show soon, however many it has answered.
	most = 256
	// few is as how many answers it counts that nothing is known of a node.
	few = 1
	// failing is the part of the requests that others would answer by which somebody should look
	// at a node.
	failing = 0.5
)

// answers are how many requests ended on a node, and how many of them failed.
type answers struct{ ended, failed float64 }

func (a *answers) add(e signals.Estimate, passed time.Duration) {
	ended := believed(e.RPS) * passed.Seconds()
	failed := min(believed(e.EPS)*passed.Seconds(), ended)
	left := math.Exp2(-float64(passed) / float64(counted))
	a.ended, a.failed = left*a.ended+ended, left*a.failed+failed
	if over := a.ended / most; over > 1 {
		a.ended, a.failed = a.ended/over, a.failed/over
	}
}

// requestsMost is more requests than a node ends in a second.
const requestsMost = 1e6

// believed returns a number of requests per second as far as it can be one.
func believed(x float64) float64 {
	if !(x > 0) { // or not a number
		return 0
	}
	return min(x, requestsMost)
}

// rate is which part is answered. That of few requests is taken to be all.
func (a answers) rate() float64 { return (a.ended - a.failed + few) / (a.ended + few) }

// success is which part is answered of what others answer, at most all of it: what an
// application fails on its own account it fails everywhere.
func (a answers) success(others answers) float64 { return min(1, a.rate()/others.rate()) }

// compare tells of each node how it answers beside the others.
func (f *function) compare() {
	var all answers
	for _, name := range f.nodes {
		of := f.learnt[name].answers
		all.ended, all.failed = all.ended+of.ended, all.failed+of.failed
	}
	for j, name := range f.nodes {
		of := f.learnt[name].answers
		f.measured[j].Success = of.success(answers{max(0, all.ended-of.ended), max(0, all.failed-of.failed)})
	}
}
