package timeline_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/timeline"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// span is a span of one day; start and end in milliseconds.
func span(id, parent, service, name string, start, end float64) trace.Span {
	at := func(ms float64) time.Time { return time.Unix(0, int64(ms*float64(time.Millisecond))) }
	return trace.Span{ID: id, Parent: parent, Service: service, Name: name, Start: at(start), End: at(end)}
}

// anyTrace draws a trace with any parents and any times within a second.
func anyTrace() *rapid.Generator[trace.Trace] {
	name := rapid.SampledFrom([]string{
		"gateway", "activation", "placement", "fetch", "transfer", "execute", "the user's",
	})
	service := rapid.SampledFrom([]string{
		tracing.ServiceGateway, tracing.ServiceNode, tracing.ServiceShim, "user's", "",
	})
	return rapid.Custom(func(t *rapid.T) trace.Trace {
		spans := make([]trace.Span, rapid.IntRange(0, 12).Draw(t, "spans"))
		for i := range spans {
			parent := fmt.Sprint(rapid.IntRange(-1, len(spans)).Draw(t, "parent"))
			start := rapid.Float64Range(0, 1000).Draw(t, "start")
			spans[i] = span(fmt.Sprint(i), parent, service.Draw(t, "service"), name.Draw(t, "name"),
				start, start+rapid.Float64Range(0, 1000).Draw(t, "length"))
		}
		return trace.New("any", spans)
	})
}

func TestMaxGap(t *testing.T) {
	const gateway, node = tracing.ServiceGateway, tracing.ServiceNode
	root := span("01", "", gateway, "gateway", 0, 100)
	for name, tc := range map[string]struct {
		spans   []trace.Span
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
		"a foreign span without details counts": {spans: []trace.Span{
			root, span("02", "01", "mesh", "hop", 0, 100),
		}},
		"details of work take nothing away": {spans: []trace.Span{root, span(
			"02", "01", node, "sandbox.create", 0, 100,
		),
			span("03", "02", tracing.ServiceShim, "runc.create", 40, 60)}},
		"a function's own spans take nothing away": {spans: []trace.Span{
			root, span("02", "01", node, "deliver", 0, 40), span("04", "01", node, "execute", 40, 100),
			span("03", "02", "function", "query", 45, 60),
		}},
		"a short span within a long one": {spans: []trace.Span{root, span("02", "01", node, "fetch", 0, 90), span("03", "01", node, "execute", 10, 20)}, gap: 10, at: 90},
		"clocks that differ": {spans: []trace.Span{root, span("02", "01", node, "fetch", -3, 40), span(
			"03", "01", node, "execute", 45, 104,
		),
			span("04", "01", node, "placement", -9, -5), span("05", "01", node, "transfer", 101, 120)}, gap: 5, at: 40},
		"orphans explain, too": {spans: []trace.Span{root, span("02", "lost", node, "runtime.start", 0, 100)}},
	} {
		gap, at := timeline.MaxGap(trace.New("any", tc.spans))
		if gap != time.Duration(tc.gap)*time.Millisecond || at != time.Duration(tc.at)*time.Millisecond {
			t.Errorf("%s: gap %v at %v, want %d ms at %d ms", name, gap, at, tc.gap, tc.at)
		}
	}
}

func TestMaxGapOfAColdRequestIsSmall(t *testing.T) {
	if gap, at := timeline.MaxGap(cold(t)); gap > 5*time.Millisecond {
		t.Errorf("gap %v at %v", gap, at)
	}
}

func TestMaxGapStaysWithinTheRoot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		root, _ := tr.Root()
		gap, at := timeline.MaxGap(tr)
		if gap < 0 || at < 0 || at+gap > root.Duration() {
			t.Fatalf("gap %v at %v within %v", gap, at, root.Duration())
		}
	})
}

func TestMoreWorkNeverMakesAGapLonger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		root, ok := tr.Gateway() // with any other root, the new span could become the root
		if !ok {
			return
		}
		before, _ := timeline.MaxGap(tr)
		start := rapid.Float64Range(0, 2000).Draw(t, "start")
		more := span(
			"more", root.ID, tracing.ServiceNode, "fetch", start, start+rapid.Float64Range(0, 500).Draw(t, "length"),
		)
		after, _ := timeline.MaxGap(trace.New(tr.ID, append(tr.Spans, more)))
		if after > before {
			t.Fatalf("gap grew from %v to %v", before, after)
		}
	})
}
