package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
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
	value, err = metric(ctx, b.metricsOf(node), metricsURL, name)
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

// Metrics returns all metrics of a node's daemon, by their names.
func (b *Bed) Metrics(ctx context.Context, node string) (all map[string]*dto.MetricFamily, err error) {
	err = metrics(ctx, b.metricsOf(node), metricsURL, func(body io.Reader) (err error) {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err = parser.TextToMetricFamilies(body)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node, err)
	}
	return all, nil
}

func (b *Bed) metricsOf(node string) http.RoundTripper {
	return &http.Transport{DialContext: dialIn(b.Node(node).Namespace), DisableKeepAlives: true}
}

func metric(ctx context.Context, transport http.RoundTripper, url, name string) (value float64, err error) {
	err = metrics(ctx, transport, url, func(body io.Reader) error {
		for lines := bufio.NewScanner(body); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
				_, err := fmt.Sscan(rest, &value)
				return err
			}
		}
		return fmt.Errorf("there is no metric %s", name)
	})
	return value, err
}

// metrics has somebody read metrics.
func metrics(ctx context.Context, transport http.RoundTripper, url string, read func(io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("asking for metrics: %w", err)
	}
	defer resp.Body.Close()
	return read(resp.Body)
}
