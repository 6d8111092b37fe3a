package peers

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	members          prometheus.Gauge
	asked, answered  *prometheus.CounterVec
	fetches          *prometheus.CounterVec
	received, served prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		members: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headstart_site_members", Help: "Nodes of this node's site, this one among them."}),
		asked: counter("headstart_peer_failures_total",
			"Questions to other nodes for objects that were asked in vain, by the reason.", "reason"),
		answered: counter("headstart_peer_answers_total", "Questions of other nodes for objects, by the answer.", "answer"),
		fetches: counter("headstart_peer_fetches_total",
			"Objects by where they came from: peer, store, or both.", "from"),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "headstart_peer_received_bytes_total",
			Help: "Bytes of objects that came from other nodes and fit their digests."}),
		served: prometheus.NewCounter(prometheus.CounterOpts{Name: "headstart_peer_served_bytes_total",
			Help: "Bytes of objects that went to other nodes."}),
	}
	r.MustRegister(m.members, m.asked, m.answered, m.fetches, m.received, m.served)
	return m
}
