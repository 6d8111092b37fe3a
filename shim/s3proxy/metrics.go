package s3proxy

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/s3proxy/learn"
)

// Metrics of S3 on the node; docs/reference/metrics.md describes them.
type Metrics struct {
	endpoints prometheus.Gauge
	requests  *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	inFlight  prometheus.Gauge
	predicted *prometheus.CounterVec
	fetched   *prometheus.CounterVec
}

// foreseen counts what came of predictions.
func (m *Metrics) foreseen(o learn.Observation) {
	for _, f := range o.Fetched {
		result := "wasted"
		if slices.ContainsFunc(o.Read, func(r learn.Object) bool { return r.Reference == f.Reference }) {
			result = "read"
		}
		m.predicted.WithLabelValues(result).Inc()
		m.fetched.WithLabelValues(result).Add(float64(f.Bytes))
	}
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		endpoints: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_s3_endpoints", Help: "Sandboxes whose S3 the daemon serves."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_s3_requests_total", Help: "Requests of functions to S3 on the node, by what became of them: the way to the object that the node had or fetched, passed for what the store has answered, or S3's code of a refusal."},
			[]string{"store", "operation", "result"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_s3_bytes_total", Help: "Bytes of objects that functions read (read) and wrote (written) by S3 on the node."},
			[]string{"store", "direction"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_s3_requests_in_flight", Help: "Requests of functions to S3 on the node that are under way."}),
		predicted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_s3_predictions_total", Help: "Objects that were fetched for a cold start because of what was learned, by whether the program has read them (read) or not (wasted)."},
			[]string{"result"}),
		fetched: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_s3_predicted_bytes_total", Help: "Their bytes."}, []string{"result"}),
	}
	r.MustRegister(m.endpoints, m.requests, m.bytes, m.inFlight, m.predicted, m.fetched)
	return m
}
