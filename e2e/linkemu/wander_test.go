package linkemu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// wandering is a link of a region far away as a benchmark has it: 50 ms +- 10 ms both ways.
var wandering = Config{Delay: 25 * ms, Jitter: 7 * ms, Wander: 200 * ms, Seed: 1}

// delays of packets that come one after the other, at most a few ms apart.
func delays(c Config, packets int, apart time.Duration) []time.Duration {
	var offers []offer
	for i := range packets {
		offers = append(offers, offer{time.Duration(i) * apart, 100})
	}
	var all []time.Duration
	for i, f := range play(c, offers) {
		all = append(all, f.due-offers[i].at)
	}
	return all
}

// A busy link has the delay and the jitter that it is given, like an idle one.
func TestWanderKeepsDelayAndJitterOnABusyLink(t *testing.T) {
	for _, apart := range []time.Duration{ms, 50 * ms} {
		all := delays(wandering, int(10*time.Minute/apart), apart)
		var mean, variance float64
		for _, d := range all {
			mean += d.Seconds() / float64(len(all))
		}
		for _, d := range all {
			variance += (d.Seconds() - mean) * (d.Seconds() - mean) / float64(len(all))
		}
		if math.Abs(mean-0.025) > 0.001 || math.Abs(math.Sqrt(variance)-0.007) > 0.001 {
			t.Errorf("packets %v apart: delay %.1f ms, jitter %.1f ms, want 25 and 7", apart, 1000*mean, 1000*math.Sqrt(variance))
		}
		slices.Sort(all)
		// Of a normal distribution, 10 and 90 in 100 are 1.28 standard deviations away.
		for q, want := range map[float64]float64{0.1: 0.025 - 1.28*0.007, 0.9: 0.025 + 1.28*0.007} {
			if got := all[int(q*float64(len(all)))].Seconds(); math.Abs(got-want) > 0.001 {
				t.Errorf("packets %v apart: quantile %g is %.1f ms, want %.1f ms", apart, q, 1000*got, 1000*want)
			}
		}
	}
}

func TestWanderHasNoSteps(t *testing.T) {
	w := newWander(200*ms, rand.New(rand.NewPCG(1, 0)))
	last := w.at(0)
	for at := time.Duration(0); at < time.Minute; at += ms {
		next := w.at(at)
		// Both values three deviations off, and a quarter of a circle in 200 ms.
		if math.Abs(next-last) > 0.04 {
			t.Fatalf("from %v to %v within a millisecond at %v", last, next, at)
		}
		last = next
	}
}

func TestWanderSurvivesSilence(t *testing.T) {
	w := newWander(200*ms, rand.New(rand.NewPCG(1, 0)))
	for _, at := range []time.Duration{0, time.Hour, time.Hour, time.Hour + 200*ms} {
		if got := w.at(at); math.Abs(got) > furthest*math.Sqrt2 {
			t.Errorf("%v at %v", got, at)
		}
	}
}
