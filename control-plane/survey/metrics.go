package survey

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/control-plane/signals"
)

var labels = []string{"function", "node"}

// gauges are what is known of each function on each node; docs/reference/metrics.md
// describes them.
var gauges = []struct {
	desc *prometheus.Desc
	of   func(signals.Estimate) float64
}{
	{prometheus.NewDesc("headstart_signal_requests_per_second", "Requests that end on the node, smoothed.", labels, nil), func(e signals.Estimate) float64 { return e.RPS }},
	{prometheus.NewDesc("headstart_signal_failures_per_second", "Requests that fail on the node, smoothed.", labels, nil), func(e signals.Estimate) float64 { return e.EPS }},
	{prometheus.NewDesc("headstart_signal_requests_in_flight", "Requests that the node's instances have, smoothed.", labels, nil), func(e signals.Estimate) float64 { return e.InFlight }},
	{prometheus.NewDesc("headstart_signal_sojourn_seconds", "How long an instance on the node has a request.", labels, nil), func(e signals.Estimate) float64 { return e.SojournTime.Seconds() }},
	{prometheus.NewDesc("headstart_signal_service_seconds", "How long an instance on the node works on a request.", labels, nil), func(e signals.Estimate) float64 { return e.ServiceTime.Seconds() }},
	{prometheus.NewDesc("headstart_signal_trust_ratio", "Which part of the estimates is the node's own.", labels, nil), func(e signals.Estimate) float64 { return e.Trust }},
}

// collector tells what a book knows.
type collector struct{ *signals.Book }

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, g := range gauges {
		to <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, row := range c.All(time.Now()) {
		for _, g := range gauges {
			to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.of(row.Estimate), row.Function, row.Node)
		}
	}
}
