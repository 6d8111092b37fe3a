package trace_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	traceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	requestID = "00f067aa0ba902b7c52a19e03f1d7a44"

	// Three more requests.
	one   = "11111111111111111111111111111111"
	two   = "22222222222222222222222222222222"
	three = "33333333333333333333333333333333"
)

var epoch = time.Date(2026, 11, 2, 9, 30, 0, 0, time.UTC)

// span is a span of the tests' one day; start and end in milliseconds since epoch.
func span(id, parent, service, name string, start, end float64, attributes ...any) trace.Span {
	at := func(ms float64) time.Time { return epoch.Add(time.Duration(ms * float64(time.Millisecond))) }
	s := trace.Span{
		ID: id, Parent: parent, Service: service, Name: name, Status: trace.Unset,
		Start: at(start), End: at(end), DurationMS: end - start,
	}
	if len(attributes) > 0 {
		s.Attributes = map[string]any{}
		for i := 0; i < len(attributes); i += 2 {
			s.Attributes[attributes[i].(string)] = attributes[i+1]
		}
	}
	return s
}

// cold is a cold request whose input comes from a store while its sandbox starts.
func cold() trace.Trace {
	const gateway, control, node, shim = tracing.ServiceGateway, tracing.ServiceControlPlane, tracing.ServiceNode, tracing.ServiceShim
	return trace.New(traceID, []trace.Span{
		span("0a", "02", node, tracing.Deliver, 935.6, 938.5),
		span("0b", "02", node, tracing.Execute, 938.5, 1280),
		span("04", "02", node, tracing.SandboxCreate, 14, 182.4),
		span("05", "02", shim, tracing.RuncCreate, 96, 141),
		span("06", "02", shim, tracing.RuncStart, 184, 202),
		span("02", "01", node, tracing.Activation, 1.2, 1282,
			"headstart.request", requestID, "headstart.function", "default/video", "faas.coldstart", true),
		span("03", "02", control, tracing.Placement, 4.6, 12, "headstart.node", "edge"),
		span("01", "", gateway, tracing.Gateway, 0, 1284.3),
		span("07", "02", node, tracing.RuntimeStart, 182.4, 611),
		span("09", "02", node, tracing.Transfer, 934.2, 935.1, "headstart.transfer.kind", "local"),
		span("08", "02", node, tracing.Fetch, 12.5, 934, "headstart.input.bytes", int64(33554432), "headstart.input.scheme", "s3", "headstart.input.way", "peer"),
	})
}
