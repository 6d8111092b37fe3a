package trace

import (
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Phases is a cold request in the model of Truffle, section III.A: its time is
// alpha + max(beta, delta) + gamma (equation 3) when the input is on its way during the
// cold start, and alpha + beta + delta + gamma when it is not.
type Phases struct {
	// Alpha is scheduling: from the request's arrival at the gateway to the end of
	// placement.
	Alpha time.Duration
	// Beta is the cold start: from the end of placement to the function's readiness,
	// the end of runtime.start. It is v + eta of equation 1.
	Beta time.Duration
	// Delta is the input's way: the time that fetch, receive or transfer take, once where
	// they overlap.
	Delta time.Duration
	// Gamma is the execution.
	Gamma time.Duration
	// Relay is, of a request that another autoscaler took (Knative), all that it did: cold
	// start and execution, whose parts it does not tell. Beta and Gamma are zero then.
	Relay time.Duration
	// Total is the root span's duration, as the client saw it.
	Total time.Duration
}

// Bound is the least that overlapping alone can reach: equation 3. It is not known of a
// relayed request.
func (p Phases) Bound() time.Duration { return p.Alpha + max(p.Beta, p.Delta) + p.Gamma }

// MissingSpans says which spans a trace lacks; what follows from them is zero. A hot
// request lacks most, one without input lacks fetch.
type MissingSpans []string

func (m MissingSpans) Error() string { return "the trace has no span " + strings.Join(m, ", ") }

// Phases measures the trace's first request. The error is a MissingSpans; the other
// phases count nevertheless.
func (t Trace) Phases() (Phases, error) {
	root, ok := t.Root()
	if !ok {
		return Phases{}, MissingSpans{tracing.Gateway}
	}
	own := t.OwnSpans()
	var missing MissingSpans
	find := func(name string) (Span, bool) {
		i := slices.IndexFunc(own, func(s Span) bool { return s.Name == name })
		if i < 0 {
			missing = append(missing, name)
			return Span{}, false
		}
		return own[i], true
	}
	p := Phases{Total: root.Duration()}
	placement, placed := find(tracing.Placement)
	if placed {
		p.Alpha = max(0, placement.End.Sub(root.Start))
	}
	relay := slices.IndexFunc(own, func(s Span) bool { return s.Name == tracing.Relay })
	if relay >= 0 {
		p.Relay = own[relay].Duration()
	} else if ready, ok := find(tracing.RuntimeStart); ok && placed {
		p.Beta = max(0, ready.End.Sub(placement.End))
	}
	var inputs []Span
	for _, s := range own {
		if s.Name == tracing.Fetch || s.Name == tracing.Receive || s.Name == tracing.Transfer {
			inputs = append(inputs, s)
		}
	}
	if len(inputs) == 0 {
		missing = append(missing, tracing.Fetch)
	}
	p.Delta = covered(inputs)
	if relay < 0 {
		if execute, ok := find(tracing.Execute); ok {
			p.Gamma = execute.Duration()
		}
	}
	if len(missing) > 0 {
		return p, missing
	}
	return p, nil
}

// OwnSpans returns the spans of the trace's first request, in tree order: without those
// of requests that the function made in turn.
func (t Trace) OwnSpans() []Span {
	var request string
	foreign := map[string]bool{}
	var own []Span
	for _, s := range t.Spans {
		if request == "" {
			request = s.request()
		}
		if foreign[s.Parent] || s.request() != "" && s.request() != request {
			foreign[s.ID] = true
			continue
		}
		own = append(own, s)
	}
	return own
}

// covered returns how much time the spans take together.
func covered(spans []Span) (sum time.Duration) {
	slices.SortFunc(spans, func(a, b Span) int { return a.Start.Compare(b.Start) })
	var reached time.Time
	for _, s := range spans {
		if s.Start.After(reached) {
			reached = s.Start
		}
		if d := s.End.Sub(reached); d > 0 {
			sum += d
			reached = s.End
		}
	}
	return sum
}
