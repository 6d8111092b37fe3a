package functionapi

import "github.com/prometheus/client_golang/prometheus"

// resultOK is in place of a reason for what did not fail.
const resultOK = "OK"

// Metrics of the functions' sockets; docs/reference/metrics.md describes them.
type Metrics struct {
	sockets  prometheus.Gauge
	calls    *prometheus.CounterVec
	inFlight prometheus.Gauge
	reads    *prometheus.CounterVec
	bytes    prometheus.Counter
	outputs  *prometheus.CounterVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		sockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_function_sockets", Help: "Sandboxes whose socket the daemon serves."}),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_function_calls_total", Help: "Calls of functions by functions: OK if they were passed on, or the reason of their refusal."}, []string{"reason"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_function_calls_in_flight", Help: "Calls of functions by functions that are under way."}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_function_reads_total", Help: "Inputs that functions read by their sockets, by the reason of their failure, or OK."}, []string{"reason"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headstart_function_read_bytes_total", Help: "Bytes of inputs that functions read by their sockets."}),
		outputs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_function_outputs_total",
			Help: "Files that functions had stored by their sockets, by the reason of their failure, or OK."}, []string{"reason"}),
	}
	r.MustRegister(m.sockets, m.calls, m.inFlight, m.reads, m.bytes, m.outputs)
	return m
}
