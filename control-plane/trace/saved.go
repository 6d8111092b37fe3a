package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Saved is what a request would have taken one step after the other, and how much less it took.
// It is an estimate from the request's own spans: without Headstart a step may take another time
// than beside the others.
type Saved struct {
	// MS is Of minus what the request took, in milliseconds; 0 if that is not less.
	MS float64 `json:"ms"`
	// OfMS is alpha + beta + delta + gamma in milliseconds; 0 if not all of them are known.
	OfMS float64 `json:"ofMs"`
	// The steps in milliseconds: alpha, beta, delta, gamma.
	ScheduleMS  float64 `json:"scheduleMs"`
	ColdStartMS float64 `json:"coldStartMs"`
	TransferMS  float64 `json:"transferMs"`
	ExecuteMS   float64 `json:"executeMs"`
	// Reason is why nothing was saved, or, if Unknown, why that is not known.
	Reason  string `json:"reason,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// Saved compares the trace's first request with the same steps one after the other.
func (t Trace) Saved() Saved {
	p, err := t.Phases()
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	s := Saved{ScheduleMS: ms(p.Alpha), ColdStartMS: ms(p.Beta), TransferMS: ms(p.Delta), ExecuteMS: ms(p.Gamma)}
	if s.Reason, s.Unknown = t.nothingSaved(p, err); s.Reason != "" {
		return s
	}
	apart := p.Alpha + p.Beta + p.Delta + p.Gamma
	s.OfMS = ms(apart)
	if s.MS = ms(max(apart-p.Total, 0)); s.MS == 0 {
		s.Reason = "one step after the other would have taken as long"
	}
	return s
}

// nothingSaved is why there is nothing to compare, empty if there is.
func (t Trace) nothingSaved(p Phases, err error) (reason string, unknown bool) {
	root, _ := t.Root()
	own := t.OwnSpans()
	failed := slices.ContainsFunc(own, func(s Span) bool { return s.Status == Error })
	cold := slices.ContainsFunc(own, Span.cold)
	var missing MissingSpans
	errors.As(err, &missing)
	switch {
	case root.Name == tracing.Job:
		return "the start of a job waits for its input", true
	case p.Relay > 0:
		return "another autoscaler runs the function, and does not tell its cold start from its execution", true
	case t.AwaitsActivation():
		return MissingSpans{tracing.Activation}.Error(), true
	case failed:
		return "a step failed", false
	case !cold:
		return "the request waited for no cold start", false
	case p.Delta == 0 && slices.Contains(missing, tracing.Fetch):
		return "no input was on its way during the cold start", false
	case len(missing) > 0:
		return missing.Error(), true
	}
	return "", false
}

// String is the waterfall's last line.
func (s Saved) String() string {
	round := func(ms float64) int { return int(math.Round(ms)) }
	switch {
	case s.Unknown:
		return "what was saved is not known: " + s.Reason
	case s.MS == 0:
		return "saved nothing: " + s.Reason
	}
	return fmt.Sprintf("saved %d of %d ms (schedule %d + cold start %d + transfer %d + execute %d)",
		round(s.MS), round(s.OfMS), round(s.ScheduleMS), round(s.ColdStartMS), round(s.TransferMS), round(s.ExecuteMS))
}
