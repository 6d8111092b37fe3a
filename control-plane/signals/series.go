package signals

import (
	"math"
	"time"
)

const (
	// settling is in what time rates and requests in flight follow a change by two thirds:
	// weights made of them must not chase bursts, which the gateways see for themselves.
	settling = 5 * time.Second
	// remembered is how many requests a mean time is of, about: their own spread is halved
	// five times then.
	remembered = 32
	// watching is what Little's law is applied to: it holds for means over a time that is
	// long against a request.
	watching = 30 * time.Second
	// countedLeast is how many requests have to have been seen in flight for that, all looks
	// of that time together: then the time is right to a quarter (Poisson, 1/sqrt(n)).
	countedLeast = 16
	// quietMinutes is how long back requests may have met no others: the least sojourn time
	// of these minutes is taken for the service time.
	quietMinutes = 5
	// mostly is the part of the requests that has to be answered for Little's law to say how long
	// requests stay: it cannot tell those that failed at once from those that were served. An
	// application may fail a few on its own account, and they are its work.
	mostly = 0.5
	// nothing is what is left of requests that ended some ten times settling ago.
	nothing = 1e-4
)

// series is what one source says of one function on one node, smoothed.
type series struct {
	values
	at       time.Time     // of the last report
	busy     time.Time     // of the last one that had requests
	interval time.Duration // to the next report
	// little has the means for Little's law, and looks how many reports they are of.
	little struct{ inFlight, rps, looks float64 }
	// minutes are the last ones, with the sojourn time at the end of each.
	minutes [quietMinutes]minute
}

type minute struct {
	number  int64
	sojourn float64
}

// add takes a report that is of the time since the one before. What a request took that failed
// is no time of a request: a node that fails at once would be the fastest.
func (s *series) add(v values, now time.Time) {
	if v.rps > 0 || v.inFlight > 0 {
		s.busy = now
	}
	answered := v.rps - v.eps
	if v.rps > 0 && answered == 0 {
		v.sojourn, v.service = 0, 0 // whose else could they be?
	}
	served := answered >= mostly*v.rps
	if s.at.IsZero() {
		s.values, s.at = v, now
		if served {
			s.little.inFlight, s.little.rps, s.little.looks = v.inFlight, v.rps, 1
		}
		return
	}
	passed := now.Sub(s.at)
	share := weightOf(passed, settling)
	s.rps += share * (v.rps - s.rps)
	s.eps += share * (v.eps - s.eps)
	s.inFlight += share * (v.inFlight - s.inFlight)
	if served {
		long := weightOf(passed, watching)
		s.little.inFlight += long * (v.inFlight - s.little.inFlight)
		s.little.rps += long * (v.rps - s.little.rps)
		s.little.looks = (1-long)*s.little.looks + 1
	}
	of := func(rps float64) (share float64) { return 1 - math.Exp(-rps*passed.Seconds()/remembered) }
	if v.sojourn > 0 && answered > 0 {
		s.sojourn = blend(s.sojourn, v.sojourn, of(answered))
	}
	if v.service > 0 && answered > 0 {
		s.service = blend(s.service, v.service, of(answered))
	}
	if v.rps > 0 {
		s.wait = blend(s.wait, v.wait, of(v.rps))
	}
	if v.capacity > 0 {
		s.capacity = v.capacity
	}
	s.at = now
	if sojourn := s.stays(); sojourn > 0 {
		number := now.Unix() / 60
		s.minutes[number%quietMinutes] = minute{number, sojourn}
	}
}

// stays is how long a request stays on the node, in seconds, 0 if that is not known: as told,
// or by Little's law.
func (s *series) stays() float64 {
	if s.sojourn > 0 {
		return s.sojourn
	}
	stay, _ := s.stay()
	return stay
}

// quietest is the least that requests stayed in the last minutes.
func (s *series) quietest(now time.Time) (least float64) {
	for _, m := range s.minutes {
		if m.sojourn > 0 && now.Unix()/60-m.number < quietMinutes && (least == 0 || m.sojourn < least) {
			least = m.sojourn
		}
	}
	return least
}

// idle tells whether there have been no requests for a while.
func (s *series) idle() bool { return s.rps < nothing && s.inFlight < nothing }

// blend moves a mean by a share. One that is not known is replaced.
func blend(mean, value, share float64) float64 {
	if mean == 0 {
		return value
	}
	return mean + share*(value-mean)
}

// weightOf is the share of a new value after a time, of a mean that settles within another.
func weightOf(passed, settles time.Duration) float64 {
	return 1 - math.Exp(-float64(max(passed, 0))/float64(settles))
}

// stay is how long a request stays, in seconds, by Little's law: mean number in flight by
// mean rate (Little, "A Proof for the Queuing Formula L = λW", 1961). ok is false while too
// few were seen.
func (s *series) stay() (seconds float64, ok bool) {
	if s.little.rps == 0 || s.little.inFlight*s.little.looks < countedLeast {
		return 0, false
	}
	return min(s.little.inFlight/s.little.rps, secondsMost), true
}
