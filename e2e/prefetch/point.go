// Package prefetch is what the benchmark of prefetching makes of its measurements: Truffle's
// model and figures. What measures is in cmd/bench-prefetch.
package prefetch

import (
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

// Branch is one cold function's part of a workflow, as it was measured.
type Branch struct {
	// Alpha is from the request's sending to the end of placement, Beta from there to the
	// function's readiness.
	Alpha, Beta time.Duration
	// Input is how long the function itself took to have its input.
	Input time.Duration
	// Delta is how long Headstart took to bring it, 0 without.
	Delta time.Duration
	// Gamma is the function's execution, by itself.
	Gamma time.Duration
}

// Run is one pass of a workflow. Its stages come one after the other, the branches of a
// stage at once.
type Run struct {
	Total  time.Duration
	Stages [][]Branch
}

// Point is one point of a figure with all that was measured of it.
type Point struct {
	Passing step.Passing
	Size    int64 // of the first function's data, in bytes
	// Startup is what the function's start takes beyond its own.
	Startup time.Duration
	Off, On []Run
}

// Row is a point's medians.
type Row struct {
	Passing step.Passing
	Size    int64
	Startup time.Duration
	Off, On time.Duration // totals
	Stages  [][]coldrun.Components
}

// Row sums the point up. The components are those of the requests without Headstart, where
// the parts come one after the other and do not disturb each other; but the transfer is the
// faster of the function's own and Headstart's: no bound is helped by a slow client.
func (p Point) Row() Row {
	total := func(r Run) time.Duration { return r.Total }
	row := Row{Passing: p.Passing, Size: p.Size, Startup: p.Startup, Off: median(p.Off, total), On: median(p.On, total)}
	for s, stage := range p.Off[0].Stages {
		var branches []coldrun.Components
		for b := range stage {
			of := func(part func(Branch) time.Duration) func(Run) time.Duration {
				return func(r Run) time.Duration { return part(r.Stages[s][b]) }
			}
			branches = append(branches, coldrun.Components{
				Alpha: median(p.Off, of(func(b Branch) time.Duration { return b.Alpha })),
				Beta:  median(p.Off, of(func(b Branch) time.Duration { return b.Beta })),
				Gamma: median(p.Off, of(func(b Branch) time.Duration { return b.Gamma })),
				Delta: min(median(p.Off, of(func(b Branch) time.Duration { return b.Input })),
					median(p.On, of(func(b Branch) time.Duration { return b.Delta }))),
			})
		}
		row.Stages = append(row.Stages, branches)
	}
	return row
}

func median(runs []Run, of func(Run) time.Duration) time.Duration {
	all := make([]time.Duration, len(runs))
	for i, r := range runs {
		all[i] = of(r)
	}
	return coldrun.Median(all)
}

// sum adds the stages up, each as long as its longest branch.
func (r Row) sum(of func(coldrun.Components) time.Duration) (sum time.Duration) {
	for _, stage := range r.Stages {
		var longest time.Duration
		for _, b := range stage {
			longest = max(longest, of(b))
		}
		sum += longest
	}
	return sum
}

// Bound is what overlap alone can reach (equation 3 of the paper).
func (r Row) Bound() time.Duration { return r.sum(coldrun.Components.Bound) }

// Floor is a request that has no input to wait for.
func (r Row) Floor() time.Duration {
	return r.sum(func(c coldrun.Components) time.Duration { return c.Alpha + c.Beta + c.Gamma })
}

// What a total may exceed its bound by: the larger of the two.
const (
	slackShare = 0.05
	slackLeast = 25 * time.Millisecond
)

// Excess is how much of its slack the total with Headstart takes; above 1 it misses its
// bound, below 0 it is better.
func (r Row) Excess() float64 {
	bound := r.Bound()
	return float64(r.On-bound) / max(slackShare*float64(bound), float64(slackLeast))
}

// Reduction is by how much of itself Headstart makes the total shorter.
func (r Row) Reduction() float64 { return 1 - float64(r.On)/float64(r.Off) }

// countedFrom is the size from which on the impact of I/O counts, in bytes.
const countedFrom = coldrun.Megabyte

// IOReduction is by how much of itself Headstart makes the impact of I/O on the total
// smaller: what the total has above the floor. It counts where a cold start is long enough to
// hide the whole transfer, and the input is not so small that there is nothing to hide.
func (r Row) IOReduction() (share float64, counts bool) {
	for _, stage := range r.Stages {
		for _, b := range stage {
			counts = b.Beta >= b.Delta
			if !counts {
				return 0, false
			}
		}
	}
	floor := r.Floor()
	return 1 - float64(r.On-floor)/float64(r.Off-floor), r.Size >= countedFrom
}
