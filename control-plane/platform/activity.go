package platform

import "time"

// Activity is when each function was last busy, by the word of those who report it. Its user
// guards it.
type Activity struct {
	Last map[string]time.Time       // by function
	Busy map[string]map[string]bool // by reporter, then function
	// floor is a time before which nothing counts as idle.
	floor time.Time
}

// NewActivity returns one that knows of no function.
func NewActivity() Activity {
	return Activity{Last: map[string]time.Time{}, Busy: map[string]map[string]bool{}}
}

// Touch says that the function is busy now.
func (a *Activity) Touch(function string) { a.Last[function] = time.Now() }

// Pause has all idle windows begin again, in the given time from now.
func (a *Activity) Pause(in time.Duration) {
	if floor := time.Now().Add(in); floor.After(a.floor) {
		a.floor = floor
	}
}

// Report replaces what a reporter said before. A function that it no longer calls busy was so
// until now. Functions that are not known do not count before they are.
func (a *Activity) Report(reporter string, busy map[string]bool, known func(function string) bool) {
	for f := range a.Busy[reporter] {
		if known(f) {
			a.Touch(f)
		}
	}
	delete(a.Busy, reporter)
	if len(busy) > 0 {
		a.Busy[reporter] = busy
	}
}

// BusyOf are the functions with requests.
func BusyOf(requests map[string]int32) map[string]bool {
	busy := map[string]bool{}
	for f, n := range requests {
		if n > 0 {
			busy[f] = true
		}
	}
	return busy
}

// Idle is how long the function has had no request; negative while windows are paused.
func (a *Activity) Idle(function string) time.Duration {
	for _, busy := range a.Busy {
		if busy[function] {
			return 0
		}
	}
	last := a.Last[function]
	if a.floor.After(last) {
		last = a.floor
	}
	return time.Since(last)
}

// Forget drops a function that is gone, with what reporters said of it.
func (a *Activity) Forget(function string) {
	delete(a.Last, function)
	for reporter, busy := range a.Busy {
		if delete(busy, function); len(busy) == 0 {
			delete(a.Busy, reporter)
		}
	}
}
