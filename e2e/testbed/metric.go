package testbed

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// metricsURL is the daemon's in its node's network namespace, by default.
const metricsURL = "http://127.0.0.1:9464/metrics"

// controlPlanePort is where the control plane has its metrics, on the platform's bridge.
const controlPlanePort = 9465

// metricTimeout is many times what an answer takes.
const metricTimeout = 10 * time.Second

// Metric returns a metric of a node's daemon. A name may have labels behind it, as they are
// in Prometheus' text format.
func (b *Bed) Metric(ctx context.Context, node, name string) (value float64, err error) {
	value, err = metric(ctx, &http.Transport{DialContext: dialIn(b.Node(node).Namespace), DisableKeepAlives: true}, metricsURL, name)
	if err != nil {
		return 0, fmt.Errorf("node %s: %w", node, err)
	}
	return value, nil
}

// ControlPlaneMetric returns a metric of the control plane, likewise.
func (b *Bed) ControlPlaneMetric(ctx context.Context, name string) (value float64, err error) {
	at := netip.AddrPortFrom(b.ControlPlaneIP(), controlPlanePort)
	return metric(ctx, &http.Transport{DisableKeepAlives: true}, "http://"+at.String()+"/metrics", name)
}

func metric(ctx context.Context, transport http.RoundTripper, url, name string) (value float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, fmt.Errorf("asking for metrics: %w", err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
