package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// metricsURL is the daemon's in its node's network namespace, by default.
const metricsURL = "http://127.0.0.1:9464/metrics"

// metricTimeout is many times what an answer takes.
const metricTimeout = 10 * time.Second

// Metric returns a metric without labels of a node's daemon.
func (b *Bed) Metric(ctx context.Context, node, name string) (value float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, metricsURL, nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DialContext: dialIn(b.Node(node).Namespace), DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, fmt.Errorf("metrics of node %s: %w", node, err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("node %s has no metric %s", node, name)
}
