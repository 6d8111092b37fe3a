package uplink

import "github.com/prometheus/client_golang/prometheus"

var (
	connected = prometheus.NewDesc("headstart_control_planes_connected",
		"Control planes that the daemon has a stream with.", nil, nil)
	toldFunctions = prometheus.NewDesc("headstart_control_plane_functions",
		"Functions that a control plane has told the daemon.", []string{"address"}, nil)
)

type collector struct{ *Uplink }

// NewCollector counts the control planes when asked; docs/reference/metrics.md describes the metrics.
func NewCollector(u *Uplink) prometheus.Collector { return collector{u} }

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) { out <- connected; out <- toldFunctions }

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(connected, prometheus.GaugeValue, float64(c.Connected()))
	for address, n := range c.told() {
		out <- prometheus.MustNewConstMetric(toldFunctions, prometheus.GaugeValue, float64(n), address)
	}
}

// told is how many functions each control plane has told of, by its address.
func (u *Uplink) told() map[string]int {
	u.handling.Lock()
	defer u.handling.Unlock()
	told := map[string]int{}
	for _, s := range u.others(nil) {
		told[s.address] = len(s.said.functions.GetFunctions())
	}
	return told
}
