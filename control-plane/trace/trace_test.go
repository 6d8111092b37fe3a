package trace_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func names(t trace.Trace) (names []string) {
	for _, s := range t.Spans {
		names = append(names, s.Name)
	}
	return names
}

// anyTrace draws a trace of up to twelve spans with any parents, circles included, and
// any times within a second.
func anyTrace() *rapid.Generator[trace.Trace] {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"gateway", "activation", "placement", "sandbox.create", "runtime.start", "fetch", "transfer", "deliver", "execute"}),
		rapid.String(),
	)
	service := rapid.SampledFrom([]string{tracing.ServiceGateway, tracing.ServiceNode, tracing.ServiceControlPlane, tracing.ServiceShim, "user's", ""})
	return rapid.Custom(func(t *rapid.T) trace.Trace {
		n := rapid.IntRange(0, 12).Draw(t, "spans")
		spans := make([]trace.Span, n)
		for i := range spans {
			start := rapid.Float64Range(0, 1000).Draw(t, "start")
			parent := fmt.Sprint(rapid.IntRange(-1, n).Draw(t, "parent"))
			spans[i] = span(fmt.Sprint(i), parent, service.Draw(t, "service"), name.Draw(t, "name"),
				start, start+rapid.Float64Range(0, 1000).Draw(t, "length"),
				"headstart.request", rapid.SampledFrom([]string{"", "-", one, two}).Draw(t, "request"),
				"headstart.degraded", rapid.String().Draw(t, "degraded"), "faas.coldstart", rapid.Bool().Draw(t, "cold"))
			spans[i].Status = rapid.SampledFrom([]trace.Status{trace.Unset, trace.OK, trace.Error}).Draw(t, "status")
			spans[i].Message = rapid.String().Draw(t, "message")
		}
		return trace.New(traceID, spans)
	})
}

func TestSpansAreInTreeOrder(t *testing.T) {
	want := []string{
		"gateway", "activation", "placement", "fetch", "sandbox.create", "runc.create", "runtime.start",
		"runc.start", "transfer", "deliver", "execute",
	}
	if d := cmp.Diff(want, names(cold())); d != "" {
		t.Error(d)
	}
	circle := trace.New(traceID, []trace.Span{
		span("01", "02", "", "late", 5, 6), span("02", "01", "", "early", 1, 2), span("03", "lost", "", "orphan", 3, 4), span("04", "04", "", "own parent", 7, 8),
	})
	if d := cmp.Diff([]string{"orphan", "early", "late", "own parent"}, names(circle)); d != "" {
		t.Error(d)
	}
}

func TestTreeOrderLosesNothingAndDependsOnNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		seen := map[string]bool{}
		for _, s := range tr.Spans {
			if seen[s.ID] {
				t.Fatalf("span %s twice", s.ID)
			}
			seen[s.ID] = true
		}
		shuffled := trace.New(traceID, rapid.Permutation(tr.Spans).Draw(t, "shuffled"))
		if d := cmp.Diff(tr, shuffled); d != "" {
			t.Fatal(d)
		}
	})
}

func TestJSON(t *testing.T) {
	raw, err := json.MarshalIndent(cold(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "cold.json", append(raw, '\n'))
	var back trace.Trace
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.MarshalIndent(back, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(raw), string(again)); d != "" {
		t.Error(d)
	}
}

func TestRootIsTheGateway(t *testing.T) {
	const gateway, node, mesh = tracing.ServiceGateway, tracing.ServiceNode, "istio-ingressgateway.istio-system"
	for name, tc := range map[string]struct {
		spans []trace.Span
		want  string
	}{
		"none":                {nil, ""},
		"only":                {[]trace.Span{span("01", "", gateway, "gateway", 0, 9)}, "01"},
		"below the client":    {[]trace.Span{span("01", "", "client", "GET", 0, 9), span("02", "01", gateway, "gateway", 1, 8)}, "02"},
		"above its own calls": {[]trace.Span{span("01", "", gateway, "gateway", 0, 9), span("02", "01", gateway, "router", 1, 8)}, "01"},
		"orphan before it":    {[]trace.Span{span("02", "lost", node, "fetch", 0, 9), span("01", "", gateway, "gateway", 1, 8)}, "01"},
		"gateway's lost":      {[]trace.Span{span("02", "lost", node, "activation", 0, 9), span("03", "02", node, "fetch", 1, 8)}, "02"},
		"a mesh's":            {[]trace.Span{span("02", "01", node, "activation", 1, 8), span("01", "", mesh, "router", 0, 9)}, "01"},
		"a mesh's hot":        {[]trace.Span{span("01", "", mesh, "router", 0, 9), span("02", "01", mesh, "egress", 1, 8)}, "01"},
		"a mesh's, below the client": {[]trace.Span{span("01", "", "client", "GET", 0, 9), span("02", "01", mesh, "router", 1, 8, "headstart.request", one),
			span("03", "02", node, "activation", 2, 7, "headstart.request", one)}, "02"},
		"a mesh's without the filter, below the client": {[]trace.Span{span("01", "", "client", "GET", 0, 9), span("02", "01", mesh, "router", 1, 8),
			span("03", "02", node, "activation", 2, 7, "headstart.request", one)}, "02"},
		"a mesh's lost": {[]trace.Span{span("02", "lost", node, "activation", 0, 9), span("03", "02", "function", "work", 1, 8)}, "02"},
	} {
		root, ok := trace.New(traceID, tc.spans).Root()
		if root.ID != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: root %q, want %q", name, root.ID, tc.want)
		}
	}
}

func TestOfSeparatesRequestsUnderOneTraceparent(t *testing.T) {
	for _, gateway := range []string{tracing.ServiceGateway, "istio-ingressgateway.istio-system"} {
		t.Run(gateway, func(t *testing.T) { separatesRequests(t, gateway) })
	}
	if d := cmp.Diff(cold(), cold().Of(requestID)); d != "" {
		t.Errorf("a trace of one request is the request's: %s", d)
	}
}

func separatesRequests(t *testing.T, gateway string) {
	const node = tracing.ServiceNode
	tr := trace.New(traceID, []trace.Span{
		span("01", "client", gateway, "gateway 1", 0, 10, "headstart.request", "-"),
		span("02", "01", node, "activation 1", 1, 9, "headstart.request", one),
		span("03", "02", node, "execute 1", 2, 8),
		span("04", "03", "function", "call", 3, 7),
		span("05", "04", gateway, "gateway 2", 4, 6),
		span("06", "05", node, "activation 2", 5, 6, "headstart.request", two),
		span("07", "client", gateway, "gateway 3", 20, 30),
		span("08", "07", node, "activation 3", 21, 29, "faas.invocation_id", three),
		span("09", "lost", node, "fetch 3", 22, 28, "headstart.request", three),
	})
	for request, want := range map[string][]string{
		one:       {"gateway 1", "activation 1", "execute 1", "call", "gateway 2", "activation 2"},
		two:       {"gateway 2", "activation 2"},
		three:     {"gateway 3", "activation 3", "fetch 3"},
		"unknown": names(tr),
	} {
		if d := cmp.Diff(want, names(tr.Of(request))); d != "" {
			t.Errorf("%s: %s", request, d)
		}
	}
}

func TestSummary(t *testing.T) {
	failed := cold()
	failed.Spans[3].Status = trace.Error
	want := trace.Summary{
		ID: traceID, Request: requestID, Function: "default/video", Start: epoch, DurationMS: 1284.3,
		Spans: 11, ColdStart: true, Status: trace.Error,
	}
	if d := cmp.Diff(want, failed.Summary()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(trace.Summary{ID: traceID}, trace.New(traceID, nil).Summary()); d != "" {
		t.Error(d)
	}
	if got := cold().Spans[0].Duration(); got != 1284300*time.Microsecond {
		t.Errorf("duration %v", got)
	}
}
