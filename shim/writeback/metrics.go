package writeback

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// collector has the metrics of a Writer; docs/reference/metrics.md describes them.
type collector struct {
	of                           *Writer
	writes, bytes, oldest, reads *prometheus.Desc
}

// NewCollector returns the metrics of a Writer.
func NewCollector(w *Writer) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{w,
		desc("headstart_s3_pending_writes", "Objects that the node has acknowledged, and that their stores do not have yet."),
		desc("headstart_s3_pending_bytes", "Their bytes."),
		desc("headstart_s3_pending_oldest_seconds", "The age of the oldest of them; 0: there is none."),
		desc("headstart_s3_pending_reads_total", "Objects that another node had pending when they were read, by where they came from.", "from")}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	to <- c.writes
	to <- c.bytes
	to <- c.oldest
	to <- c.reads
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	writes, bytes, oldest := c.of.Pending()
	gauge := func(d *prometheus.Desc, v float64) { to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(c.writes, float64(writes))
	gauge(c.bytes, float64(bytes))
	gauge(c.oldest, oldest.Seconds())
	for from, n := range map[string]*atomic.Int64{"node": &c.of.fromNodes, "store": &c.of.fromStore} {
		to <- prometheus.MustNewConstMetric(c.reads, prometheus.CounterValue, float64(n.Load()), from)
	}
}

// Pending is what was acknowledged and is not in the store yet, and for how long at most.
func (w *Writer) Pending() (writes, bytes int64, oldest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.writes {
		if e.acked && !e.Abandoned {
			writes, bytes, oldest = writes+1, bytes+e.Size, max(oldest, time.Since(e.Since))
		}
	}
	return writes, bytes, oldest
}
