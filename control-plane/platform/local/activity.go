package local

import "time"

// activity is when each function was last busy, by the word of gateways and nodes.
type activity struct {
	last map[string]time.Time
	busy map[string]map[string]uint64 // by reporter, then function
}

func newActivity() activity {
	return activity{last: map[string]time.Time{}, busy: map[string]map[string]uint64{}}
}

func (a activity) touch(function string) { a.last[function] = time.Now() }

// report replaces what one reporter said before. A function that it no longer calls
// busy was so until now.
func (a activity) report(reporter string, busy map[string]uint64) {
	for f := range a.busy[reporter] {
		a.touch(f)
	}
	delete(a.busy, reporter)
	for f, n := range busy {
		if n == 0 {
			continue
		}
		if a.busy[reporter] == nil {
			a.busy[reporter] = map[string]uint64{}
		}
		a.busy[reporter][f] = n
		a.touch(f)
	}
}

// idle is how long the function has had no request.
func (a activity) idle(function string) time.Duration {
	for _, busy := range a.busy {
		if busy[function] > 0 {
			return 0
		}
	}
	return time.Since(a.last[function])
}

// forget drops a function that is gone.
func (a activity) forget(function string) {
	delete(a.last, function)
	for reporter, busy := range a.busy {
		if delete(busy, function); len(busy) == 0 {
			delete(a.busy, reporter)
		}
	}
}
