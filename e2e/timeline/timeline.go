// Package timeline shows cold requests over time: where their phases lie, as an SVG, and how
// much of their time no span explains.
package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Phase is one of the model's parts of a request's time.
type Phase string

// The phases in the model's order: alpha, beta, delta, gamma.
const (
	Schedule  Phase = "schedule"
	ColdStart Phase = "cold start"
	Transfer  Phase = "transfer"
	Execute   Phase = "execute"
)

// Timeline is one request as Draw shows it. All times are since its arrival.
type Timeline struct {
	Label string
	Total time.Duration
	// Bound is trace.Phases.Bound; it is drawn unless zero.
	Bound time.Duration
	Bars  []Bar
}

// Bar is one stretch of a phase.
type Bar struct {
	Phase Phase
	// Label takes the place of the phase's name; empty for that name.
	Label      string
	Start, End time.Duration
}

// Of returns the trace's first request as a timeline: where the phases lie, not only how
// long they are. A phase without spans has no bar, and unless all are there
// the timeline has no bound.
func Of(t trace.Trace, label string) Timeline {
	phases, err := t.Phases()
	line := Timeline{Label: label, Total: phases.Total}
	if err == nil && phases.Relay == 0 {
		line.Bound = phases.Bound()
	}
	root, _ := t.Root()
	since := func(at time.Time) time.Duration { return max(0, at.Sub(root.Start)) }
	for _, s := range t.OwnSpans() {
		switch s.Name {
		case tracing.Fetch, tracing.Receive, tracing.Transfer:
			line.Bars = append(line.Bars, Bar{Phase: Transfer, Label: s.Name, Start: since(s.Start), End: since(s.End)})
		case tracing.Relay:
			line.Bars = append(line.Bars, Bar{
				Phase: ColdStart, Label: s.Name, Start: since(s.Start), End: since(s.End),
			})
		case tracing.Execute:
			line.Bars = append(line.Bars, Bar{Phase: Execute, Start: since(s.Start), End: since(s.End)})
		}
	}
	if phases.Alpha > 0 {
		line.Bars = append(line.Bars, Bar{Phase: Schedule, End: phases.Alpha})
	}
	if phases.Beta > 0 {
		line.Bars = append(line.Bars, Bar{Phase: ColdStart, Start: phases.Alpha, End: phases.Alpha + phases.Beta})
	}
	return line
}

// lanes spreads the bars over as few lanes as keep bars that overlap apart.
func (l Timeline) lanes() [][]Bar {
	bars := slices.Clone(l.Bars)
	order := []Phase{Schedule, ColdStart, Transfer, Execute}
	slices.SortStableFunc(bars, func(a, b Bar) int {
		return cmp.Or(
			cmp.Compare(a.Start, b.Start), cmp.Compare(slices.Index(order, a.Phase), slices.Index(order, b.Phase)),
		)
	})
	var lanes [][]Bar
next:
	for _, b := range bars {
		for i, lane := range lanes {
			if lane[len(lane)-1].End <= b.Start {
				lanes[i] = append(lane, b)
				continue next
			}
		}
		lanes = append(lanes, []Bar{b})
	}
	return lanes
}
