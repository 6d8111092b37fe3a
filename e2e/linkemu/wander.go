package linkemu

import (
	"math"
	"math/rand/v2"
	"time"
)

// wander is a random function of time without steps, at each moment normally distributed
// around 0 with a standard deviation of 1.
type wander struct {
	period   time.Duration
	random   *rand.Rand
	end      time.Duration // when the period ends that from and to are of
	from, to float64
}

// furthest cuts off what a normal distribution has of one in 400 values: a path has no
// delay below that of light.
const furthest = 3.0

func newWander(period time.Duration, random *rand.Rand) *wander {
	w := &wander{period: period, random: random, end: period}
	w.from, w.to = w.draw(), w.draw()
	return w
}

func (w *wander) draw() float64 {
	for {
		if x := w.random.NormFloat64(); math.Abs(x) <= furthest {
			return x
		}
	}
}

// at returns the value at a time that is no earlier than the last.
func (w *wander) at(now time.Duration) float64 {
	for ; now >= w.end; w.end += w.period {
		w.from, w.to = w.to, w.draw()
	}
	// A circle's way from one to the other: the squares of the weights sum to 1, and so the
	// variance is the same at each moment. On a straight line it would halve in the middle.
	turn := math.Pi / 2 * (1 - float64(w.end-now)/float64(w.period))
	return math.Cos(turn)*w.from + math.Sin(turn)*w.to
}
