package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// exportTimeout bounds what a collector that is away or hangs can cost. It is below
	// the 5 s that a shim has for its shutdown.
	exportTimeout = 3 * time.Second
	// attributeLimit is the longest attribute value in bytes; runc's errors are
	// recorded, and may quote what they stumbled over.
	attributeLimit = 1024
	// instanceVariable is how a function learns its instance's id.
	instanceVariable = "HEADSTART_INSTANCE"
)

// trace has the spans of one sandbox's start. It is the SDK's span processor and only
// collects: a shim makes two spans in its life, and the SDK's own batching would keep a
// timer running and a connection open in every sandbox for their sake.
//
// The nil trace is that of a sandbox whose spans nobody wants.
type trace struct {
	id       string
	target   string
	parent   context.Context
	provider *sdktrace.TracerProvider
	ended    []sdktrace.ReadOnlySpan
}

// newTrace returns nil unless d names both a trace to continue and a socket of this machine to send
// the spans to: the daemon has no use of the shim's network, which is the node's.
func newTrace(d *nodeapi.DescribeResponse, id, version string) *trace {
	if !strings.HasPrefix(d.GetOtlpTarget(), "unix:/") {
		return nil
	}
	parent := tracing.Continue(context.Background(), d.GetTraceparent())
	if !oteltrace.SpanContextFromContext(parent).IsSampled() {
		return nil
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = attributeLimit
	if instance := d.GetEnv()[instanceVariable]; instance != "" {
		id = instance // a pod's, which has more than one container
	}
	t := &trace{id: id, target: d.GetOtlpTarget(), parent: parent}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(t),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", tracing.ServiceShim),
			attribute.String("service.version", version),
		)),
		sdktrace.WithRawSpanLimits(limits),
	)
	return t
}

// start begins a span of the sandbox at a time.
func (t *trace) start(name string, at time.Time) oteltrace.Span {
	if t == nil {
		return oteltrace.SpanFromContext(context.Background())
	}
	_, span := t.provider.Tracer("github.com/headstart-mesh/headstart/shim/runtime").Start(t.parent, name,
		oteltrace.WithTimestamp(at), oteltrace.WithAttributes(tracing.Instance.String(t.id)))
	return span
}

// end ends a span with the outcome of what it was about.
func end(span oteltrace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "runc failed")
	}
	span.End()
}

// export sends the spans that have ended. It is the last call of a trace.
func (t *trace) export() error {
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	conn, err := grpc.NewClient(t.target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // a socket of this machine
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))     // it may just be restarting
	if err != nil {
		return fmt.Errorf("connecting to the trace collector %q: %w", t.target, err)
	}
	defer conn.Close()
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(conn), otlptracegrpc.WithTimeout(exportTimeout))
	if err != nil {
		return fmt.Errorf("making the trace exporter: %w", err)
	}
	if err := errors.Join(exporter.ExportSpans(ctx, t.ended), exporter.Shutdown(ctx)); err != nil {
		return fmt.Errorf("sending spans to %q: %w", t.target, err)
	}
	return nil
}

// OnStart, OnEnd, Shutdown and ForceFlush make the trace a span processor. Spans of one
// sandbox end one after the other, so nothing is locked.
func (t *trace) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd keeps the span.
func (t *trace) OnEnd(s sdktrace.ReadOnlySpan) { t.ended = append(t.ended, s) }

// Shutdown has nothing to end.
func (t *trace) Shutdown(context.Context) error { return nil }

// ForceFlush has nothing to wait for.
func (t *trace) ForceFlush(context.Context) error { return nil }
