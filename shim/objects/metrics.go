package objects

import "github.com/prometheus/client_golang/prometheus"

// Metrics hear of what a cache does.
type Metrics interface {
	// Ended is told of each input when it has ended, from its goroutine.
	Ended(o Outcome)
	// Evicted is told why an object is not kept any more. The cache waits for it.
	Evicted(why string)
}

// quiet is for nobody.
type quiet struct{}

func (quiet) Ended(Outcome)  {}
func (quiet) Evicted(string) {}

type metrics struct {
	total, bytes, ways, evicted *prometheus.CounterVec
	seconds                     *prometheus.HistogramVec
}

// NewMetrics returns what counts the fetches of a cache; docs/reference/metrics.md describes the metrics.
func NewMetrics(r prometheus.Registerer) Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		total:   counter("headstart_fetches_total", "Inputs that were fetched, by the reason of their failure, or OK.", "store", "reason"),
		bytes:   counter("headstart_fetched_bytes_total", "Bytes of inputs that came from the stores.", "store"),
		ways:    counter("headstart_cache_inputs_total", "Inputs that have an object, by the way they came to it.", "store", "way"),
		evicted: counter("headstart_cache_evictions_total", "Objects that are not kept any more, by the reason.", "reason"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headstart_fetch_duration_seconds", Help: "Time to fetch one input.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 14)}, []string{"store"}),
	}
	r.MustRegister(m.total, m.bytes, m.ways, m.evicted, m.seconds)
	return m
}

func (m *metrics) Ended(o Outcome) {
	if o.Way == WayStored && o.Reason != "" {
		return // there was none
	}
	if o.Way != "" {
		m.ways.WithLabelValues(o.Store, o.Way).Inc()
	}
	if o.Way != "" && o.Way != WayStore {
		return // nothing was fetched for it
	}
	reason := o.Reason
	if reason == "" {
		reason = "OK"
	}
	m.total.WithLabelValues(o.Store, reason).Inc()
	m.bytes.WithLabelValues(o.Store).Add(float64(o.Bytes))
	m.seconds.WithLabelValues(o.Store).Observe(o.Ended.Sub(o.Began).Seconds())
}

func (m *metrics) Evicted(why string) { m.evicted.WithLabelValues(why).Inc() }
