package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/engine"
)

// observeFetches returns what counts the engine's fetches; docs/reference/metrics.md
// describes the metrics.
func observeFetches(r prometheus.Registerer, buf *buffer.Buffer) func(engine.Outcome) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_total", Help: "Inputs that were fetched, by the reason of their failure, or OK."}, []string{"store", "reason"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetched_bytes_total", Help: "Bytes of inputs that came from the stores."}, []string{"store"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headstart_fetch_duration_seconds", Help: "Time to fetch one input.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"store"})
	shared := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_shared_total", Help: "Inputs that came by the fetch of another request for the same object."}, []string{"store"})
	used := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headstart_buffer_bytes", Help: "Bytes that buffered inputs take, arrived or not."}, func() float64 { return float64(buf.Used()) })
	r.MustRegister(total, bytes, seconds, shared, used)
	return func(o engine.Outcome) {
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
