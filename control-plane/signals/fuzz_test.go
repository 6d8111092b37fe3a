package signals

import (
	"math"
	"testing"
)

// What counts of a report is a number that a node can have.
func FuzzReport(f *testing.F) {
	f.Add(1.0, 0.0, 2.0, 0.1, 0.1, 0.0, 4.0, 0.5)
	f.Add(math.NaN(), math.Inf(1), -1.0, 1e300, 0.0, 0.0, 0.0, 1e-300)
	f.Fuzz(func(t *testing.T, rps, eps, inFlight, sojourn, service, wait, capacity, utilization float64) {
		v, reason, ok := parse(Report{RPSFractional: rps, EPS: eps, ApplicationUtilization: utilization, NamedMetrics: map[string]float64{
			InFlightMetric: inFlight, SojournTimeMetric: sojourn, ServiceTimeMetric: service, QueueWaitMetric: wait, CapacityMetric: capacity}})
		if !ok {
			if v != (values{}) || reason == "" {
				t.Errorf("it does not count, with %+v for %q", v, reason)
			}
			return
		}
		for _, n := range []float64{v.rps, v.eps, v.inFlight, v.capacity} {
			if !(n >= 0 && n <= requestsMost) {
				t.Errorf("%+v", v)
			}
		}
		for _, n := range []float64{v.sojourn, v.service, v.wait} {
			if !(n >= 0 && n <= secondsMost) {
				t.Errorf("%+v", v)
			}
		}
		if v.eps > v.rps {
			t.Errorf("more fail than there are: %+v", v)
		}
	})
}
