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
	seen  float64 // requests per second, of rps
	trust float64
	age   time.Duration
}

// sum adds up what sources say. Their requests are different ones: what passes a daemon is no
// gateway's request to an instance. What gateways see of a node's times counts more than what
// the node says of itself, if they see enough.
func sum(of map[source]*series, now time.Time) (t total) {
	var said, seen times
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
		// One whose requests are over has some weight left.
		weight := trust * max(s.rps, trustLeast)
		if who.kind != byDaemon {
			seen.add(s, weight, now)
			t.seen += trust * s.rps
		} else {
			said.add(s, weight, now)
		}
	}
	t.sojourn, t.service = said.sojourn.value(), said.service.value()
	if seen.sojourn.weight > 0 {
		t.sojourn = seen.sojourn.value()
	}
	if told := said.told.value(); told > 0 {
		t.service = told
	} else if seen.service.weight > 0 {
		t.service = seen.service.value()
	}
	if t.sojourn > 0 {
		t.service = min(t.service, t.sojourn)
	}
	t.wait = said.wait.value()
	return t
}

// times are what several sources say of times, by weight.
type times struct{ sojourn, service, told, wait average }

func (t *times) add(s *series, weight float64, now time.Time) {
	t.sojourn.add(s.stays(), weight)
	t.service.add(s.quietest(now), weight)
	t.told.add(s.service, weight)
	t.wait.add(s.wait, weight)
}

// average is of values that are known.
type average struct{ sum, weight float64 }

func (a *average) add(value, weight float64) {
	if value > 0 {
		a.sum += weight * value
		a.weight += weight
	}
}

func (a *average) value() float64 {
	if a.weight == 0 {
		return 0
	}
	return a.sum / a.weight
}

// filledUp has the mean of other nodes stand in for the part that is not trusted.
func (t total) filledUp(others values) total {
	rest := 1 - t.trust
	t.rps += rest * others.rps
	t.eps += rest * others.eps
	t.inFlight += rest * others.inFlight
	t.sojourn = between(t.sojourn, others.sojourn, rest)
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
	return Estimate{RPS: t.rps, EPS: t.eps, Seen: t.seen, InFlight: t.inFlight, SojournTime: seconds(t.sojourn), ServiceTime: seconds(t.service), QueueWait: seconds(t.wait), Capacity: t.capacity, Age: t.age, Trust: t.trust}
}

// mean is of several nodes, by trust. What one of them does not know is the mean of those
// that do.
type mean struct {
	requests                         values
	trust                            float64
	sojourn, service, wait, capacity average
}

func (m *mean) add(t total) {
	m.trust += t.trust
	m.requests.rps += t.rps // of which an untrusted part is left out already
	m.requests.eps += t.eps
	m.requests.inFlight += t.inFlight
	m.sojourn.add(t.sojourn, t.trust)
	m.service.add(t.service, t.trust)
	m.wait.add(t.wait, t.trust)
	m.capacity.add(t.capacity, t.trust)
}

func (m *mean) values() values {
	v := values{sojourn: m.sojourn.value(), service: m.service.value(), wait: m.wait.value(), capacity: m.capacity.value()}
	if m.trust > 0 {
		v.rps, v.eps, v.inFlight = m.requests.rps/m.trust, m.requests.eps/m.trust, m.requests.inFlight/m.trust
	}
	return v
}
