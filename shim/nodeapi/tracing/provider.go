package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// batchDelay is how long spans wait for company. The SDK's own 5 s would make
	// `headstart trace` show half a request right after its answer.
	batchDelay = 200 * time.Millisecond
	// exportTimeout bounds one export with all its tries, so that a collector that hangs does
	// not hold up the queue for long. On a cluster the collector is one of several control
	// planes: while one is replaced, the way to another one takes some seconds at most.
	exportTimeout = 10 * time.Second
	// retryFirst and retryMost are how long an export waits before it is tried again.
	retryFirst = 100 * time.Millisecond
	retryMost  = time.Second
	// farewell is what a shutdown gives the last export. It is below what the programs give
	// each step of their end.
	farewell = 2 * time.Second
	// attributeLimit is the longest attribute value in bytes that a span carries;
	// some values come from requests.
	attributeLimit = 1024
)

// Start sets up the process's OpenTelemetry tracing: W3C trace context, and spans of
// the named service sent as OTLP over gRPC to target, such as
// unix:/run/headstart/otlp.sock or host:port. The connection is not encrypted: target
// is a socket of this machine or of a collector beside it, unless with has other
// credentials. With an empty target trace
// context still travels, but no spans are recorded.
//
// A target that cannot be reached is no error: spans wait for it for exportTimeout, and are
// dropped then. shutdown sends what is left, within farewell, and closes the connection.
func Start(ctx context.Context, service, version, target string, with ...grpc.DialOption,
) (shutdown func(context.Context) error, err error) {
	// No baggage: what a client puts there has no business on the node's own calls.
	otel.SetTextMapPropagator(propagation.TraceContext{})
	if target == "" {
		return func(context.Context) error { return nil }, nil
	}
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{plain, grpc.WithNoProxy()}, with...)...)
	if err != nil {
		return nil, fmt.Errorf("connecting to the trace collector %q: %w", target, err)
	}
	exporter, err := otlptracegrpc.New(ctx,
		otlptracegrpc.WithGRPCConn(conn),
		otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: retryMost, MaxElapsedTime: exportTimeout}),
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the trace exporter: %w", err), conn.Close())
	}
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = attributeLimit
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(batchDelay), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service),
			attribute.String("service.version", version),
		)),
		sdktrace.WithRawSpanLimits(limits),
	)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("sending spans", "error", err) }))
	otel.SetTracerProvider(named{provider})
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		err := provider.Shutdown(ctx)
		if ctx.Err() != nil {
			slog.Warn("sending spans: the last ones are lost", "error", err)
			// It ends the export that is under way. That it is late has just been said.
			_ = exporter.Shutdown(ctx)
			err = nil
		}
		return errors.Join(err, conn.Close())
	}, nil
}

// named begins traces for named tracers only. The containerd client asks for one without a name
// where its caller has no span: what it does there, such as to wait for an instance's end, belongs
// to no request, and would be listed among them as a trace of its own. Below a span the client
// takes that span's provider, which is not this one.
type named struct{ *sdktrace.TracerProvider }

// Tracer implements trace.TracerProvider.
func (n named) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	if name == "" {
		return noop.NewTracerProvider().Tracer(name, options...)
	}
	return n.TracerProvider.Tracer(name, options...)
}
