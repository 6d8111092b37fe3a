package linkemu

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const ms = time.Millisecond

// offer is a packet that reaches the queue.
type offer struct {
	at    time.Duration
	bytes int
}

// fate is what became of it; due is 0 for a dropped packet.
type fate struct {
	due     time.Duration
	dropped bool
}

// play offers packets to a shaper and takes them off when they are due, as a direction does.
func play(c Config, offers []offer) []fate {
	s := newShaper(c, rand.NewPCG(c.Seed, 0))
	var fates []fate
	var onTheWay queue
	for _, o := range offers {
		for p, ok := onTheWay.first(); ok && p.due <= o.at; p, ok = onTheWay.first() {
			s.arrived(p.bytes)
			onTheWay.drop()
		}
		due, ok := s.admit(o.at, o.bytes)
		fates = append(fates, fate{due: due, dropped: !ok})
		if ok {
			onTheWay.push(packet{due: due, bytes: o.bytes})
		}
	}
	return fates
}

func TestShaperTimes(t *testing.T) {
	// At 8 Mbit/s a thousand bytes take a millisecond.
	for _, c := range []struct {
		name   string
		config Config
		offers []offer
		want   []fate
	}{
		{"delay only", Config{Delay: 20 * ms},
			[]offer{{0, 1500}, {0, 1500}, {5 * ms, 64}},
			[]fate{{due: 20 * ms}, {due: 20 * ms}, {due: 25 * ms}}},
		{"packets share the line", Config{Delay: 20 * ms, Rate: 8e6},
			[]offer{{0, 1000}, {0, 3000}, {1 * ms, 1000}},
			[]fate{{due: 21 * ms}, {due: 24 * ms}, {due: 25 * ms}}},
		{"an idle line saves nothing up", Config{Rate: 8e6},
			[]offer{{0, 1000}, {100 * ms, 1000}, {100 * ms, 1000}},
			[]fate{{due: 1 * ms}, {due: 101 * ms}, {due: 102 * ms}}},
		{"the newest is dropped when the queue is full", Config{Rate: 8e6, QueueLimit: 3000},
			[]offer{{0, 2000}, {0, 1000}, {0, 1000}, {1 * ms, 1000}},
			[]fate{{due: 2 * ms}, {due: 3 * ms}, {dropped: true}, {due: 4 * ms}}},
		{"an idle line takes more than the queue holds", Config{Rate: 8e6, QueueLimit: 100},
			[]offer{{0, 1000}, {0, 64}, {1 * ms, 1000}},
			[]fate{{due: 1 * ms}, {dropped: true}, {due: 2 * ms}}},
		{"what travels does not wait", Config{Delay: 50 * ms, Rate: 8e6, QueueLimit: 1000},
			[]offer{{0, 1000}, {1 * ms, 1000}, {2 * ms, 1000}},
			[]fate{{due: 51 * ms}, {due: 52 * ms}, {due: 53 * ms}}},
		{"without a rate the limit holds on the way", Config{Delay: 10 * ms, QueueLimit: 2000},
			[]offer{{0, 1000}, {1 * ms, 1000}, {2 * ms, 1000}, {10 * ms, 1000}},
			[]fate{{due: 10 * ms}, {due: 11 * ms}, {dropped: true}, {due: 20 * ms}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, play(c.config, c.offers), cmp.AllowUnexported(fate{})); diff != "" {
				t.Errorf("fates (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDefaultQueueLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		want   int
	}{
		{"one product of the round trip", Config{Delay: 20 * ms, Rate: 250e6}, 1_250_000},
		{"a few super-packets at least", Config{Rate: 250e6}, minQueue},
		{"no rate", Config{Delay: 20 * ms}, maxInFlight},
		{"asked for", Config{Delay: 20 * ms, Rate: 250e6, QueueLimit: 9000}, 9000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.config.queueLimit(); got != c.want {
				t.Errorf("queue limit %d, want %d", got, c.want)
			}
		})
	}
}

func drawTraffic(t *rapid.T) (Config, []offer) {
	delay := time.Duration(rapid.Int64Range(0, int64(100*ms)).Draw(t, "delay"))
	c := Config{
		Delay:      delay,
		Jitter:     time.Duration(rapid.Int64Range(0, int64(delay)).Draw(t, "jitter")),
		Rate:       rapid.SampledFrom([]int64{0, 1e6, 250e6, 10e9}).Draw(t, "rate"),
		Seed:       rapid.Uint64().Draw(t, "seed"),
		QueueLimit: rapid.IntRange(1, 1<<20).Draw(t, "queue"),
	}
	var offers []offer
	at := time.Duration(0)
	for range rapid.IntRange(1, 200).Draw(t, "packets") {
		at += time.Duration(rapid.Int64Range(0, int64(5*ms)).Draw(t, "gap"))
		offers = append(offers, offer{at, rapid.IntRange(20, 70_000).Draw(t, "bytes")})
	}
	return c, offers
}

func TestShaperKeepsOrderAndDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawTraffic(t)
		latest := time.Duration(0)
		for i, f := range play(c, offers) {
			if f.dropped {
				continue
			}
			if f.due < latest {
				t.Fatalf("packet %d overtakes: due at %v after one at %v", i, f.due, latest)
			}
			if least := offers[i].at + c.Delay - c.Jitter; f.due < least {
				t.Fatalf("packet %d is due at %v, before %v", i, f.due, least)
			}
			latest = f.due
		}
	})
}

func TestShaperKeepsRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawTraffic(t)
		c.Rate, c.Jitter = max(c.Rate, 1e6), 0
		var first time.Duration
		after, packets := 0, -1
		for i, f := range play(c, offers) {
			if f.dropped {
				continue
			}
			if packets++; packets == 0 {
				first = f.due
				continue
			}
			after += offers[i].bytes
			// Each packet's time on the line is rounded down to a nanosecond.
			least := time.Duration(float64(after)*8/float64(c.Rate)*1e9) - time.Duration(packets)
			if took := f.due - first; took < least {
				t.Fatalf("%d bytes arrived in %v, at least %v at %d bit/s", after, took, least, c.Rate)
			}
		}
	})
}

func TestShaperBoundsQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawTraffic(t)
		c.Rate, c.Jitter = max(c.Rate, 1e6), 0
		for i, f := range play(c, offers) {
			// A packet's stay is the delay and the queue before it, itself included, or
			// itself alone; the queue is counted in whole bytes.
			most := float64(max(c.QueueLimit, offers[i].bytes) + 1)
			longest := time.Duration(most*8/float64(c.Rate)*1e9) + c.Delay
			if stay := f.due - offers[i].at; !f.dropped && stay > longest {
				t.Fatalf("packet %d stays %v with a queue of %d bytes, at most %v", i, stay, c.QueueLimit, longest)
			}
		}
	})
}

func TestShaperRepeats(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawTraffic(t)
		if diff := cmp.Diff(play(c, offers), play(c, offers), cmp.AllowUnexported(fate{})); diff != "" {
			t.Fatalf("the same seed and packets, other fates:\n%s", diff)
		}
	})
}
