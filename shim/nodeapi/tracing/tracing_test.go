package tracing_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	ctdtracing "github.com/containerd/containerd/v2/pkg/tracing"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNamesAreTheConventions(t *testing.T) {
	for ours, theirs := range map[attribute.Key]attribute.Key{
		tracing.FaaSName:         semconv.FaaSNameKey,
		tracing.FaaSColdStart:    semconv.FaaSColdstartKey,
		tracing.FaaSInvocationID: semconv.FaaSInvocationIDKey,
		tracing.FaaSTrigger:      semconv.FaaSTriggerKey,
	} {
		if ours != theirs {
			t.Errorf("%q, the conventions say %q", ours, theirs)
		}
	}
	if got, want := tracing.FaaSTrigger.String(tracing.TriggerHTTP), semconv.FaaSTriggerHTTP; got != want {
		t.Errorf("trigger %v, the conventions say %v", got, want)
	}
}

// collector answers every export and hands its requests over.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	got chan *collectorpb.ExportTraceServiceRequest
}

func (c collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.got <- req
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func incoming(ctx context.Context) context.Context {
	return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier{"traceparent": traceparent, "baggage": "a=b"})
}

func TestStartSendsSpansAndContinuesATrace(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "otlp.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	// Room for all that one test sends: a shutdown must not wait for the test.
	c := collector{got: make(chan *collectorpb.ExportTraceServiceRequest, 16)}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	shutdown, err := tracing.Start(t.Context(), tracing.ServiceNode, "v1.2.3", "unix:"+socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, span := otel.Tracer("test").Start(incoming(t.Context()), tracing.Fetch)
	span.SetAttributes(tracing.InputBytes.Int64(7), tracing.Degraded.String(strings.Repeat("x", 5000)))
	span.End()
	out := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, out)
	if want := "00-4bf92f3577b34da6a3ce929d0e0e4736-" + span.SpanContext().SpanID().String() + "-01"; out["traceparent"] != want || len(out) != 1 {
		t.Errorf("sent on %v, want traceparent %s", out, want)
	}

	req := <-c.got // by itself, soon: nobody flushes
	resource := map[string]string{}
	for _, kv := range req.GetResourceSpans()[0].GetResource().GetAttributes() {
		resource[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	if d := cmp.Diff(map[string]string{"service.name": "headstart-node", "service.version": "v1.2.3"}, resource); d != "" {
		t.Error(d)
	}
	got := req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0]
	parent := trace.SpanContextFromContext(incoming(t.Context()))
	if id, up := parent.TraceID(), parent.SpanID(); got.GetName() != tracing.Fetch || string(got.GetTraceId()) != string(id[:]) || string(got.GetParentSpanId()) != string(up[:]) {
		t.Errorf("span %v", got)
	}
	for _, kv := range got.GetAttributes() {
		if n := len(kv.GetValue().GetStringValue()); n > 1024 {
			t.Errorf("%s is %d bytes long", kv.GetKey(), n)
		}
	}

	ctx, stray := ctdtracing.StartSpan(t.Context(), "task.Wait") // for no request
	_, below := ctdtracing.StartSpan(ctx, "client.task.Delete")
	below.End()
	stray.End()
	ctx, last := otel.Tracer("test").Start(t.Context(), tracing.Execute)
	_, below = ctdtracing.StartSpan(ctx, "container.NewTask")
	below.End()
	last.End()
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	var names []string
	for _, scope := range (<-c.got).GetResourceSpans()[0].GetScopeSpans() {
		for _, s := range scope.GetSpans() {
			names = append(names, s.GetName())
		}
	}
	slices.Sort(names)
	if d := cmp.Diff([]string{"container.NewTask", tracing.Execute}, names); d != "" {
		t.Errorf("shutdown sent: %s", d)
	}
}

// ending answers the first export as a collector does that is just being replaced.
type ending struct {
	collector
	asked atomic.Bool
}

func (e *ending) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	if e.asked.CompareAndSwap(false, true) {
		return nil, status.Error(codes.Unavailable, "the server is stopping")
	}
	return e.collector.Export(ctx, req)
}

func TestSpansReachTheCollectorThatFollows(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "otlp.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := &ending{collector: collector{got: make(chan *collectorpb.ExportTraceServiceRequest, 1)}}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	shutdown, err := tracing.Start(t.Context(), tracing.ServiceNode, "v1.2.3", "unix:"+socket)
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), tracing.Deliver)
	span.End()
	provider := otel.GetTracerProvider().(interface{ ForceFlush(context.Context) error })
	if err := provider.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case req := <-c.got:
		if name := req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName(); name != tracing.Deliver {
			t.Errorf("span %s", name)
		}
	default:
		t.Error("the span is lost")
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartWithoutCollectorStillContinuesATrace(t *testing.T) {
	shutdown, err := tracing.Start(t.Context(), tracing.ServiceShim, "", "")
	if err != nil {
		t.Fatal(err)
	}
	out := propagation.MapCarrier{}
	otel.GetTextMapPropagator().Inject(incoming(t.Context()), out)
	if out["traceparent"] != traceparent {
		t.Errorf("sent on %v", out)
	}
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStartDoesNotNeedTheCollectorToBeThere(t *testing.T) {
	shutdown, err := tracing.Start(t.Context(), tracing.ServiceShim, "", "unix:"+filepath.Join(t.TempDir(), "nobody.sock"))
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), tracing.RuncCreate)
	span.End()
	if err := shutdown(t.Context()); err != nil { // and leaves no goroutine that tries on
		t.Error(err)
	}
}

func TestStartRefusesATargetThatIsNone(t *testing.T) {
	if _, err := tracing.Start(t.Context(), tracing.ServiceShim, "", "unix://host/\x00"); err == nil || !strings.Contains(err.Error(), "connecting to the trace collector") {
		t.Errorf("error %v", err)
	}
}

// Without a collector too: nothing of what is no trace context goes on.
func TestInjectLeavesNothingOfAnotherTrace(t *testing.T) {
	h := http.Header{"Traceparent": {"nonsense"}, "Tracestate": {""}, "X": {"kept"}}
	tracing.Inject(t.Context(), h)
	if want := (http.Header{"X": {"kept"}}); !cmp.Equal(want, h) {
		t.Errorf("got %v, want %v", h, want)
	}
}
