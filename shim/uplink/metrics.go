package uplink

import "github.com/prometheus/client_golang/prometheus"

// NewCollector counts the control planes when asked; docs/reference/metrics.md describes the metric.
func NewCollector(u *Uplink) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headstart_control_planes_connected", Help: "Control planes that the daemon has a stream with."},
		func() float64 { return float64(u.Connected()) })
}
