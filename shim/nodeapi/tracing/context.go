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
