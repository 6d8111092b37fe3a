package linkemu

import (
	"math/rand/v2"
	"time"
)

// shaper decides, for one direction, when each packet arrives at the other end. It is
// pure: times come from the caller and count from any fixed moment.
//
// Its model is a queue in front of a line: a packet waits until those before it have left,
// occupies the line for its size divided by the rate, and then travels for the delay.
type shaper struct {
	rate   float64 // bit/s; 0: the line is never occupied
	delay  time.Duration
	jitter time.Duration
	limit  int // bytes
	random *rand.Rand
	wander *wander // nil: each packet has a delay of its own

	lineFree time.Duration // when the line will have sent all that was admitted
	latest   time.Duration // the latest arrival promised so far
	held     int           // bytes admitted and not yet arrived
}

func newShaper(c Config, jitter rand.Source) shaper {
	s := shaper{
		rate:   float64(c.Rate),
		delay:  c.Delay,
		jitter: c.Jitter,
		limit:  c.queueLimit(),
		random: rand.New(jitter),
	}
	if c.Wander > 0 && c.Jitter > 0 {
		s.wander = newWander(c.Wander, s.random)
	}
	return s
}

// admit takes a packet of so many bytes at time now, and says when it is due at the
// other end; false: the queue is full, it is dropped. Due times never decrease.
func (s *shaper) admit(now time.Duration, bytes int) (due time.Duration, ok bool) {
	// A packet that finds nothing waiting is always taken, or a limit below its size
	// would block the link for good.
	if waiting := s.waiting(now); waiting > 0 && waiting+bytes > s.limit {
		return 0, false
	}
	s.held += bytes
	s.lineFree = max(s.lineFree, now)
	if s.rate > 0 {
		s.lineFree += time.Duration(float64(bytes) * 8 / s.rate * float64(time.Second))
	}
	s.latest = max(s.latest, s.lineFree+s.travel())
	return s.latest, true
}

// travel is how long a packet is under way that leaves the line now.
func (s *shaper) travel() time.Duration {
	switch {
	case s.jitter == 0:
		return s.delay
	case s.wander != nil:
		return max(0, s.delay+time.Duration(float64(s.jitter)*s.wander.at(s.lineFree)))
	}
	return s.delay + time.Duration(s.random.Int64N(2*int64(s.jitter)+1)) - s.jitter
}

// arrived takes an admitted packet's bytes off those on their way.
func (s *shaper) arrived(bytes int) { s.held -= bytes }

// waiting is how many bytes the limit counts: those not yet through the line, or, where
// there is no line to wait for, all on their way.
func (s *shaper) waiting(now time.Duration) int {
	if s.rate == 0 {
		return s.held
	}
	return int(max(s.lineFree-now, 0).Seconds() * s.rate / 8)
}
