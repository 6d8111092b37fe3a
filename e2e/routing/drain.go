package routing

import "time"

const (
	// drainWindow has 25 requests and more to each node at the benchmark's rates, a fifth of
	// which is more than those that try a slow node, one or two per second, are by chance.
	drainWindow = 500 * time.Millisecond
	// drainedShare is what may be left of a slow node's requests: ten times as slow as
	// before, it does a tenth of the work, and some must come to see when it is well again.
	drainedShare = 0.2
)

// Drained returns how long after slow the node has had more than a fifth of the requests that
// it had before in the same time. Both count from when the load began, by the time at which
// requests were sent; which node they went to is known of all that were answered by one.
func Drained(samples []Sample, node string, slow time.Duration) time.Duration {
	windows := map[int]int{} // from slow on: 0, 1, ...
	before := 0
	for _, s := range samples {
		switch {
		case s.By != node:
		case s.Sent < slow:
			before++
		default:
			windows[int((s.Sent-slow)/drainWindow)]++
		}
	}
	usual := float64(before) / float64(slow) * float64(drainWindow)
	last := -1
	for w, n := range windows {
		if float64(n) > drainedShare*usual {
			last = max(last, w)
		}
	}
	return time.Duration(last+1) * drainWindow
}
