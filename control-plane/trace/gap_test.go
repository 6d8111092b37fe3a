package trace_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func TestMaxGap(t *testing.T) {
	const gateway, node = tracing.ServiceGateway, tracing.ServiceNode
	root := span("01", "", gateway, "gateway", 0, 100)
	for name, tc := range map[string]struct {
		spans   []trace.Span
		root    string
		gap, at int // ms
	}{
		"no spans":               {},
		"nothing but the root":   {spans: []trace.Span{root}, gap: 100},
		"explained throughout":   {spans: []trace.Span{root, span("02", "01", node, "fetch", 0, 100)}},
		"the end is unexplained": {spans: []trace.Span{root, span("02", "01", node, "fetch", 0, 70)}, gap: 30, at: 70},
		"between two":            {spans: []trace.Span{root, span("02", "01", node, "fetch", 0, 20), span("03", "01", node, "execute", 60, 100)}, gap: 40, at: 20},
		"the longest counts":     {spans: []trace.Span{root, span("02", "01", node, "fetch", 10, 20), span("03", "01", node, "execute", 25, 40)}, gap: 60, at: 40},
		"an umbrella hides nothing": {spans: []trace.Span{root, span("02", "01", node, "activation", 0, 100),
			span("03", "02", node, "fetch", 0, 50), span("04", "02", "mesh", "hop", 50, 100), span("05", "04", node, "execute", 80, 100)}, gap: 30, at: 50},
		"an umbrella whose details are lost hides nothing": {spans: []trace.Span{root, span("02", "01", node, "activation", 0, 100)}, gap: 100},
		"the gateway's upstream span hides nothing":        {spans: []trace.Span{root, span("02", "01", gateway, "router", 5, 95)}, gap: 100},
		"a foreign span without details counts":            {spans: []trace.Span{root, span("02", "01", "mesh", "hop", 0, 100)}},
		"details of work take nothing away": {spans: []trace.Span{root, span("02", "01", node, "sandbox.create", 0, 100),
			span("03", "02", tracing.ServiceShim, "runc.create", 40, 60)}},
		"a function's own spans take nothing away": {spans: []trace.Span{root, span("02", "01", node, "deliver", 0, 40), span("04", "01", node, "execute", 40, 100), span("03", "02", "function", "query", 45, 60)}},
		"a short span within a long one":           {spans: []trace.Span{root, span("02", "01", node, "fetch", 0, 90), span("03", "01", node, "execute", 10, 20)}, gap: 10, at: 90},
		"clocks that differ": {spans: []trace.Span{root, span("02", "01", node, "fetch", -3, 40), span("03", "01", node, "execute", 45, 104),
			span("04", "01", node, "placement", -9, -5), span("05", "01", node, "transfer", 101, 120)}, gap: 5, at: 40},
		"another root":         {spans: []trace.Span{root, span("02", "01", node, "activation", 20, 80), span("03", "02", node, "fetch", 30, 80)}, root: "02", gap: 10},
		"a root that is not":   {spans: []trace.Span{root}, root: "nobody"},
		"orphans explain, too": {spans: []trace.Span{root, span("02", "lost", node, "runtime.start", 0, 100)}},
	} {
		gap, at := trace.MaxGap(trace.New(traceID, tc.spans), tc.root)
		if gap != time.Duration(tc.gap)*time.Millisecond || at != time.Duration(tc.at)*time.Millisecond {
			t.Errorf("%s: gap %v at %v, want %d ms at %d ms", name, gap, at, tc.gap, tc.at)
		}
	}
}

func TestMaxGapOfAColdRequestIsSmall(t *testing.T) {
	if gap, at := trace.MaxGap(cold(), ""); gap > 5*time.Millisecond {
		t.Errorf("gap %v at %v", gap, at)
	}
}

func TestMaxGapStaysWithinTheRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		root, _ := tr.Root()
		gap, at := trace.MaxGap(tr, "")
		if gap < 0 || at < 0 || at+gap > root.Duration() {
			t.Fatalf("gap %v at %v within %v", gap, at, root.Duration())
		}
	})
}

func TestMoreWorkNeverMakesAGapLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		root, ok := tr.Root()
		if !ok {
			return
		}
		before, _ := trace.MaxGap(tr, root.ID)
		start := rapid.Float64Range(0, 2000).Draw(t, "start")
		more := span("more", "", tracing.ServiceNode, "fetch", start, start+rapid.Float64Range(0, 500).Draw(t, "length"))
		after, _ := trace.MaxGap(trace.New(traceID, append(tr.Spans, more)), root.ID)
		if after > before {
			t.Fatalf("gap grew from %v to %v", before, after)
		}
	})
}
