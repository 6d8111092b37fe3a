package ingress

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Metrics of the ingress; docs/reference/metrics.md describes them.
type Metrics struct {
	parked   *prometheus.GaugeVec
	waiting  *prometheus.GaugeVec
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	again    *prometheus.CounterVec
	hints    *prometheus.CounterVec
	observed *prometheus.CounterVec
	worked   *prometheus.CounterVec
	squashed prometheus.Histogram
	cold     *prometheus.HistogramVec
	saved    *prometheus.CounterVec
}

// The phases of a cold start, as headstart_cold_start_seconds has them.
const (
	phaseSchedule = "schedule" // until an instance is chosen
	phaseStart    = "start"    // until it is ready
	phaseInput    = "input"    // until the last input is there
)

// startLeast is what tells an instance that a request from another node waited for from one that was ready when it came.
const startLeast = 5 * time.Millisecond

// What became of a hint.
const (
	hintAccepted = "accepted"
	hintDropped  = "dropped" // too many are open, or the daemon is being stopped
	hintRefused  = "refused" // malformed, or of no function that is deployed
)

// NewMetrics registers the ingress's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		parked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headstart_ingress_requests_in_flight", Help: "Requests that the node holds or delivers."}, []string{"function"}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headstart_ingress_requests_waiting", Help: "Requests that wait on the node for an instance that has none, or for their input."}, []string{"function"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_ingress_requests_total", Help: "Requests that ended, by the reason of their failure, or OK."}, []string{"function", "reason"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headstart_ingress_request_duration_seconds", Help: "Time from a request's arrival at the daemon to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"function"}),
		again: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_ingress_requests_placed_again_total", Help: "Times that a request was placed again, by why it did not reach the instance before."}, []string{"function", "reason"}),
		worked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_ingress_delivery_seconds_total",
			Help: "Time that instances have had requests, those included that were given up before their turn."}, []string{"function"}),
		squashed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headstart_ingress_squash_duration_seconds", Help: "Time from when a request is given up before its turn until its instance is free again.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 1.5, 30)}), // up to 13 s
		cold: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headstart_cold_start_seconds", Help: "What requests waited for that met no instance that was ready, by phase: schedule, start and input, which go on at the same time.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"function", "phase"}), // up to 82 s
		saved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_cold_start_saved_seconds_total", Help: "Time that inputs were on their way while the instances of their requests started."}, []string{"function"}),
		hints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_hints_total", Help: "Hints of inputs, by what became of them: accepted, dropped or refused."}, []string{"result"}),
		observed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_observed_inputs_total",
			Help: "Requests of observed functions, by what they say of their inputs: named, incomplete or refused."}, []string{"function", "outcome"}),
	}
	for _, result := range []string{hintAccepted, hintDropped, hintRefused} {
		m.hints.WithLabelValues(result) // the first one dropped is an increase, too
	}
	r.MustRegister(m.parked, m.waiting, m.requests, m.duration, m.again, m.hints, m.observed, m.worked, m.squashed, m.cold, m.saved)
	return m
}

// waits counts a request that waits until over is called, once or more often. Nobody waits for one ahead of its turn.
func (m *Metrics) waits(function string, inTurn bool) (over func()) {
	if !inTurn {
		return func() {}
	}
	waiting := m.waiting.WithLabelValues(function)
	waiting.Inc()
	return sync.OnceFunc(waiting.Dec)
}

// observe counts one request. function is empty for a name that is no function's: it
// would let callers grow the number of series.
func (m *Metrics) observe(ctx context.Context, function string, took time.Duration, err error) {
	reason := "OK"
	if err != nil {
		reason = problem.Of(err).Title
	}
	m.requests.WithLabelValues(function, reason).Inc()
	sample(ctx, m.duration.WithLabelValues(function), took)
}

// sample observes a duration, with the trace that it is of as its exemplar.
func sample(ctx context.Context, h prometheus.Observer, took time.Duration) {
	span := trace.SpanContextFromContext(ctx)
	if of, can := h.(prometheus.ExemplarObserver); can && span.IsSampled() {
		of.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": span.TraceID().String()})
		return
	}
	h.Observe(took.Seconds())
}

// scheduled counts how long the choice of an instance took that is to start.
func (m *Metrics) scheduled(ctx context.Context, function string, took time.Duration) {
	sample(ctx, m.cold.WithLabelValues(function, phaseSchedule), took)
}

// started counts a cold start: of an instance that a request waited for from came until ready, and of its inputs. Without
// Headstart the function would have asked for them when it was ready.
func (m *Metrics) started(ctx context.Context, function string, came, ready time.Time, inputs []*objects.Input) {
	sample(ctx, m.cold.WithLabelValues(function, phaseStart), ready.Sub(came))
	var began, ended time.Time
	coming := false
	for _, i := range inputs {
		if began.IsZero() || i.Began().Before(began) {
			began = i.Began()
		}
		if i.Ended().After(ended) {
			ended = i.Ended()
		}
		coming = coming || i.Ended().IsZero()
	}
	if ended.After(began) {
		sample(ctx, m.cold.WithLabelValues(function, phaseInput), ended.Sub(began))
	}
	if coming { // a body
		ended = ready
	}
	if both := overlap(came, ready, began, ended); both > 0 {
		m.saved.WithLabelValues(function).Add(both.Seconds())
	}
}

// overlap is how long two times last together, negative if they do not.
func overlap(from, to, began, ended time.Time) time.Duration {
	if began.After(from) {
		from = began
	}
	if ended.Before(to) {
		to = ended
	}
	return to.Sub(from)
}

func (m *Metrics) placedAgain(function string, err error) {
	m.again.WithLabelValues(function, problem.Of(err).Title).Inc()
}

func (m *Metrics) hint(result string) { m.hints.WithLabelValues(result).Inc() }
