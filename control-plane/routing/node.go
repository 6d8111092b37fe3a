package routing

import (
	"cmp"
	"math"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/weights"
)

const (
	// guess is how many requests an endpoint is taken to work on at a time of which nobody has
	// told: programs that wait for others work on dozens, those that compute on some. That it
	// was too many shows by requests that wait, that it was too few by an endpoint that is full
	// and has none wait.
	guess = 16
	// guessMost is more than a program works on at a time that says nothing of it.
	guessMost = 1024
	// slow is how many times as long as the work itself requests are on a node that has too
	// many of them, and noise how much longer, in seconds, they may seem to be: what is on its
	// way to a node is told from what is on it by the round trip, and that is an estimate.
	slow, noise = 2.0, 10e-3
	// full is which part of the guessed workers has to be busy, without anybody waiting, for
	// there to be more of them.
	full = 0.8
	// idle is the part of a node's workers that may be busy, by its own word, and nobody wait
	// for doubted times as long as the work takes.
	idle, doubted = 0.5, 4.0
	// forgotten is after what time a node is believed again that has given no new reason for
	// doubt.
	forgotten = time.Hour
	// answering is how many requests per second a node has to answer, as gateways see it, to
	// be well while its daemon is silent.
	answering = 1.0
)

// node is what is taken to be so of one node.
type node struct {
	weights.Node
	signals.Estimate
	// guessed: nobody has told how many it works on, or what was told cannot be.
	guessed bool
	// doubted: by its own word it had room, and yet requests waited.
	doubted bool
}

// learnt is what has been learnt of a node, and stays when nothing is heard of it.
type learnt struct {
	service, sojourn time.Duration // 0: never known
	told             float64       // how many requests its program works on at a time, by its last word; 0: none
	each             float64       // the same guessed, of each endpoint
	doubt            doubt
	answers          answers
}

// learn takes what was measured of a node with so many endpoints since so long ago.
func (c *learnt) learn(e signals.Estimate, endpoints int, passed time.Duration) node {
	own := e.Trust == 1 // and not, in part, what other nodes say
	if c.each == 0 {
		c.each = guess
		if e.Capacity > 0 { // of the others
			c.each = bound(e.Capacity / float64(endpoints))
		}
	}
	if own && e.Capacity > 0 {
		c.told = e.Capacity
	}
	c.service, c.sojourn = cmp.Or(e.ServiceTime, c.service), cmp.Or(e.SojournTime, c.sojourn)
	n := node{Estimate: e, Node: weights.Node{Service: c.service.Seconds(), Sojourn: c.sojourn.Seconds(), Workers: c.told}}
	waits := own && n.Service > 0 && n.Sojourn > slow*n.Service && n.Sojourn-n.Service > noise
	busy := e.RPS * n.Service
	if own {
		c.adapt(busy, n.Service, n.Sojourn, waits, float64(endpoints))
	}
	lies := waits && c.told > 0 && busy < idle*c.told && n.Sojourn > doubted*n.Service
	if seen := believed(e.Seen); lies {
		c.doubt.confirm(n.Sojourn, seen)
	} else {
		c.doubt.watch(waits, seen, c.told/n.Service, passed)
	}
	n.doubted = c.doubt.left > 0
	// What other functions' instances do there takes no worker of this one's; what they take of
	// the cores shows as time.
	if n.guessed = c.told == 0 || n.doubted; n.guessed {
		n.Workers = c.each * float64(endpoints)
	}
	switch {
	case lies:
		n.Service = n.Sojourn
	case n.doubted:
		n.Service = max(n.Service, n.Workers/c.doubt.manages)
	}
	if !own {
		e.RPS, e.EPS = 0, 0
	}
	c.answers.add(e, passed)
	return n
}

// adapt guesses anew. busy is how many requests were worked on at a time.
func (c *learnt) adapt(busy, service, sojourn float64, waits bool, endpoints float64) {
	switch {
	case waits:
		// With one worker, sojourn = service / (1 - utilization); more of them wait for less.
		c.each = bound(min(c.each, busy*sojourn/(sojourn-service)/endpoints))
	case busy > full*c.each*endpoints:
		c.each = bound(2 * c.each)
	}
}

// bound returns x as far as it can be a number of workers.
func bound(x float64) float64 {
	if math.IsNaN(x) {
		return 1
	}
	return min(max(x, 1), guessMost)
}

// silence is for how long nothing was heard of a node that has been heard; p.mu is held.
func (p *Planner) silence(name string, e signals.Estimate, now time.Time) time.Duration {
	if late, known := p.measured.Overdue(name, now); known {
		p.heard[name] = latest(p.heard[name], now.Add(-late))
	}
	// A daemon that restarts says nothing for a while, and its node goes on.
	if e.Trust == 1 && e.RPS-e.EPS > max(answering, e.EPS) {
		p.heard[name] = latest(p.heard[name], now.Add(-e.Age))
	}
	last, known := p.heard[name]
	if !known {
		return 0
	}
	return now.Sub(last)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
