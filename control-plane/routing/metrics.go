package routing

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/control-plane/weights"
)

// changeNames are the values of the label change.
var changeNames = map[weights.Change]string{weights.Held: "held", weights.Expectations: "expectations", weights.Replaced: "replaced"}

type metrics struct {
	rows *prometheus.CounterVec
	took prometheus.Histogram
}

// newMetrics makes what docs/reference/metrics.md describes.
func newMetrics() *metrics {
	m := &metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_weights_rows_total", Help: "Rows of weights, one for a function and gateway, that were decided on, by what became of them."}, []string{"change"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "headstart_weights_decision_seconds", Help: "How long it took to decide on all that was due.", Buckets: prometheus.ExponentialBuckets(100e-6, 4, 8)}),
	}
	for _, name := range changeNames {
		m.rows.WithLabelValues(name) // also what has not been yet
	}
	return m
}

var (
	shareDesc   = prometheus.NewDesc("headstart_weights_share_ratio", "Part of the function's requests that the weights send to the node.", []string{"function", "node"}, nil)
	workersDesc = prometheus.NewDesc("headstart_weights_workers", "How many of the function's requests the node is taken to work on at a time.", []string{"function", "node"}, nil)
	latencyDesc = prometheus.NewDesc("headstart_weights_expected_seconds", "How long a request of the function is expected to take with the weights in use.", []string{"function"}, nil)
)

// collector tells what a planner has decided.
type collector struct{ *Planner }

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	to <- shareDesc
	to <- workersDesc
	to <- latencyDesc
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for name, f := range c.functions {
		if f.matrix == nil {
			continue
		}
		gauge(latencyDesc, f.latency, name)
		for j, share := range f.spread() {
			gauge(shareDesc, share, name, f.nodes[j])
			gauge(workersDesc, f.measured[j].Workers, name, f.nodes[j])
		}
	}
}

// spread is which part of all requests each node gets.
func (f *function) spread() []float64 {
	of := make([]float64, len(f.nodes))
	var all float64
	for i := range f.gateways {
		demand := f.loop.Demand(i)
		all += demand
		for j, share := range f.loop.Shares(i) {
			of[j] += demand * share
		}
	}
	for j := range of {
		if all > 0 {
			of[j] /= all
		}
	}
	return of
}
