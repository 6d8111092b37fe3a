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
	// trusted is how many times as long as an idle window a use must be known to judge that.
	trusted = 4
)

// windows are the idle windows to choose from.
var windows = []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour}

// Use is how a service was used while it was looked at.
type Use struct {
	// Requests are how many ended in the step before each point; NaN where that is not known, as at the first.
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
	// Cold is how many starts there would have been that requests waited for, or were, if another autoscaler scales to zero.
	Cold float64
	// Waited is for how long requests waited in all, beyond the time that their bodies took.
	Waited time.Duration
	// Overlapped is for how long their bodies would have been on their way meanwhile, in all.
	Overlapped time.Duration
}

// Of is the best of the gains. worth is how many seconds of a replica one second is worth that a client waits.
func Of(u Use, worth float64) Gain {
	pauses := u.pauses()
	if u.Anothers > 0 {
		g := u.gain(pauses, u.Anothers)
		g.Window, g.Idle = 0, 0
		return g
	}
	var best Gain
	most := 0.0
	least := idleLeast * float64(u.known()) * float64(u.Replicas)
	for _, window := range windows {
		if window < u.Step || u.known() < trusted*window {
			continue // what is shorter cannot be seen
		}
		g := u.gain(pauses, window)
		if net := g.Idle.Seconds() - worth*g.Waited.Seconds(); net > most && float64(g.Idle) >= least {
			best, most = g, net
		}
	}
	return best
}

// known is for how long it is known how the service was used.
func (u Use) known() (d time.Duration) {
	for _, n := range u.Requests {
		if !math.IsNaN(n) {
			d += u.Step
		}
	}
	return d
}

// gain is that of one idle window, as it is to be expected.
func (u Use) gain(pauses []pause, window time.Duration) Gain {
	var cold, idle, clients float64
	for _, p := range pauses {
		if over := p.lasts - window - withdrawing; over > 0 {
			idle += p.likely * float64(over)
			if p.ended {
				cold += p.likely
				// Those that come during the start wait for half of it.
				clients += p.likely * (1 + p.rate*u.Start.Seconds()/2)
			}
		}
	}
	g := Gain{Window: window, Idle: time.Duration(float64(u.Replicas) * idle), Cold: cold}
	g.Waited = time.Duration(clients * float64(max(0, u.Start-u.Upload)))
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
	ended  bool    // by a request
	rate   float64 // of the requests that follow that one, per second
}

// quantiles are where in a step requests are taken to have ended: often enough that windows of one step are judged within
// a few percent.
var quantiles = []float64{1. / 8, 3. / 8, 5. / 8, 7. / 8}

// pauses are those before each request, and those that end with what is known.
func (u Use) pauses() (all []pause) {
	var before []float64 // when it began, in steps; none: not known
	add := func(after []float64, ended bool, rate float64) {
		likely := 1 / float64(len(before)*len(after))
		for _, from := range before {
			for _, to := range after {
				lasts := time.Duration((to-from)*float64(u.Step)) - u.Duration
				all = append(all, pause{lasts, likely, ended, rate})
			}
		}
	}
	for i, n := range u.Requests {
		switch {
		case math.IsNaN(n):
			add([]float64{float64(i) - 1}, false, 0)
			before = nil
			continue
		case before == nil:
			before = []float64{float64(i) - 1}
		}
		if n <= 0 {
			continue
		}
		var first, last []float64 // of n that are spread evenly over the step before point i
		for _, q := range quantiles {
			first = append(first, float64(i)-math.Pow(1-q, 1/n))
			last = append(last, float64(i)-1+math.Pow(q, 1/n))
		}
		follow := n - 1
		if i+1 < len(u.Requests) && u.Requests[i+1] > follow {
			follow = u.Requests[i+1]
		}
		add(first, true, follow/u.Step.Seconds())
		before = last
	}
	add([]float64{float64(len(u.Requests) - 1)}, false, 0)
	return all
}
