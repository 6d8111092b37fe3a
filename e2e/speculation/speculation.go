// Package speculation is what the benchmark of workflows that run ahead makes of its measurements. What measures is in
// cmd/bench-speculation.
package speculation

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/result"
)

// The parts: one request at a time, to functions that run; what it costs; how soon a squashed call is over; what a store's
// commands cost; requests that come at random;
// and one at a time to functions of which none runs.
const (
	Latency = "latency"
	Cost    = "cost"
	Squash  = "squash"
	State   = "state"
	Load    = "load"
	Cold    = "cold"
)

// The summary's names. Those of a share of right guesses end with it, in percent.
const (
	SequentialVsPlain = "sequential_vs_plain"
	OfIdeal           = "of_ideal_%d"
	Speedup           = "speedup_%d"
	SpeedupVsRestate  = "speedup_vs_restate"
	WorkRatio         = "work_ratio_%d"
	CPUAdded          = "cpu_added_us"
	SquashFence       = "squash_fence_p50_ms"
	SquashFree        = "squash_free_p50_ms"
	P99Ratio          = "p99_ratio_90"
	GoodputRatio      = "goodput_ratio"
	StateAdded        = "state_added_us"
	ColdSpeedup       = "cold_speedup"
)

// Hits are the shares of right guesses, in percent.
var Hits = []int{100, 90, 50}

// DurableHit is the share at which an engine whose steps are durable is measured, too.
const DurableHit = 90

// Limits are those of all figures of the summary, in their order.
var Limits = []result.Limit{
	{Name: SequentialVsPlain, Limit: 1.05},
	{Name: fmt.Sprintf(OfIdeal, 100), Limit: 0.7, AtLeast: true}, {Name: fmt.Sprintf(OfIdeal, 90), Limit: 0.65, AtLeast: true},
	{Name: fmt.Sprintf(OfIdeal, 50), Limit: 0.6, AtLeast: true},
	{Name: fmt.Sprintf(Speedup, 100), Limit: 4, AtLeast: true}, {Name: fmt.Sprintf(Speedup, 90), Limit: 3.3, AtLeast: true},
	{Name: fmt.Sprintf(Speedup, 50), Limit: 1.8, AtLeast: true}, {Name: SpeedupVsRestate, Limit: 4, AtLeast: true},
	{Name: P99Ratio, Limit: 0.6}, {Name: GoodputRatio, Limit: 0.9, AtLeast: true},
	{Name: fmt.Sprintf(WorkRatio, 90), Limit: 1.12}, {Name: fmt.Sprintf(WorkRatio, 50), Limit: 1.45}, {Name: CPUAdded, Limit: 300},
	{Name: SquashFence, Limit: 1}, {Name: SquashFree, Limit: 3},
	{Name: StateAdded, Limit: 100}, {Name: ColdSpeedup, Limit: 2.5, AtLeast: true},
}

// App is an application of FaaSChain, created again: the paper tells how many functions and branches the applications have on average
// (SpecFaaS, table I), and not their code.
type App struct {
	Name string
	// Path is how many functions a request passes that finds what was guessed, and Functions how many there are.
	Path, Functions int
	// Branches is how many of them decide, by what they answer, what the rest gets.
	Branches int
}

// Apps are all of them.
var Apps = []App{{"login", 3, 3, 1}, {"banking", 5, 6, 2}, {"flightbook", 8, 11, 3}, {"hotelbook", 6, 7, 2}, {"smarth", 5, 7, 3},
	{"onlpurch", 10, 13, 4}}

// ColdApp is one whose functions are started for each request.
var ColdApp = App{"cold", 5, 5, 0}

// Names are those of the app's functions: of the path, and of the detours.
func (a App) Names() (path, detours []string) {
	for i := range a.Path {
		path = append(path, fmt.Sprintf("%s-%d", a.Name, i))
	}
	for i := range a.Functions - a.Path {
		detours = append(detours, fmt.Sprintf("%s-%d-else", a.Name, i))
	}
	return path, detours
}

// Decides are the places on the path of the functions that decide, the first ones of which have a detour.
func (a App) Decides() (places []int) {
	for i := range a.Branches {
		places = append(places, i*(a.Path-1)/a.Branches)
	}
	return places
}

// Walk calls the app's functions one after the other, each with what it is to get. What they return is the way that they choose.
func (a App) Walk(call func(name string, body map[string]any) (way any, err error)) (err error) {
	path, detours := a.Names()
	decides := map[int]int{}
	for i, place := range a.Decides() {
		decides[place] = i + 1
	}
	var way any
	for i, name := range path {
		branch := decides[i]
		if way, err = call(name, map[string]any{"way": way, "branch": branch > 0}); err != nil {
			return err
		}
		if branch > 0 && branch <= len(detours) && way == "y" {
			if way, err = call(detours[branch-1], map[string]any{"way": way, "branch": false}); err != nil {
				return err
			}
		}
	}
	return nil
}

// Tasks are the tasks of the app's workflow, as a document has them: each function gets which way the one before has chosen. How often
// they choose the unlikely one is in the baggage, which is no part of what is remembered.
func (a App) Tasks(suffix string) string {
	path, detours := a.Names()
	var b strings.Builder
	call := func(name, branch, then string) {
		fmt.Fprintf(&b, "  - %s:\n      call: http\n      with: { method: post, endpoint: 'http://%s%s.default/', headers: { baggage: '${ $workflow.input.miss }' }, body: { way: '${ .way }', branch: %s } }\n",
			name, name, suffix, branch)
		if then != "" {
			fmt.Fprintf(&b, "      then: %s\n", then)
		}
	}
	decides := map[int]int{}
	for i, place := range a.Decides() {
		decides[place] = i + 1
	}
	for i, name := range path {
		branch := decides[i]
		call(name, fmt.Sprint(branch > 0), "")
		if branch > 0 && branch <= len(detours) {
			fmt.Fprintf(&b, "  - %s-way: { switch: [ { y: { when: .way == \"y\", then: %s } }, { x: { then: %s } } ] }\n", name, detours[branch-1], path[i+1])
			call(detours[branch-1], "false", path[i+1])
		}
	}
	return b.String()
}

// Miss is the share of answers with the unlikely way of which the last answer is the right guess in so many percent: two answers in a row are
// the same with 1 - 2m(1-m).
func Miss(hit int) float64 { return (1 - math.Sqrt(2*float64(hit)/100-1)) / 2 }

// Ideal is how long a request takes a scheduler without cost that knows no more, on average: what was guessed right works at the same time,
// and what follows a wrong guess begins when that is known. Functions take as long as some have taken.
func (a App) Ideal(r *rand.Rand, hit int, times []time.Duration) time.Duration {
	const requests = 10_000
	decides := map[int]bool{}
	for _, place := range a.Decides() {
		decides[place] = true
	}
	var sum time.Duration
	for range requests {
		var longest time.Duration
		for i := range a.Path {
			longest = max(longest, times[r.IntN(len(times))])
			if decides[i] && r.Float64() >= float64(hit)/100 {
				sum, longest = sum+longest, 0
			}
		}
		sum += longest
	}
	return sum / requests
}

// Part is what one part of the benchmark has measured.
type Part = result.Part[cache.Point]

// Results are all parts by their names.
type Results map[string]Part

// Summary has the worst of each figure.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, part := range r {
		s.TakeFigures(Limits, part.Figures)
	}
	return s
}

// Figures are the drawings: none yet.
func (r Results) Figures() map[string][]chart.Panel { return nil }
