package objects

import "github.com/prometheus/client_golang/prometheus"

// NewMetrics returns what counts the fetches of a cache; docs/reference/metrics.md
// describes the metrics.
func NewMetrics(r prometheus.Registerer) func(Outcome) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_total", Help: "Inputs that were fetched, by the reason of their failure, or OK."}, []string{"store", "reason"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetched_bytes_total", Help: "Bytes of inputs that came from the stores."}, []string{"store"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headstart_fetch_duration_seconds", Help: "Time to fetch one input.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"store"})
	shared := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_shared_total", Help: "Inputs that came by the fetch of another request for the same object."}, []string{"store"})
	r.MustRegister(total, bytes, seconds, shared)
	return func(o Outcome) {
		if o.Shared {
			shared.WithLabelValues(o.Store).Inc()
			return
		}
		reason := o.Reason
		if reason == "" {
			reason = "OK"
		}
		total.WithLabelValues(o.Store, reason).Inc()
		bytes.WithLabelValues(o.Store).Add(float64(o.Bytes))
		seconds.WithLabelValues(o.Store).Observe(o.Ended.Sub(o.Began).Seconds())
	}
}
