package kube

import "time"

// activity is when each function was last busy, by the word of the nodes.
type activity struct {
	last map[string]time.Time
	busy map[string]map[string]bool // by node, then function
	// floor is a time before which nothing counts as idle.
	floor time.Time
}

func newActivity() activity {
	return activity{last: map[string]time.Time{}, busy: map[string]map[string]bool{}}
}

func (a *activity) touch(function string) { a.last[function] = time.Now() }

// pause has all idle windows begin anew, in the given time from now.
func (a *activity) pause(in time.Duration) {
	if floor := time.Now().Add(in); floor.After(a.floor) {
		a.floor = floor
	}
}

// report replaces what a node said before. A function that it no longer calls busy was so
// until now. What it says of functions that are not known counts as soon as they are: a
// node may know them first, and does not repeat itself.
func (a *activity) report(node string, inFlight map[string]int32, known func(function string) bool) {
	for f := range a.busy[node] {
		if known(f) {
			a.touch(f)
		}
	}
	delete(a.busy, node)
	busy := map[string]bool{}
	for f, n := range inFlight {
		if n > 0 {
			busy[f] = true
		}
	}
	if len(busy) > 0 {
		a.busy[node] = busy
	}
}

// idle is how long the function has had no request; negative while windows are paused.
func (a *activity) idle(function string) time.Duration {
	for _, busy := range a.busy {
		if busy[function] {
			return 0
		}
	}
	last := a.last[function]
	if a.floor.After(last) {
		last = a.floor
	}
	return time.Since(last)
}

// forget drops a function that is gone.
func (a *activity) forget(function string) { delete(a.last, function) }
