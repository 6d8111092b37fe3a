package relay

import "github.com/prometheus/client_golang/prometheus"

// Metrics of the relay; docs/reference/metrics.md describes them.
type Metrics struct {
	connected   prometheus.Gauge
	assignments prometheus.Gauge
	picked      prometheus.Gauge
	updates     *prometheus.CounterVec
	streams     prometheus.Gauge
	requests    *prometheus.CounterVec
	refused     *prometheus.CounterVec
	uncounted   prometheus.Counter
}

// What became of an update of the control plane's.
const (
	updateAccepted = "accepted"
	updateRefused  = "refused" // malformed, or too large
)

// NewMetrics registers the relay's metrics.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_relay_connected", Help: "1 while the control plane sends endpoints, 0 while it is away."}),
		assignments: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_relay_functions", Help: "Functions whose endpoints the node has for its gateways."}),
		picked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_relay_picked_functions", Help: "Functions whose instance the node's gateways are to pick for each request."}),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_relay_updates_total", Help: "Updates by the control plane of the endpoints, and of what to expect of them: accepted or refused."}, []string{"result"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_relay_streams", Help: "Streams over which gateways hear of endpoints."}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_relay_requests_total", Help: "Requests that the node's gateways sent to instances, by who chose the instance: picked, elsewhere or weights."}, []string{"function", "choice"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headstart_relay_refusals_total", Help: "What gateways refused of what the node told them, by the type of resource."}, []string{"type"}),
		uncounted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headstart_relay_requests_uncounted_total", Help: "Requests of gateways that are in no signals, as their endpoints are too many."}),
	}
	for _, result := range []string{updateAccepted, updateRefused} {
		m.updates.WithLabelValues(result) // the first one refused is an increase, too
	}
	r.MustRegister(m.connected, m.assignments, m.picked, m.updates, m.streams, m.requests, m.refused, m.uncounted)
	return m
}
