package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// Metrics count what runs come to.
type Metrics struct {
	duration *prometheus.HistogramVec
	prepared *prometheus.CounterVec
	ahead    *prometheus.CounterVec
	fenced   prometheus.Histogram
}

// NewMetrics registers them.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "headstart_workflow_duration_seconds",
		Help:    "How long runs of workflows take, from the request to the end, by what they come to.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 19), // up to 262 s
	}, []string{"workflow", "result"}), prepared: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_workflow_prepared_total",
		Help: "Functions of which runs have asked for an instance ahead of their call.",
	}, []string{"workflow"}), ahead: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headstart_workflow_ahead_total",
		Help: "Calls that functions have worked on before their turn, by what came of that.",
	}, []string{"workflow", "result"}), fenced: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "headstart_workflow_fence_duration_seconds",
		Help:    "Time from an answer that was guessed wrong until nothing counts any more of what was made of the guess.",
		Buckets: prometheus.ExponentialBuckets(0.00001, 2, 16), // up to 0.3 s
	})}
	r.MustRegister(m.duration, m.prepared, m.ahead, m.fenced)
	return m
}

// What runs come to, beside the reason of a problem.
const (
	resultOK    = "ok"
	resultFault = "fault"
)

// adopted is the result of a call before its turn whose turn came; the others say why it was squashed.
const adopted = "adopted"

func (m *Metrics) attempted(workflow, result string) { m.ahead.WithLabelValues(workflow, result).Inc() }

// resultOf is what a run has come to.
func resultOf(fault *program.Fault, err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return string(problem.ReasonFunctionTimeout)
	case err != nil:
		return string(problem.ReasonOf(err))
	case fault != nil:
		return resultFault
	}
	return resultOK
}

func (m *Metrics) observe(workflow string, began time.Time, result string) {
	m.duration.WithLabelValues(workflow, result).Observe(time.Since(began).Seconds())
}
