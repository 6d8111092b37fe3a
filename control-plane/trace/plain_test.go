package trace_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// Whichever gateway had the request, its span says in the same words what was picked for it.
func TestPickedEndpointsArePlain(t *testing.T) {
	coded := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for name, c := range map[string]struct {
		key, value string
		want       map[string]any
	}{
		"of a mesh":        {"headstart.session", coded("10.0.0.1:8080"), map[string]any{"headstart.endpoint": "10.0.0.1:8080"}},
		"IPv6":             {"headstart.session", coded("[fd00::1]:8080"), map[string]any{"headstart.endpoint": "[fd00::1]:8080"}},
		"of one machine":   {"headstart.endpoint", "10.0.0.1:8080", map[string]any{"headstart.endpoint": "10.0.0.1:8080"}},
		"no base64":        {"headstart.session", "10.0.0.1:8080", map[string]any{"headstart.session": "10.0.0.1:8080"}},
		"no endpoint":      {"headstart.session", coded("fire.default"), map[string]any{"headstart.session": coded("fire.default")}},
		"another's header": {"user.session", coded("10.0.0.1:8080"), map[string]any{"user.session": coded("10.0.0.1:8080")}},
	} {
		t.Run(name, func(t *testing.T) {
			store := trace.NewStore()
			export(t, trace.Plain(store), otlp(1, 1, "gateway", attribute(c.key, text(c.value))))
			got, _ := store.Get(number(1))
			if d := cmp.Diff(c.want, got.Spans[0].Attributes); d != "" {
				t.Errorf("attributes (-want +got):\n%s", d)
			}
		})
	}
}

// Istio's gateways send URLs as clients sent them. What a client's query has is nowhere in a trace, and
// nowhere where traces are forwarded to.
func TestAttackReadsTokensOfQueriesInTraces(t *testing.T) {
	const token = "hunter2"
	full := text("https://fire.example.com/a?token=" + token)
	store, sent := trace.NewStore(), otlp(1, 1, "GET /a?token="+token,
		attribute("http.url", full), attribute("url.full", text(full.GetStringValue())), attribute("url.path", text("/a")),
		attribute("http.target", text("/a?token="+token)), attribute("url.query", text("token="+token)),
		attribute("http.referer", text("https://example.com/?token="+token)))
	sent.Events = []*tracepb.Span_Event{{
		Attributes: []*commonpb.KeyValue{attribute("url.full", text(full.GetStringValue()))},
	}}
	export(t, trace.Plain(store), sent)
	if s := sent.String(); strings.Contains(s, token) {
		t.Errorf("the span is passed on as %s", s)
	}
	kept, _ := store.Get(number(1))
	want := map[string]any{"http.url": "https://fire.example.com/a", "url.full": "https://fire.example.com/a",
		"http.target": "/a", "url.path": "/a", "url.query": nil, "http.referer": "https://example.com/"}
	if d := cmp.Diff(want, kept.Spans[0].Attributes); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
}
