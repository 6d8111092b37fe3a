package kube

import (
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
)

// Problems are what is wrong now with what Services ask for.
func (p *Platform) Problems() []catalog.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []catalog.Problem
	for _, of := range p.problems {
		all = append(all, of...)
	}
	slices.SortStableFunc(all, func(a, b catalog.Problem) int {
		if a.Function < b.Function {
			return -1
		}
		return 1
	})
	return all
}

// StoodStill has the last sweep be so much longer ago.
func (p *Platform) StoodStill(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.swept = p.swept.Add(-d)
}
