package trigger

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the triggers; docs/reference/metrics.md describes them.
type Metrics struct {
	entries      *prometheus.CounterVec
	lag, pending *prometheus.GaugeVec
}

// What became of an entry.
const (
	resultDelivered = "delivered"
	resultRetried   = "retried"
	resultDead      = "dead"
	resultReturned  = "returned"
)

var results = map[Verdict]string{Done: resultDelivered, Again: resultRetried, Dead: resultDead, Return: resultReturned}

// NewMetrics registers the metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		entries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_trigger_entries_total", Help: "Entries of streams, by what became of them: delivered, retried, dead or returned."}, []string{"function", "result"}),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headstart_trigger_lag", Help: "Entries of the function's stream that no node has taken yet."}, []string{"function"}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headstart_trigger_pending", Help: "Entries that nodes have taken and not acknowledged."}, []string{"function"}),
	}
	r.MustRegister(m.entries, m.lag, m.pending)
	return m
}

func (m *Metrics) entry(function, result string) { m.entries.WithLabelValues(function, result).Inc() }

func (m *Metrics) backlog(function string, b Backlog) {
	m.lag.WithLabelValues(function).Set(float64(b.Lag))
	m.pending.WithLabelValues(function).Set(float64(b.Pending))
}

// forget takes the gauges of a function away that the node does not consume for any more.
func (m *Metrics) forget(function string) {
	m.lag.DeleteLabelValues(function)
	m.pending.DeleteLabelValues(function)
}
