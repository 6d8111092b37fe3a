package signals

import (
	"math"
	"time"
)

// trust is how much a series counts after a silence.
func (s *series) trust(now time.Time) float64 {
	silent := now.Sub(s.at) - patience*s.interval
	if silent <= 0 {
		return 1
	}
	trust := math.Exp2(-float64(silent) / float64(halfLife))
	if trust < trustLeast {
		return 0
	}
	return trust
}

// total is all that sources say of one node, as far as they are trusted: of those that are
// silent, a part of the requests.
type total struct {
	values
	trust float64
	age   time.Duration
}

// sum adds up what sources say. Their requests are different ones: what passes a daemon is no
// gateway's request to an instance. What gateways see of a node's times counts more than what
// the node says of itself, if they see enough.
func sum(of map[source]*series, now time.Time) (t total) {
	var ended, seen, stays float64
	for who, s := range of {
		trust := s.trust(now)
		if trust == 0 {
			continue
		}
		if age := max(now.Sub(s.at), 0); t.trust == 0 || age < t.age {
			t.age = age
		}
		t.trust = max(t.trust, trust)
		t.rps += trust * s.rps
		t.eps += trust * s.eps
		t.inFlight += trust * s.inFlight
		t.capacity = max(t.capacity, s.capacity)
		if stay, ok := s.stay(); ok && who.gateway {
			seen += trust * s.little.rps
			stays += trust * s.little.rps * stay
		}
		if s.service > 0 {
			// One whose requests are over has some weight left.
			weight := trust * max(s.rps, trustLeast)
			ended += weight
			t.service += weight * s.service
			t.wait += weight * s.wait
		}
	}
	if ended > 0 {
		t.service, t.wait = t.service/ended, t.wait/ended
	}
	if seen > 0 {
		t.service = stays / seen
	}
	return t
}

// filledUp has the mean of other nodes stand in for the part that is not trusted.
func (t total) filledUp(others values) total {
	rest := 1 - t.trust
	t.rps += rest * others.rps
	t.eps += rest * others.eps
	t.inFlight += rest * others.inFlight
	t.service = between(t.service, others.service, rest)
	t.wait = between(t.wait, others.wait, rest)
	t.capacity = between(t.capacity, others.capacity, rest)
	return t
}

// between goes from a value to another by a share. One that is not known stands back.
func between(from, to, share float64) float64 {
	switch {
	case from == 0:
		return to
	case to == 0:
		return from
	}
	return from + share*(to-from)
}

func (t total) estimate() Estimate {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Estimate{RPS: t.rps, EPS: t.eps, InFlight: t.inFlight, ServiceTime: seconds(t.service), QueueWait: seconds(t.wait), Capacity: t.capacity, Age: t.age, Trust: t.trust}
}

// mean is of several nodes, by trust. What one of them does not know is the mean of those
// that do.
type mean struct {
	sum                                  values
	trust, ofService, ofWait, ofCapacity float64
}

func (m *mean) add(t total) {
	m.trust += t.trust
	m.sum.rps += t.rps // of which an untrusted part is left out already
	m.sum.eps += t.eps
	m.sum.inFlight += t.inFlight
	known := func(sum, of *float64, value float64) {
		if value > 0 {
			*sum += t.trust * value
			*of += t.trust
		}
	}
	known(&m.sum.service, &m.ofService, t.service)
	known(&m.sum.wait, &m.ofWait, t.wait)
	known(&m.sum.capacity, &m.ofCapacity, t.capacity)
}

func (m *mean) values() (v values) {
	by := func(sum, of float64) float64 {
		if of == 0 {
			return 0
		}
		return sum / of
	}
	return values{rps: by(m.sum.rps, m.trust), eps: by(m.sum.eps, m.trust), inFlight: by(m.sum.inFlight, m.trust),
		service: by(m.sum.service, m.ofService), wait: by(m.sum.wait, m.ofWait), capacity: by(m.sum.capacity, m.ofCapacity)}
}
