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
	want := Measured{Over: 10 * time.Second, Demand: []float64{10, 0}, RTT: [][]float64{{0, 0.05}, {0.05, 0}}, Service: []float64{0, 0.1}, Sojourn: []float64{0, 0.3}, Workers: []int{1, 4}}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestOfOneObservationOnlyTheRoundTripsAreKnown(t *testing.T) {
	got := average([]observation{observed(100, 10, 1, 2, 50, 0.04)})
	want := Measured{Demand: []float64{0, 0}, RTT: [][]float64{{0, 0.04}, {0.04, 0}}, Service: []float64{0, 0}, Sojourn: []float64{0, 0}, Workers: []int{1, 4}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
