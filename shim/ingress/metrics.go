package ingress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// Metrics of the ingress; docs/reference/metrics.md describes them.
type Metrics struct {
	parked   *prometheus.GaugeVec
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	again    *prometheus.CounterVec
	hints    *prometheus.CounterVec
	worked   *prometheus.CounterVec
	squashed prometheus.Histogram
}

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
		hints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_hints_total", Help: "Hints of inputs, by what became of them: accepted, dropped or refused."}, []string{"result"}),
	}
	for _, result := range []string{hintAccepted, hintDropped, hintRefused} {
		m.hints.WithLabelValues(result) // the first one dropped is an increase, too
	}
	r.MustRegister(m.parked, m.requests, m.duration, m.again, m.hints, m.worked, m.squashed)
	return m
}

// observe counts one request. function is empty for a name that is no function's: it
// would let callers grow the number of series.
func (m *Metrics) observe(function string, took time.Duration, err error) {
	reason := "OK"
	if err != nil {
		reason = problem.Of(err).Title
	}
	m.requests.WithLabelValues(function, reason).Inc()
	m.duration.WithLabelValues(function).Observe(took.Seconds())
}

func (m *Metrics) placedAgain(function string, err error) {
	m.again.WithLabelValues(function, problem.Of(err).Title).Inc()
}

func (m *Metrics) hint(result string) { m.hints.WithLabelValues(result).Inc() }
