package connections

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/pool"
)

// Metrics of connections; docs/reference/metrics.md describes them.
type Metrics struct {
	handovers *prometheus.HistogramVec
	fallbacks *prometheus.CounterVec
	discarded *prometheus.CounterVec
	rekeyed   prometheus.Counter
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		handovers: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "headstart_connection_handover_duration_seconds",
			Help:    "Time from a program's connection to the answer of its start-up, by where its server connection came from: pool, ahead or fresh.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18)}, []string{"destination", "way"}), // to 6.5 s
		fallbacks: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headstart_connection_fallbacks_total",
			Help: "Connections that were not there when a program asked, by the reason."}, []string{"destination", "reason"}),
		discarded: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headstart_connections_discarded_total",
			Help: "Unused connections that were given up, by the reason: ended, age, excess or renewed."}, []string{"destination", "reason"}),
		rekeyed: prometheus.NewCounter(prometheus.CounterOpts{Name: "headstart_connections_rekeyed_total",
			Help: "Connections that have ended because the server changed its TLS keys."}),
	}
	r.MustRegister(m.handovers, m.fallbacks, m.discarded, m.rekeyed)
	return m
}

func (m *Metrics) handed(destination, way string, since time.Time) {
	m.handovers.WithLabelValues(destination, way).Observe(time.Since(since).Seconds())
}

func (m *Metrics) fallback(destination, reason string) {
	m.fallbacks.WithLabelValues(destination, reason).Inc()
}

func (m *Metrics) lost(k pool.Key, why string) { m.discarded.WithLabelValues(k.Destination, why).Inc() }

// Collector tells how many connections a server has, whenever it is asked.
type Collector struct{ s *Server }

var (
	unusedDesc = prometheus.NewDesc("headstart_connections_unused", "Connections that nobody uses yet, and those that are being opened.",
		[]string{"destination"}, nil)
	pumpedDesc = prometheus.NewDesc("headstart_connections_pumped", "Connections of programs that pass the daemon.", nil, nil)
)

// NewCollector returns one.
func NewCollector(s *Server) Collector { return Collector{s} }

// Describe implements prometheus.Collector.
func (c Collector) Describe(ch chan<- *prometheus.Desc) { ch <- unusedDesc; ch <- pumpedDesc }

// Collect implements prometheus.Collector.
func (c Collector) Collect(ch chan<- prometheus.Metric) {
	for _, name := range c.s.list.names() {
		held, _ := c.s.pool.Held(name)
		ch <- prometheus.MustNewConstMetric(unusedDesc, prometheus.GaugeValue, float64(held), name)
	}
	ch <- prometheus.MustNewConstMetric(pumpedDesc, prometheus.GaugeValue, float64(c.s.pumped.Load()))
}
