package trace_test

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"

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
