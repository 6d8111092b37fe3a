package buffer

import "github.com/prometheus/client_golang/prometheus"

var (
	metricBytes = prometheus.NewDesc(
		"headstart_buffer_bytes", "Bytes that buffered inputs take, arrived or not.", []string{"tier"}, nil,
	)
	metricLimit = prometheus.NewDesc(
		"headstart_buffer_limit_bytes", "Bytes that buffered inputs may take.", []string{"tier"}, nil,
	)
	metricKept = prometheus.NewDesc(
		"headstart_cache_bytes", "Bytes of objects that are kept and that no input uses.", []string{"tier"}, nil,
	)
	metricKeptCount = prometheus.NewDesc(
		"headstart_cache_objects", "Objects that are kept and that no input uses.", []string{"tier"}, nil,
	)
	metricCount = prometheus.NewDesc("headstart_buffer_inputs", "Inputs that are buffered.", []string{"tier"}, nil)
)

// NewCollector tells what is in each tier of the buffer; docs/reference/metrics.md describes the
// metrics.
func NewCollector(b *Buffer) prometheus.Collector { return collector{b} }

type collector struct{ *Buffer }

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{metricBytes, metricLimit, metricCount, metricKept, metricKeptCount} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (b collector) Collect(to chan<- prometheus.Metric) {
	for _, t := range b.Tiers() {
		to <- prometheus.MustNewConstMetric(metricBytes, prometheus.GaugeValue, float64(t.Used), t.Name)
		to <- prometheus.MustNewConstMetric(metricLimit, prometheus.GaugeValue, float64(t.Limit), t.Name)
		to <- prometheus.MustNewConstMetric(metricCount, prometheus.GaugeValue, float64(t.Entries), t.Name)
		to <- prometheus.MustNewConstMetric(metricKept, prometheus.GaugeValue, float64(t.Kept), t.Name)
		to <- prometheus.MustNewConstMetric(metricKeptCount, prometheus.GaugeValue, float64(t.KeptEntries), t.Name)
	}
}
