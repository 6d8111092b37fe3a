package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/buffer"
	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// observeFetches returns what counts the engine's fetches; docs/reference/metrics.md
// describes the metrics.
func observeFetches(r prometheus.Registerer) func(engine.Outcome) {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_total", Help: "Inputs that were fetched, by the reason of their failure, or OK."}, []string{"store", "reason"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetched_bytes_total", Help: "Bytes of inputs that came from the stores."}, []string{"store"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "headstart_fetch_duration_seconds", Help: "Time to fetch one input.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"store"})
	shared := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_fetches_shared_total", Help: "Inputs that came by the fetch of another request for the same object."}, []string{"store"})
	r.MustRegister(total, bytes, seconds, shared)
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

// connectedControlPlanes counts them when asked.
func connectedControlPlanes(u *uplink.Uplink) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headstart_control_planes_connected", Help: "Control planes that the daemon has a stream with."},
		func() float64 { return float64(u.Connected()) })
}

var (
	bufferBytes = prometheus.NewDesc("headstart_buffer_bytes", "Bytes that buffered inputs take, arrived or not.", []string{"tier"}, nil)
	bufferLimit = prometheus.NewDesc("headstart_buffer_limit_bytes", "Bytes that buffered inputs may take.", []string{"tier"}, nil)
	bufferCount = prometheus.NewDesc("headstart_buffer_inputs", "Inputs that are buffered.", []string{"tier"}, nil)
)

// bufferCollector tells what is in each tier of the buffer.
type bufferCollector struct{ *buffer.Buffer }

// Describe implements prometheus.Collector.
func (bufferCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{bufferBytes, bufferLimit, bufferCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (b bufferCollector) Collect(to chan<- prometheus.Metric) {
	for _, t := range b.Tiers() {
		to <- prometheus.MustNewConstMetric(bufferBytes, prometheus.GaugeValue, float64(t.Used), t.Name)
		to <- prometheus.MustNewConstMetric(bufferLimit, prometheus.GaugeValue, float64(t.Limit), t.Name)
		to <- prometheus.MustNewConstMetric(bufferCount, prometheus.GaugeValue, float64(t.Entries), t.Name)
	}
}
