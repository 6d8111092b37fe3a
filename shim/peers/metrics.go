package peers

import "github.com/prometheus/client_golang/prometheus"

// What came of a question that was asked in vain, besides a peer's own reasons.
const (
	resultLied     = "Lied"     // a block is not what its digest says
	resultSilent   = "Silent"   // nothing came in time
	resultFailed   = "Failed"   // the connection, or what came by it
	resultChanged  = "Changed"  // another version than the one that the fetch began with
	resultReferral = "Referral" // nobody of a referral had the object
	resultRefused  = "Refused"  // the peer's store, or its buffer
)

// ownReasons are a peer's that say something of peers. Others may be whatever it likes.
var ownReasons = map[string]bool{"PeerNotAllowed": true, "PeerQuestionMalformed": true, reasonBusy: true,
	"PeerMembersDiffer": true, "PeerHasNone": true, reasonObjectChanged: true, reasonObjectNotShared: true}

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
