//go:build integration

package gateway

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/gateway"
)

// Functions get the client's trace context or a new one: never what is none, and no tracestate
// that the client did not send. Sampling is another matter.
func TestTraceContext(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	valid := "00-" + id + "-00f067aa0ba902b7-00"
	socket := filepath.Join(t.TempDir(), "otlp")
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, &spans{received: make(chan *trace.ResourceSpans, 10)})
	serveGRPC(t, g, "unix", socket)
	b := start(t, coldState(), func(c *gateway.Config) { c.OTLPSocket = socket })
	function := b.listen("tcp", "127.0.0.1:0", "hot")
	st := coldState()
	st.Instances = append(st.Instances, ready(thumbs(), "one", function.address))
	b.update(st)
	b.settle()
	for name, tt := range map[string]struct {
		sent      []string
		continued bool
		state     []string
	}{
		"none":                  {},
		"valid":                 {[]string{"traceparent", valid}, true, nil},
		"valid with state":      {[]string{"traceparent", valid, "tracestate", "a=b"}, true, []string{"a=b"}},
		"state alone":           {[]string{"tracestate", "a=b"}, false, nil},
		"empty":                 {[]string{"traceparent", ""}, false, nil},
		"nonsense":              {[]string{"traceparent", "nonsense", "tracestate", "a=b"}, false, nil},
		"zeros":                 {[]string{"traceparent", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", "tracestate", "a=b"}, false, nil},
		"more than its version": {[]string{"traceparent", valid + "-more", "tracestate", "a=b"}, false, nil},
	} {
		b.get(thumbs().Hosts[0], tt.sent...)
		_, r := function.requests()
		parent := strings.Join(r.Header["Traceparent"], ",")
		if got := strings.Contains(parent, id); got != tt.continued || parent != "" && slices.Contains(tt.sent, parent) {
			t.Errorf("%s: the function got traceparent %q", name, parent)
		}
		if got := r.Header["Tracestate"]; !slices.Equal(got, tt.state) {
			t.Errorf("%s: the function got tracestate %q, want %q", name, got, tt.state)
		}
	}
}
