package databuffer

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// Metrics are of a buffer.
type Metrics struct {
	inTurn, copied, waited, forwarded prometheus.Counter
	commits                           *prometheus.HistogramVec
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	commands := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headstart_state_commands_total",
		Help: "Commands of functions that may run ahead: in their turn (turn), on copies before it (copy), or before it and so held back until then (wait)."},
		[]string{"way"})
	m := &Metrics{inTurn: commands.WithLabelValues("turn"), copied: commands.WithLabelValues("copy"), waited: commands.WithLabelValues("wait"),
		forwarded: prometheus.NewCounter(prometheus.CounterOpts{Name: "headstart_state_forwarded_total",
			Help: "Keys that functions found, before their turn, as others of their run had written them before theirs."}),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "headstart_state_commit_duration_seconds",
			Help:    "How long it took to have the store hold what a function did before its turn: committed, or not since the store has changed, or unclear.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 4, 8)}, []string{"result"})}
	r.MustRegister(commands, m.forwarded, m.commits)
	return m
}

// committed notes how a commit of so many attempts, and of the one that err is about, has ended.
func (m *Metrics) committed(began time.Time, count int, err error) {
	took := time.Since(began).Seconds()
	for range count {
		m.commits.WithLabelValues("committed").Observe(took)
	}
	switch {
	case errors.Is(err, attempt.ErrUnclear):
		m.commits.WithLabelValues("unclear").Observe(took)
	case err != nil:
		m.commits.WithLabelValues("changed").Observe(took)
	}
}
