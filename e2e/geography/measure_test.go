package geography_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/geography"
	"github.com/headstart-mesh/headstart/shim/probe"
)

// The bounds of the product: a thousand nodes know the ways that nobody measured.
func TestThousandNodesKnowTheirDistances(t *testing.T) {
	const (
		errP50, errP95 = 0.10, 0.25
		nodes          = 1000
		length         = 4 * time.Minute
		// Routes are this much longer or shorter than distance says (standard deviation).
		detours = 0.08
		seed    = 1
	)
	r := geography.New(nodes, detours, seed).Measure(length, seed)
	t.Logf("rtt_err_p50 %.3f rtt_err_p95 %.3f; near %.3f, %.3f; %d of %d pairs measured; %d probes a second at most, %.2f in the last minute",
		r.P50, r.P95, r.NearP50, r.NearP95, r.Measured, r.Pairs, r.ProbesMost, r.ProbesLast)
	if r.P50 > errP50 || r.P95 > errP95 || r.Unknown > 0 {
		t.Errorf("errors of %.3f (p50) and %.3f (p95), %d ways unknown", r.P50, r.P95, r.Unknown)
	}
	if r.ProbesMost > probe.Rate {
		t.Errorf("%d probes of one node in one second", r.ProbesMost)
	}
	if linear := 2 * probe.PeersMost * nodes; r.Measured > linear {
		t.Errorf("%d pairs were measured: that is not O(n)", r.Measured)
	}
}

// One seed, one result: what fails here fails again.
func TestMeasuringIsDeterministic(t *testing.T) {
	measure := func() geography.Result { return geography.New(100, 0.05, 3).Measure(time.Minute, 3) }
	if first, second := measure(), measure(); first != second {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// The table of docs/results/routing.md: go test -run '^$' -bench . -benchtime 1x ./e2e/geography
func BenchmarkMeasure(b *testing.B) {
	for _, nodes := range []int{30, 100, 300, 1000} {
		for _, detours := range []float64{0, 0.05, 0.08, 0.12} {
			b.Run(fmt.Sprintf("nodes=%d/detours=%g", nodes, detours), func(b *testing.B) {
				for b.Loop() {
					r := geography.New(nodes, detours, 1).Measure(4*time.Minute, 1)
					b.ReportMetric(r.P50, "rtt_err_p50")
					b.ReportMetric(r.P95, "rtt_err_p95")
					b.ReportMetric(r.NearP50, "near_p50")
					b.ReportMetric(float64(r.Measured)/float64(r.Pairs), "measured")
					b.ReportMetric(r.ProbesLast, "probes/s")
				}
			})
		}
	}
}
