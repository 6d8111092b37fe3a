package ingress

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source/body"
)

// degradedNotBuffered is the value of tracing.Degraded on a request whose body is its input
// and found no room in the buffer, or not all of it: what is missing there waits in the
// connection until the function takes it.
const degradedNotBuffered = "BodyNotBuffered"

// schemeBody stands for the scheme of a reference where the request's body is the input.
const schemeBody = "body"

// receive has a body that is the request's input put into the buffer from now on: its sender
// need not wait for the function, nor the function for its sender. Whatever keeps the body
// out of the buffer, but for its size, leaves it in the connection.
func (in *Ingress) receive(ctx context.Context, r *http.Request, p *parked) error {
	// What switches to another protocol has no body.
	if !p.function.GetBodyInput() || r.ContentLength == 0 || r.Body == nil || r.Header.Get("Upgrade") != "" {
		return nil
	}
	p.body.Duplex()
	input, err := in.config.Objects.Receive(ctx,
		objects.Request{ID: p.id, Function: p.function.GetName(), Store: schemeBody, Limit: p.function.GetInputLimit()},
		body.Body{From: p.body, Size: r.ContentLength, ContentType: r.Header.Get("Content-Type"), Interrupt: p.body.Interrupt})
	switch {
	case objects.IsTooLarge(err):
		return err
	case err != nil:
		trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNotBuffered))
		in.config.Log.Debug("a body is not buffered", "function", p.function.GetName(), "request", p.id, "error", err)
		return nil
	}
	p.received = input
	p.body.Store(input)
	return nil
}

// forget lets go of a body in the buffer, once its span is told. The way there has ended
// afterwards; whoever still reads from the buffer fails.
func (in *Ingress) forget(ctx context.Context, p *parked) {
	input := p.received
	if input == nil {
		return
	}
	input.Tell(ctx, tracer, tracing.Receive, trace.SpanKindServer, schemeBody)
	input.Release()
	if _, spilled := input.Rest(); spilled { // at once: it was released
		trace.SpanFromContext(ctx).SetAttributes(tracing.Degraded.String(degradedNotBuffered))
	}
}

// untilFailed waits until an input has failed or ctx has ended, and returns the failure.
func untilFailed(ctx context.Context, input *objects.Input) error {
	if err := input.Wait(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
