package ingress

import (
	"context"
	"net/http/httptrace"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// phases are the two spans of a delivery, one after the other: deliver until the
// function has the whole request or answers, execute until its answer is through. A
// request that is relayed has but one: when a small one is written, only the kernel has
// it, and the function does not even run.
type phases struct {
	parent context.Context
	ctx    context.Context // deliver's: what the function sees as its parent

	mu        sync.Mutex
	open      trace.Span // nil after the end
	executing bool
}

func newPhases(ctx context.Context, to target) *phases {
	ph := &phases{parent: ctx, executing: to.relay}
	name, about := tracing.Deliver, []attribute.KeyValue(nil)
	if to.relay {
		name, about = tracing.Relay, []attribute.KeyValue{tracing.RelayAddress.String(to.address)}
	}
	ph.ctx, ph.open = tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(about...))
	return ph
}

// trace tells the phases when the request is written. A function that answers has it,
// too: a fast one's answer can be through before the writer says that it is done.
func (ph *phases) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotFirstResponseByte: ph.delivered,
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			if i.Err == nil {
				ph.delivered()
			}
		},
	}
}

// delivered begins the execution when it is called first, which can be after the end.
func (ph *phases) delivered() {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	if ph.open == nil || ph.executing {
		return
	}
	now := trace.WithTimestamp(time.Now())
	ph.open.End(now)
	_, ph.open = tracer.Start(ph.parent, tracing.Execute, now)
	ph.executing = true
}

func (ph *phases) end(err error) {
	ph.mu.Lock()
	defer ph.mu.Unlock()
	endSpan(ph.open, err)
	ph.open = nil
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End()
}
