// Package predict learns where the runs of a workflow go: which case each of its switches chooses (SpecFaaS, section V-A). It is
// fed by runs that have ended, and does no I/O.
package predict

import (
	"sync"

	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const (
	// leastShare is how often a case must have been chosen to be the likely one: below, a guess is as often wrong as right
	// (SpecFaaS, section VI, "Configurability": between 40 and 60 % nothing is guessed).
	leastShare = 0.6
	// countsMost is how many choices are counted until all counts are halved: what runs did lately counts for more.
	countsMost = 64
	// routesMost is how many routes to one switch are told apart. Those that come later are counted together.
	routesMost = 64
	// switchesMost is how many are known: more than a document has, and than others may tell of.
	switchesMost = 1024
)

// Predictor knows the switches of one workflow. Its methods may be called at the same time.
type Predictor struct {
	mu       sync.Mutex
	switches map[string]*branch // by their tasks
}

// branch is a switch.
type branch struct {
	all    counts // by whatever route
	routes map[uint64]counts
}

// counts are how often each case was chosen.
type counts map[int]int

// New returns a predictor that knows nothing.
func New() *Predictor { return &Predictor{switches: map[string]*branch{}} }

// Feed notes what a run has chosen.
func (p *Predictor) Feed(choices []program.Choice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range choices {
		b := p.switches[c.Task]
		if b == nil {
			if len(p.switches) == switchesMost {
				for other := range p.switches { // any
					delete(p.switches, other)
					break
				}
			}
			b = &branch{all: counts{}, routes: map[uint64]counts{}}
			p.switches[c.Task] = b
		}
		b.all.add(c.Case)
		of := b.routes[c.Route]
		if of == nil && len(b.routes) < routesMost {
			of = counts{}
			b.routes[c.Route] = of
		}
		if of != nil {
			of.add(c.Case)
		}
	}
}

// Guess implements program.Guess. A run that has come by a route is likely to go where others went that came by the same one.
func (p *Predictor) Guess(task string, route uint64) (chosen int, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.switches[task]
	if b == nil {
		return 0, false
	}
	if of := b.routes[route]; of != nil {
		return of.likely()
	}
	return b.all.likely()
}

func (c counts) add(chosen int) {
	c[chosen]++
	if c.sum() < countsMost {
		return
	}
	for n := range c {
		if c[n] /= 2; c[n] == 0 {
			delete(c, n)
		}
	}
}

func (c counts) sum() (sum int) {
	for _, n := range c {
		sum += n
	}
	return sum
}

func (c counts) likely() (chosen int, known bool) {
	for n, times := range c {
		if float64(times) >= leastShare*float64(c.sum()) {
			return n, true
		}
	}
	return 0, false
}
