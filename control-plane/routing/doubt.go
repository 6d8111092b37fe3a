package routing

import "time"

// doubt is how much the word of a node counts on which requests have waited although it said
// that it had room. Were it believed again as soon as nobody waits there, it would get as many
// requests as before, and have them wait. So until it has been seen to do what it says it is
// taken to do what it has been seen to do.
type doubt struct {
	left time.Duration // 0: it is believed
	lied bool          // when it was looked at last, requests waited
	// manages is how many requests per second gateways have seen it serve.
	manages float64
}

// confirm says that requests wait there, for so many seconds, and that so many are seen to be
// served per second.
func (d *doubt) confirm(sojourn, seen float64) {
	if !d.lied {
		d.manages = 1 / sojourn // one after the other
	}
	d.left, d.lied, d.manages = forgotten, true, max(d.manages, seen)
}

// watch says that there is no reason for doubt: so many requests per second are seen to be served,
// of as many as it says that it can do.
func (d *doubt) watch(waits bool, seen, says float64, passed time.Duration) {
	d.left, d.lied = max(0, d.left-passed), false
	if !waits && seen > full*d.manages {
		d.manages *= 2
	}
	if d.manages >= says {
		d.left = 0
	}
}
