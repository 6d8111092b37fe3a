package timeline

import (
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// work names the spans that say all about their time, whatever lies below them: the
// other node's activation hangs below transfer, and what a function traces for itself
// below deliver.
var work = map[string]bool{
	tracing.Placement:     true,
	tracing.SandboxCreate: true,
	tracing.RuncCreate:    true,
	tracing.RuncStart:     true,
	tracing.RuntimeStart:  true,
	tracing.Fetch:         true,
	tracing.Receive:       true,
	tracing.Transfer:      true,
	tracing.Deliver:       true,
	tracing.Execute:       true,
	tracing.Relay:         true,
}

// MaxGap returns the longest time within the root span that no other span explains,
// and how long after the root's start it begins.
//
// An umbrella explains nothing: it would hide every gap below it. So the gateway's spans
// and activation, which last as long as the request, never count; the spans of one kind
// of work always do; and any other, such as a client's or a function's, only if no span
// below it says more. A span of known work therefore never makes a gap longer.
func MaxGap(t trace.Trace) (gap, at time.Duration) {
	r, ok := t.Root()
	if !ok {
		return 0, 0
	}
	spans := explaining(t, r.ID)
	// Clocks differ a little between processes: whatever sticks out is cut off.
	reached := r.Start
	for _, s := range append(spans, trace.Span{Start: r.End, End: r.End}) {
		start := s.Start
		if start.After(r.End) {
			start = r.End
		}
		if d := start.Sub(reached); d > gap {
			gap, at = d, reached.Sub(r.Start)
		}
		if s.End.After(reached) {
			reached = s.End
		}
	}
	return gap, at
}

// explaining returns the spans besides the root that explain their time, by start.
func explaining(t trace.Trace, root string) []trace.Span {
	parents := make(map[string]bool, len(t.Spans))
	for _, s := range t.Spans {
		parents[s.Parent] = true
	}
	gateway, _ := t.Gateway()
	var spans []trace.Span
	for _, s := range t.Spans {
		umbrella := s.ID == root || s.Service == gateway.Service || s.Name == tracing.Activation
		if !umbrella && (work[s.Name] || !parents[s.ID]) {
			spans = append(spans, s)
		}
	}
	slices.SortFunc(spans, func(a, b trace.Span) int { return a.Start.Compare(b.Start) })
	return spans
}
