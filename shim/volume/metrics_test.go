package volume_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/volume"
)

// Which volumes were made, which were there already and which were late shows in metrics, and in the trace of the
// request that waited.
func TestVolumesAreSeen(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	otel.SetTracerProvider(provider)
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		s := volume.New(&versions{after: map[string]time.Duration{"models": time.Second, "words": 5 * time.Second}}, registry,
			slog.New(slog.DiscardHandler))
		defer s.Close()
		m := message(2 * time.Second)
		m.StartLate = true
		s.Begin(m)
		need, err := s.Bring(sandboxes.Sandbox{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		ctx := tracing.Continue(t.Context(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		for _, ctx := range []context.Context{t.Context(), ctx} { // the first is of no request
			if got, err := need.Volumes(ctx); err != nil || len(got) != 1 {
				t.Errorf("got %v, %v", got, err)
			}
		}
		time.Sleep(2 * time.Second)
		if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP headstart_volumes_total Volumes of pods: made, hit, or the reason for which one could not be had.
# TYPE headstart_volumes_total counter
headstart_volumes_total{result="hit",store="default"} 1
headstart_volumes_total{result="made",store="default"} 1
`), "headstart_volumes_total"); err != nil {
			t.Error(err)
		}
		if n, err := testutil.GatherAndCount(registry, "headstart_volume_wait_duration_seconds"); err != nil || n != 1 {
			t.Errorf("%d reasons to wait, %v", n, err)
		}
	})
	var told []string
	for _, s := range recorder.Ended() {
		line := s.Name() + " " + s.EndTime().Sub(s.StartTime()).String() + " " + s.Status().Description
		for _, a := range s.Attributes() {
			line += " " + a.Value.AsString()
		}
		told = append(told, line)
	}
	if got := strings.Join(told, "; "); got != "volume 1s  models s3 made; volume 4s VolumeLate words s3" {
		t.Errorf("told %s", got)
	}
}
