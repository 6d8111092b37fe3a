package s3proxy

import "github.com/prometheus/client_golang/prometheus"

// Metrics of S3 on the node; docs/reference/metrics.md describes them.
type Metrics struct {
	endpoints prometheus.Gauge
	requests  *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	inFlight  prometheus.Gauge
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
	}
	r.MustRegister(m.endpoints, m.requests, m.bytes, m.inFlight)
	return m
}
