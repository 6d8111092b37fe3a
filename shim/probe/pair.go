package probe

import (
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
)

const (
	// windowSamples is how many samples the least is taken of: what queues add is never
	// negative, so of a few the least is the path itself. Four is what Ledlie et al. found
	// best ("Network Coordinates in the Wild", NSDI 2007, section 4.1: the 25th percentile
	// of four).
	windowSamples = 4
	// windowAge is how old a sample may be that counts. Of a peer that is asked seldom it
	// lets go of a queue's last word within two answers.
	windowAge = 2 * time.Minute
	// smoothing is a new value's share of the smoothed one and of its deviation, as in TCP
	// (RFC 6298, which has 1/8 and 1/4 for ten times as many samples).
	smoothing = 0.25

	// changedBy and changedLeast are when a value is another one: further off the smoothed
	// one than both. Below a quarter or half a millisecond it is noise of the machines.
	changedBy    = 0.25
	changedLeast = 500 * time.Microsecond
	// surprise is how many deviations a single sample has to be off to be news; RFC 6298 has
	// four for what must not happen, a probe too many may.
	surprise = 3

	// intervalFirst is between two probes of a peer that is new or has changed; each
	// sample that is no news doubles it, up to intervalLongest.
	intervalFirst   = time.Second
	intervalLongest = 64 * time.Second
	// retryFirst is the pause after a peer that did not answer, doubled likewise.
	retryFirst = 2 * time.Second
)

// pair is what is known of the way to one peer.
type pair struct {
	address string
	wanted  bool // one of those to be probed; else only what traffic shows counts
	busy    bool // a probe is under way

	window   [windowSamples]sample // a ring
	next     int
	smoothed time.Duration // 0: not measured yet
	// deviation is how far samples are from it.
	deviation time.Duration
	last      time.Time // of the last sample
	point     coordinate.Point

	due      time.Time
	interval time.Duration
	failures int
}

type sample struct {
	rtt time.Duration
	at  time.Time
}

// add takes a sample. The next probe is due when it would be after a probe: what traffic
// shows needs none.
func (p *pair) add(rtt time.Duration, now time.Time) {
	p.window[p.next] = sample{rtt, now}
	p.next = (p.next + 1) % windowSamples
	p.last, p.failures = now, 0
	least := p.least(now)
	off := distance(rtt, p.smoothed)
	news := p.smoothed == 0 || p.differs(rtt) && off > surprise*p.deviation
	if p.smoothed == 0 || p.differs(least) {
		// Another path, not noise: all of the window is off. Smoothing would only be late.
		p.smoothed, news = least, true
	} else {
		p.smoothed += time.Duration(smoothing * float64(least-p.smoothed))
		p.deviation += time.Duration(smoothing * float64(off-p.deviation))
	}
	if news {
		p.interval = intervalFirst
	} else {
		p.interval = min(2*p.interval, intervalLongest)
	}
	p.due = now.Add(p.interval)
}

// least is the least of the window, whose newest sample is there.
func (p *pair) least(now time.Time) time.Duration {
	least := coordinate.LongestRTT
	for _, s := range p.window {
		if s.rtt > 0 && now.Sub(s.at) <= windowAge {
			least = min(least, s.rtt)
		}
	}
	return least
}

// fresh tells whether the way has been measured lately.
func (p *pair) fresh(now time.Time) bool { return p.smoothed != 0 && now.Sub(p.last) <= KeptFor }

// differs tells whether a value is another one than the smoothed one.
func (p *pair) differs(rtt time.Duration) bool {
	off := distance(rtt, p.smoothed)
	return off > changedLeast && float64(off) > changedBy*float64(p.smoothed)
}

func distance(a, b time.Duration) time.Duration { return max(a-b, b-a) }

// fail takes a probe without an answer.
func (p *pair) fail(now time.Time) {
	p.interval = intervalFirst // when it answers again it may be elsewhere
	p.due = now.Add(min(retryFirst<<min(p.failures, 10), intervalLongest))
	p.failures++
}
