package ingress

import (
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// tellFetch tells the fetch's span. It is made after the fact: a hint starts the fetch
// before the request, and with it the trace, is known.
func tellFetch(ctx context.Context, p *parked) {
	scheme, _, _ := strings.Cut(p.reference, ":")
	_, span := tracer.Start(ctx, tracing.Fetch, trace.WithTimestamp(p.input.Began()), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.InputScheme.String(scheme), tracing.InputBytes.Int64(p.input.Received())))
	ended := p.input.Ended()
	if ended.IsZero() { // nobody waits for it any more: the request moves or failed
		span.End()
		return
	}
	if err := p.input.Wait(ctx); err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End(trace.WithTimestamp(ended))
}

// phases are the two spans of a delivery: deliver until the function has the whole
// request, execute until its answer is through.
type phases struct {
	parent context.Context
	ctx    context.Context // deliver's: what the function sees as its parent

	mu      sync.Mutex
	deliver trace.Span
	execute trace.Span
}

func newPhases(ctx context.Context) *phases {
	ph := &phases{parent: ctx}
	ph.ctx, ph.deliver = tracer.Start(ctx, tracing.Deliver, trace.WithSpanKind(trace.SpanKindClient))
	return ph
}

// wrote marks the end of the delivery. A retried connection writes twice; the first
// counts.
func (ph *phases) wrote() {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	if ph.execute == nil {
		ph.deliver.End()
		_, ph.execute = tracer.Start(ph.parent, tracing.Execute)
	}
}

func (ph *phases) end() {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	if ph.execute == nil {
		ph.deliver.End()
		return
	}
	ph.execute.End()
}
