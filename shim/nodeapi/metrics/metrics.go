// Package metrics is what every one of Headstart's processes tells of itself.
package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// NewRegistry returns a registry with the metrics of Go, of the process, and of the program's version.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "headstart_build_info", Help: "1, by the program's version and that of its Go.",
			ConstLabels: prometheus.Labels{"version": nodeapi.Version, "goversion": runtime.Version()}}, func() float64 { return 1 }))
	return r
}
