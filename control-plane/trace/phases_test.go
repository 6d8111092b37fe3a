package trace_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const ms = time.Millisecond

func TestPhasesOfAColdRequest(t *testing.T) {
	got, err := cold().Phases()
	if err != nil {
		t.Fatal(err)
	}
	want := trace.Phases{Alpha: 12 * ms, Beta: 599 * ms, Delta: 922400 * time.Microsecond, Gamma: 341500 * time.Microsecond, Total: 1284300 * time.Microsecond}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got, want := got.Bound(), (12*ms + 922400*time.Microsecond + 341500*time.Microsecond); got != want {
		t.Errorf("bound %v, want %v", got, want)
	}
}

func TestPhases(t *testing.T) {
	const gateway, node = tracing.ServiceGateway, tracing.ServiceNode
	root := span("01", "", gateway, "gateway", 0, 100)
	placement := span("02", "01", node, "placement", 2, 10)
	ready := span("03", "01", node, "runtime.start", 20, 50)
	execute := span("04", "01", node, "execute", 60, 90)
	for name, tc := range map[string]struct {
		spans   []trace.Span
		want    trace.Phases
		missing trace.MissingSpans
	}{
		"nothing":     {missing: trace.MissingSpans{"gateway"}},
		"hot request": {spans: []trace.Span{root}, want: trace.Phases{Total: 100 * ms}, missing: trace.MissingSpans{"placement", "runtime.start", "fetch", "execute"}},
		"no input": {spans: []trace.Span{root, placement, ready, execute},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Gamma: 30 * ms, Total: 100 * ms}, missing: trace.MissingSpans{"fetch"}},
		"beta needs placement": {spans: []trace.Span{root, ready, span("05", "01", node, "fetch", 5, 6), execute},
			want: trace.Phases{Delta: ms, Gamma: 30 * ms, Total: 100 * ms}, missing: trace.MissingSpans{"placement"}},
		"fetch and transfer one after the other": {spans: []trace.Span{root, placement, ready, execute, span("05", "01", node, "fetch", 10, 30), span("06", "01", node, "transfer", 35, 40)},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Delta: 25 * ms, Gamma: 30 * ms, Total: 100 * ms}},
		"fetch and transfer at once": {spans: []trace.Span{root, placement, ready, execute, span("05", "01", node, "fetch", 10, 30), span("06", "01", node, "transfer", 12, 33)},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Delta: 23 * ms, Gamma: 30 * ms, Total: 100 * ms}},
		"a body that only travels": {spans: []trace.Span{root, placement, ready, execute, span("06", "01", node, "transfer", 12, 33)},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Delta: 21 * ms, Gamma: 30 * ms, Total: 100 * ms}},
		"a body that two nodes receive": {spans: []trace.Span{root, placement, ready, execute, span("05", "01", node, "receive", 1, 33), span("06", "01", node, "transfer", 12, 14), span("07", "06", node, "receive", 14, 35)},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Delta: 34 * ms, Gamma: 30 * ms, Total: 100 * ms}},
		"clocks that differ": {spans: []trace.Span{root, span("02", "01", node, "placement", -5, -1), span("03", "01", node, "runtime.start", -9, -2), execute, span("05", "01", node, "fetch", 1, 2)},
			want: trace.Phases{Delta: ms, Gamma: 30 * ms, Total: 100 * ms}},
		"the function's own calls do not count": {spans: []trace.Span{root,
			span("10", "01", node, "activation", 1, 99, "headstart.request", one), placement, ready, execute,
			span("11", "04", gateway, "gateway", 62, 88, "headstart.request", two), span("12", "11", node, "fetch", 63, 80)},
			want: trace.Phases{Alpha: 10 * ms, Beta: 40 * ms, Gamma: 30 * ms, Total: 100 * ms}, missing: trace.MissingSpans{"fetch"}},
		"another autoscaler's": {spans: []trace.Span{root, placement, span("05", "01", node, "fetch", 1, 60), span("06", "01", node, "relay", 11, 95)},
			want: trace.Phases{Alpha: 10 * ms, Delta: 59 * ms, Relay: 84 * ms, Total: 100 * ms}},
	} {
		got, err := trace.New(traceID, tc.spans).Phases()
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		var missing trace.MissingSpans
		errors.As(err, &missing)
		if d := cmp.Diff(tc.missing, missing); d != "" || (err == nil) != (len(tc.missing) == 0) {
			t.Errorf("%s: error %v: %s", name, err, d)
		}
	}
}

func TestPhasesAreNeverNegativeAndTheBoundLiesBelowTheirSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, _ := anyTrace().Draw(t, "trace").Phases()
		if min(p.Alpha, p.Beta, p.Delta, p.Gamma, p.Total) < 0 {
			t.Fatalf("negative: %+v", p)
		}
		if b := p.Bound(); b > p.Alpha+p.Beta+p.Delta+p.Gamma || b < max(p.Alpha, p.Beta, p.Delta, p.Gamma) {
			t.Fatalf("bound %v of %+v", b, p)
		}
	})
}
