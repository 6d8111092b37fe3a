package gateways

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/routing/bed"
)

func observed(at int, served int, service, sojourn, requests, rtt float64) observation {
	return observation{at: time.Unix(int64(at), 0), states: []bed.State{{Workers: 1}, {Workers: 4, Served: served, Service: service, Sojourn: sojourn}},
		requests: []float64{requests, 0}, rtt: [][]float64{{0, rtt}, {rtt, 0}}}
}

func TestAveragesAreOfTheWindow(t *testing.T) {
	got := average([]observation{observed(100, 10, 1, 2, 50, 0.04), observed(102, 12, 9, 9, 60, 0.05), observed(110, 20, 2, 5, 150, 0.06)})
	want := measured{demand: []float64{10, 0}, rtt: [][]float64{{0, 0.05}, {0.05, 0}}, service: []float64{0, 0.1}, sojourn: []float64{0, 0.3}, workers: []int{1, 4}}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if d := cmp.Diff(want, got, cmp.AllowUnexported(measured{}), near); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestOfOneObservationOnlyTheRoundTripsAreKnown(t *testing.T) {
	got := average([]observation{observed(100, 10, 1, 2, 50, 0.04)})
	want := measured{demand: []float64{0, 0}, rtt: [][]float64{{0, 0.04}, {0.04, 0}}, service: []float64{0, 0}, sojourn: []float64{0, 0}, workers: []int{1, 4}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
