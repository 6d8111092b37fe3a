package route_test

import (
	"math"
	"testing"

	"github.com/headstart-mesh/headstart/filters/route"
)

// A queue is as long as the mean has it: of an endpoint with exponential times of service and
// requests that come by chance, whose mean follows from the lengths' probabilities.
func TestTheQueueThatIsBestForAll(t *testing.T) {
	// mean is how long a request takes on average, in times of service, if a queue of so many
	// is joined by nobody.
	mean := func(most int, load, farther float64) float64 {
		var all, wait float64
		p := 1.0
		for n := range most {
			all, wait = all+p, wait+p*float64(n)
			p *= load
		}
		return (wait + p*farther) / (all + p)
	}
	for _, share := range []float64{0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98} {
		for _, farther := range []float64{0.1, 0.9, 2.5, 7.3, 12.1, 25.7, 101.3, 1003.9} {
			load := 1 / (1 - share)
			best := math.Inf(1)
			for most := 1; most < 300; most++ {
				best = min(best, mean(most, load, farther))
			}
			most := int(math.Ceil(farther / route.Optimal(share, farther)))
			if got := mean(most, load, farther); got > best*1.0001 {
				t.Errorf("share %v, farther %v: with up to %d requests %v, and %v is possible", share, farther, most, got, best)
			}
		}
	}
}

// Whatever the share and the distance, waits count as much as for whoever looks at itself only,
// or more, and more the more goes elsewhere; and never without end.
func TestWaitsCountMoreTheFullerAnEndpointIs(t *testing.T) {
	for _, farther := range []float64{1e-9, 0.1, 1, 30, 1e5, 1e9} {
		before := 1.0
		for _, share := range []float64{1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 1} {
			r := route.Optimal(share, farther)
			if !(r >= before*0.999) || math.IsInf(r, 0) {
				t.Errorf("share %v, farther %v: %v after %v", share, farther, r, before)
			}
			before = r
		}
	}
}
