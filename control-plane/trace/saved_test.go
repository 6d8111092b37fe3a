package trace_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func TestSaved(t *testing.T) {
	const gateway, node = tracing.ServiceGateway, tracing.ServiceNode
	root := span("01", "", gateway, "gateway", 0, 100)
	cold := span("10", "01", node, "activation", 1, 99, "faas.coldstart", true)
	placement := span("02", "10", node, "placement", 2, 10)
	ready := span("03", "10", node, "runtime.start", 20, 50)
	fetch := span("05", "10", node, "fetch", 10, 45)
	execute := span("04", "10", node, "execute", 60, 90)
	failed := fetch
	failed.Status = trace.Error
	for name, tc := range map[string]struct {
		spans []trace.Span
		want  string
	}{
		"overlapped":          {[]trace.Span{root, cold, placement, ready, fetch, execute}, "saved 15 of 115 ms (schedule 10 + cold start 40 + transfer 35 + execute 30)"},
		"one after the other": {[]trace.Span{root, cold, placement, ready, span("05", "10", node, "fetch", 50, 60), execute}, "saved nothing: one step after the other would have taken as long"},
		"hot":                 {[]trace.Span{root}, "saved nothing: the request waited for no cold start"},
		"without input":       {[]trace.Span{root, cold, placement, ready, execute}, "saved nothing: no input was on its way during the cold start"},
		"failed":              {[]trace.Span{root, cold, placement, ready, failed, execute}, "saved nothing: a step failed"},
		"not all spans":       {[]trace.Span{root, cold, placement, fetch, execute}, "what was saved is not known: the trace has no span runtime.start"},
		"another autoscaler's": {[]trace.Span{root, cold, placement, fetch, span("06", "10", node, "relay", 11, 95)},
			"what was saved is not known: another autoscaler runs the function, and does not tell its cold start from its execution"},
		"the daemon's spans are late": {[]trace.Span{span("01", "", gateway, "gateway", 0, 100, "headstart.request", requestID)}, "what was saved is not known: the trace has no span activation"},
		"a job":                       {[]trace.Span{span("01", "", tracing.ServiceControlPlane, "job", 0, 100), placement, ready, fetch}, "what was saved is not known: the start of a job waits for its input"},
		"nothing":                     {nil, "saved nothing: the request waited for no cold start"},
	} {
		if got := trace.New(traceID, tc.spans).Saved().String(); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// Nobody is told that a request has saved more than what could be hidden.
func TestNoMoreIsSavedThanCanBeHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := anyTrace().Draw(t, "trace")
		p, _ := tr.Phases()
		s := tr.Saved()
		if s.MS < 0 || s.MS > s.OfMS || s.MS > 0 && s.Reason != "" || s.MS == 0 && s.Reason == "" {
			t.Fatalf("%+v of %+v", s, p)
		}
	})
}
