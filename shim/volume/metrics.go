package volume

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Ways by which a volume comes to its pod.
const (
	wayMade = "made" // its version was made for it, of objects that the node had or fetched
	wayHit  = "hit"  // the node had the version
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/volume")

// metrics count volumes; docs/reference/metrics.md describes them.
type metrics struct {
	total         *prometheus.CounterVec
	seconds, wait *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	histogram := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.01, 2, 17)}, []string{label}) // to 11 minutes
	}
	m := &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headstart_volumes_total",
			Help: "Volumes of pods: made, hit, or the reason for which one could not be had."}, []string{"store", "result"}),
		seconds: histogram("headstart_volume_duration_seconds", "Time until a pod's volume is there.", "store"),
		wait: histogram("headstart_volume_wait_duration_seconds",
			"Time that the start of a container waited for its volumes, by the reason of their failure, or OK.", "reason"),
	}
	r.MustRegister(m.total, m.seconds, m.wait)
	return m
}

// brought notes how a try has ended.
func (m *metrics) brought(store string, t *try) {
	result := t.way()
	if t.err != nil {
		result = problem.Of(t.err).Title
	}
	m.total.WithLabelValues(store, result).Inc()
	m.seconds.WithLabelValues(store).Observe(t.took().Seconds())
}

// waited notes how long a container's start has waited for its volumes, of which some may be missing.
func (m *metrics) waited(since time.Time, missing error) {
	reason := "OK"
	if missing != nil {
		reason = problem.Of(missing).Title
	}
	m.wait.WithLabelValues(reason).Observe(time.Since(since).Seconds())
}

// Damaged returns what is told of damaged files: mark has the versions that have one be made again for the next pod.
func Damaged(mark func(os.FileInfo) ([]tree.Held, error), r prometheus.Registerer, log *slog.Logger) func(os.FileInfo) {
	total := prometheus.NewCounter(prometheus.CounterOpts{Name: "headstart_volumes_damaged_total",
		Help: "Versions of volumes in which a file was found damaged."})
	r.MustRegister(total)
	return func(file os.FileInfo) {
		all, err := mark(file)
		for _, h := range all {
			total.Inc()
			log.Error("a volume has a damaged file: pods that have the volume keep it, the next pod gets another one",
				"namespace", h.Namespace, "store", h.Store, "prefix", h.Prefix, "version", filepath.Base(h.At), "pods", h.Pods)
		}
		if err != nil {
			log.Error("a damaged file may stay in volumes", "error", err)
		}
	}
}

func (t *try) took() time.Duration { return t.ended.Sub(t.began) }

// way is how the volume of a try that has ended came to its pod.
func (t *try) way() string {
	if t.made {
		return wayMade
	}
	return wayHit
}

// tell tells the span of a volume after the fact: it is fetched before the trace of a request that waits is known. One
// of an earlier daemon has none.
func (t *try) tell(ctx context.Context, v *volume, err error) {
	if t.began.IsZero() || !trace.SpanContextFromContext(ctx).IsValid() {
		return // no request waits
	}
	_, span := tracer.Start(ctx, tracing.Volume, trace.WithTimestamp(t.began), trace.WithAttributes(
		tracing.VolumeName.String(v.Name), tracing.InputScheme.String(v.Prefix.Scheme)))
	ended := time.Now()
	if t.over() {
		ended = t.ended
	}
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	} else {
		span.SetAttributes(tracing.VolumeWay.String(t.way()))
	}
	span.End(trace.WithTimestamp(ended))
}
