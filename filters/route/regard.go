package route

import (
	"math"
	"sort"
)

// regardAll says how often waits count at each endpoint, of which near are the nearest first.
// Weight that lies farther away, by more than a request takes, would not be there if the
// endpoint had room: only functions with balanced weights come with what the filter needs.
func regardAll(of []endpoint, near []int, weight float64) {
	// The weight of so many, and with the time until an answer from each.
	nearer, times := make([]float64, len(near)+1), make([]float64, len(near)+1)
	for k, i := range near {
		w := float64(of[i].Weight)
		nearer[k+1], times[k+1] = nearer[k]+w, times[k]+w*(of[i].rtt+of[i].service)
	}
	for i := range of {
		e := &of[i]
		e.regard = regard
		k := sort.Search(len(near), func(k int) bool { return of[near[k]].RTT > e.RTT+e.Service })
		away := weight - nearer[k]
		if away <= 0 {
			continue
		}
		farther := (times[len(near)]-times[k])/away - (e.rtt + e.service)
		full := min(1, away/weight/spill)
		e.regard += max(0, optimal(away/weight, farther*e.workers/e.service)-regard) * full * full
	}
}

// optimal returns how often waits have to count in a queue for the mean of all times to be
// least, those of requests that go elsewhere included: Naor, "The regulation of queue size by
// levying tolls" (Econometrica, 1969). Elsewhere, which is so many times of service farther,
// a share of the requests goes in the long run: what the queue is offered is more than it can
// do by that. Who looks at itself only joins up to so many requests in all, selfish; the best
// for all is the length at which
//
//	(length (1-load) - load (1-load^length)) / (1-load)^2 = selfish.
func optimal(share, farther float64) float64 {
	load := 1 / (1 - min(share, spillMost))
	selfish := 1 + farther
	over := 1 - load
	low, high := 1.0, selfish
	for range lengthSteps {
		length := (low + high) / 2
		if (length*over-load*(1-math.Pow(load, length)))/(over*over) < selfish {
			low = length
		} else {
			high = length
		}
	}
	// The wait that is worth it is one of all that are before the last.
	return farther / (high - 1)
}

// lengthSteps is how often optimal halves where the length lies: to a thousandth of a request in
// queues of a thousand.
const lengthSteps = 20
