package sandboxes_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// recorder has the spans of all tests: OpenTelemetry's tracers keep their first provider.
var recorder = sync.OnceValue(func() *tracetest.SpanRecorder {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	r := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)))
	return r
})

// newTrace is the id of a trace that no test has had.
func newTrace() string {
	recorder()
	return fmt.Sprintf("%016x%016x", rand.Uint64()|1, rand.Uint64())
}

// ended are the spans of a trace.
func ended(traceID string) (of []sdktrace.ReadOnlySpan) {
	for _, s := range recorder().Ended() {
		if s.SpanContext().TraceID().String() == traceID {
			of = append(of, s)
		}
	}
	return of
}

// The first request that waits for a pod has its cold start in its trace, once, without a
// gap.
func TestSpansOfAColdStart(t *testing.T) {
	traceID := newTrace()
	r := newPodRig(t)
	r.has(podStarting(""))
	ctx := propagation.TraceContext{}.Extract(t.Context(),
		propagation.MapCarrier{"traceparent": "00-" + traceID + "-00f067aa0ba902b7-01"})
	waiting := make(chan error, 1)
	began := time.Now()
	go func() { _, err := r.Ready(ctx, one); waiting <- err }()
	for r.described("a", pod("fire-x", "a")).GetTraceparent() == "" { // until it waits
		time.Sleep(time.Millisecond)
	}
	r.has(podReady("10.0.0.1:80"))
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	for range 2 { // hot, and with another cold start
		if _, err := r.Ready(ctx, one); err != nil {
			t.Fatal(err)
		}
		r.has(podStarting("10.0.0.1:80"))
		r.has(podReady("10.0.0.1:80"))
	}
	mine := ended(traceID)
	if len(mine) != 2 || mine[0].Name() != "sandbox.create" || mine[1].Name() != "runtime.start" {
		t.Fatalf("spans: %v", mine)
	}
	if mine[0].StartTime().Before(began) || !mine[1].StartTime().Equal(mine[0].EndTime()) ||
		mine[1].EndTime().Before(mine[1].StartTime()) {
		t.Errorf("from %v to %v, from %v to %v", mine[0].StartTime(), mine[0].EndTime(), mine[1].StartTime(),
			mine[1].EndTime())
	}
	for _, s := range mine {
		if len(s.Attributes()) != 2 || s.Attributes()[0].Value.AsString() != "default/fire" ||
			s.Attributes()[1].Value.AsString() != one {
			t.Errorf("attributes %v", s.Attributes())
		}
	}
}
