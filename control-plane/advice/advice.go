// Package advice tells what a service would gain from Headstart, and lose, by how it was used.
package advice

import (
	"math"
	"time"
)

const (
	// withdrawing is how long after its idle window a workload's pods go: as long as gateways take to hear of it
	// (platform/kube).
	withdrawing = 4 * time.Second
	// overlapLeast is how much of a request's way must go on beside the start for the advice to speak of it: less than a tenth
	// of a second nobody notices.
	overlapLeast = 100 * time.Millisecond
	// idleLeast is which part of their time replicas must be away for an idle window to be worth a change.
	idleLeast = 0.01
)

// windows are the idle windows to choose from.
var windows = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour}

// Use is how a service was used while it was looked at.
type Use struct {
	// Requests are how many ended in each step, the first of which is a point: what was before is not known.
	Requests []float64
	Step     time.Duration
	// Duration is the mean of a request's.
	Duration time.Duration
	// Replicas are how many the service has when it is idle.
	Replicas int
	// Start is how long a pod takes from its creation to its readiness.
	Start time.Duration
	// Upload is how long a request's body takes to arrive.
	Upload time.Duration
	// Anothers is the idle window of another autoscaler that scales the service to zero; 0: none does.
	Anothers time.Duration
}

// Gain is what would have been otherwise with an idle window, in the time that was looked at.
type Gain struct {
	// Window is the idle window, 0: the service stays as it is.
	Window time.Duration
	// Idle is the sum of the times for which replicas would not have been there.
	Idle time.Duration
	// Cold is how many requests are to be expected to have waited for a start, also if another autoscaler scales to zero.
	Cold float64
	// Waited is for how long in all, beyond the time that their bodies took.
	Waited time.Duration
	// Overlapped is for how long their bodies would have been on their way meanwhile, in all.
	Overlapped time.Duration
}

// Of is the best of the gains. worth is how much longer than a client waits a replica has to be away for that.
func Of(u Use, worth float64) Gain {
	pauses := u.pauses()
	if u.Anothers > 0 {
		g := u.gain(pauses, u.Anothers)
		g.Window, g.Idle = 0, 0
		return g
	}
	var best Gain
	most := 0.0
	least := idleLeast * float64(len(u.Requests)-1) * float64(u.Step) * float64(u.Replicas)
	for _, window := range windows {
		if window < u.Step {
			continue // what is shorter cannot be seen
		}
		g := u.gain(pauses, window)
		if net := g.Idle.Seconds() - worth*g.Waited.Seconds(); net > most && float64(g.Idle) >= least {
			best, most = g, net
		}
	}
	return best
}

// gain is that of one idle window, as it is to be expected.
func (u Use) gain(pauses []pause, window time.Duration) Gain {
	var cold, idle float64
	for _, p := range pauses {
		if over := p.lasts - window - withdrawing; over > 0 {
			idle += p.likely * float64(over)
			if p.ended {
				cold += p.likely
			}
		}
	}
	g := Gain{Window: window, Idle: time.Duration(float64(u.Replicas) * idle), Cold: cold}
	g.Waited = time.Duration(cold * float64(max(0, u.Start-u.Upload)))
	if both := min(u.Start, u.Upload); both >= overlapLeast {
		g.Overlapped = time.Duration(cold * float64(both))
	}
	return g
}

// pause is a time without a request. What is seen is in which steps the requests around it ended, so there are several
// for each, with how likely each is.
type pause struct {
	lasts  time.Duration
	likely float64
	ended  bool // by a request
}

// quantiles are where in a step requests are taken to have ended: often enough that windows of one step are judged within
// a few percent.
var quantiles = []float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// pauses are those before each request, and the one that has not ended.
func (u Use) pauses() (all []pause) {
	before := []float64{0} // in steps: what was before is not known, so the first pause begins with what is
	add := func(after []float64, ended bool) {
		likely := 1 / float64(len(before)*len(after))
		for _, from := range before {
			for _, to := range after {
				all = append(all, pause{time.Duration((to-from)*float64(u.Step)) - u.Duration, likely, ended})
			}
		}
	}
	for i, n := range u.Requests {
		if n <= 0 {
			continue
		}
		var first, last []float64 // of n that are spread evenly over the step before point i
		for _, q := range quantiles {
			first = append(first, float64(i)-math.Pow(1-q, 1/n))
			last = append(last, float64(i)-1+math.Pow(q, 1/n))
		}
		add(first, true)
		before = last
	}
	add([]float64{float64(len(u.Requests) - 1)}, false)
	return all
}
