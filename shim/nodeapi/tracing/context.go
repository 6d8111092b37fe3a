package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
)

// Inject has a request continue the trace of ctx and no other: what its sender said of a trace
// may be invalid, or of another one.
func Inject(ctx context.Context, h http.Header) {
	for _, name := range (propagation.TraceContext{}).Fields() {
		h.Del(name)
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// Traceparent is the trace of ctx as a message says it (W3C trace context), empty for none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier["traceparent"]
}

// Continue is ctx in the trace that a message says.
func Continue(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}
