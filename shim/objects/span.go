package objects

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Tell tells the span of the input's way to the buffer, as far as it has come. from is a
// reference, or its scheme. The span is made after the fact, as a fetch begins before the
// request, and with it the trace, is known.
func (i *Input) Tell(
	ctx context.Context, t trace.Tracer, name string, kind trace.SpanKind, from string, about ...attribute.KeyValue,
) {
	scheme, _, _ := strings.Cut(from, "://")
	about = append(about, tracing.InputScheme.String(scheme), tracing.InputBytes.Int64(i.Received()))
	if isClosed(i.ready) && i.object != nil && i.object.from != nil {
		about = append(about, tracing.InputWay.String(i.way))
		if i.way == WayPeer {
			about = append(about, tracing.InputPeer.String(i.object.about.From))
		}
	}
	_, span := t.Start(
		ctx, name, trace.WithTimestamp(i.Began()), trace.WithSpanKind(kind), trace.WithAttributes(about...),
	)
	ended := i.Ended()
	if ended.IsZero() { // nobody waits for it any more: the request moves or failed
		span.End()
		return
	}
	if err := i.Wait(context.WithoutCancel(ctx)); err != nil { // at once: it has ended
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End(trace.WithTimestamp(ended))
}
