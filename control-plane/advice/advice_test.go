package advice

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sampled are how many of the requests end in each step; ends are in order.
func sampled(ends []time.Duration, length, step time.Duration) []float64 {
	counts := make([]float64, length/step+1)
	counts[0] = math.NaN()
	for _, end := range ends {
		counts[int((end+step-1)/step)]++
	}
	return counts
}

func every(pause, length time.Duration) (ends []time.Duration) {
	for at := pause / 2; at < length; at += pause {
		ends = append(ends, at)
	}
	return ends
}

func TestOf(t *testing.T) {
	const day, step = 24 * time.Hour, time.Minute
	for name, c := range map[string]struct {
		ends []time.Duration
		use  Use
		want Gain
	}{
		"each hour one": {every(time.Hour, day), Use{Replicas: 2, Start: 2 * time.Second},
			Gain{Window: time.Minute, Idle: 2*(day-24*(time.Minute+4*time.Second)) - 2*(time.Minute+4*time.Second), Cold: 24, Waited: 48 * time.Second}},
		"large bodies": {every(time.Hour, day), Use{Replicas: 1, Start: 2 * time.Second, Upload: 500 * time.Millisecond},
			Gain{Window: time.Minute, Idle: day - 25*(time.Minute+4*time.Second), Cold: 24, Waited: 36 * time.Second, Overlapped: 12 * time.Second}},
		"a body longer than the start": {every(time.Hour, day), Use{Replicas: 1, Start: 2 * time.Second, Upload: 9 * time.Second},
			Gain{Window: time.Minute, Idle: day - 25*(time.Minute+4*time.Second), Cold: 24, Overlapped: 48 * time.Second}},
		"never idle":                    {every(10*time.Second, day), Use{Replicas: 3, Start: time.Second}, Gain{}},
		"pauses not worth their starts": {every(3*time.Minute, day), Use{Replicas: 1, Start: 5 * time.Second}, Gain{}},
		"no replicas when idle":         {every(time.Hour, day), Use{Start: 2 * time.Second}, Gain{}},
		"another scales it to zero":     {every(time.Hour, day), Use{Start: 2 * time.Second, Upload: time.Second, Anothers: 5 * time.Minute}, Gain{Cold: 24, Waited: 24 * time.Second, Overlapped: 24 * time.Second}},
		"another, and there is no body": {every(time.Hour, day), Use{Start: 2 * time.Second, Anothers: 5 * time.Minute}, Gain{Cold: 24, Waited: 48 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			c.use.Requests, c.use.Step = sampled(c.ends, day, step), step
			got := Of(c.use, 100)
			// The beginning and the end of what was looked at are points, requests are in steps.
			if d := (got.Idle - c.want.Idle).Abs(); d <= time.Duration(c.use.Replicas)*2*step {
				got.Idle = c.want.Idle
			}
			if d := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-6)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOfPausesOfTheNight(t *testing.T) {
	busy := append(every(10*time.Second, 16*time.Hour), 24*time.Hour-time.Second)
	got := Of(Use{Requests: sampled(busy, 24*time.Hour, time.Minute), Step: time.Minute, Replicas: 1, Start: time.Second}, 100)
	if math.Abs(got.Idle.Hours()-8) > 0.05 || math.Abs(got.Cold-1) > 1e-6 || got.Waited.Round(time.Millisecond) != time.Second {
		t.Error(got)
	}
}

// What nobody looked at is no pause, neither in the middle nor before there was anything.
func TestOfWhatIsNotKnown(t *testing.T) {
	const day, step = 24 * time.Hour, time.Minute
	busy := sampled(every(10*time.Second, day), day, step)
	for i := 300; i < 600; i++ {
		busy[i] = math.NaN()
	}
	if got := Of(Use{Requests: busy, Step: step, Replicas: 2, Start: time.Second}, 100); got.Window != 0 {
		t.Errorf("busy as long as it is known: %+v", got)
	}
	hourly := sampled(every(time.Hour, day), day, step)
	for i := range 720 {
		hourly[i] = math.NaN()
	}
	if got := Of(Use{Requests: hourly, Step: step, Replicas: 1, Start: time.Second}, 100); got.Idle < 11*time.Hour || got.Idle > 12*time.Hour || math.Round(got.Cold) != 12 {
		t.Errorf("half a day is known: %+v", got)
	}
}

// Many that come while an instance starts wait, too.
func TestOfManyThatWait(t *testing.T) {
	var ends []time.Duration
	for at := time.Hour; at < 24*time.Hour; at += time.Hour {
		for i := range 60 { // one each second
			ends = append(ends, at+time.Duration(i)*time.Second)
		}
	}
	u := Use{Requests: sampled(ends, 24*time.Hour, time.Minute), Step: time.Minute, Replicas: 1, Start: 10 * time.Second}
	if each := Of(u, 1).Waited.Seconds() / 23; math.Abs(each-60) > 6 { // 10 + 9 + 8 ...
		t.Errorf("with each start clients wait for %v s", each)
	}
}

func TestOfLongRequestsAreNoPauses(t *testing.T) {
	u := Use{Requests: sampled(every(time.Hour, 24*time.Hour), 24*time.Hour, time.Minute), Step: time.Minute, Duration: time.Hour, Replicas: 1, Start: time.Second}
	if got := Of(u, 100); got.Cold > 0 {
		t.Error(got)
	}
}

// What is seen of requests in steps is what would have come of their exact times, within a seventh, and so is the sign.
func TestAdviceIsRight(t *testing.T) {
	const length, step = 7 * 24 * time.Hour, time.Minute
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		pause := time.Duration(math.Exp(math.Log(20)+r.Float64()*math.Log(20_000/20)) * float64(time.Second)) // of 20 s to 5 h
		var ends []time.Duration
		for at := time.Duration(0); ; {
			at += time.Duration(r.ExpFloat64() * float64(pause))
			if at >= length {
				break
			}
			ends = append(ends, at)
		}
		u := Use{Requests: sampled(ends, length, step), Step: step, Replicas: 1 + r.IntN(5), Start: time.Duration(200+r.IntN(10_000)) * time.Millisecond}
		got := Of(u, 100)
		if got.Window == 0 { // then the best window must have next to nothing to offer
			best := 0.0
			for _, w := range windows[1:] {
				g := exact(ends, length, w, u)
				best = max(best, g.Idle.Seconds()-100*g.Waited.Seconds())
			}
			if best > 0.02*length.Seconds()*float64(u.Replicas) {
				t.Errorf("seed %d: nothing is advised with pauses of %v and a start of %v, which would have gained %v s", seed, pause, u.Start, best)
			}
			continue
		}
		want := exact(ends, length, got.Window, u)
		if off(got.Idle, want.Idle) > 0.15 || math.Abs(got.Cold-want.Cold) > 0.15*want.Cold+2 {
			t.Errorf("seed %d: %+v of requests with pauses of %v, and it would have been %+v", seed, got, pause, want)
		}
	}
}

// exact is what comes of requests by their exact times.
func exact(ends []time.Duration, length, window time.Duration, u Use) Gain {
	g := Gain{Window: window}
	from := time.Duration(0)
	for _, at := range append(ends, length) {
		if idle := at - from - window - withdrawing; idle > 0 {
			g.Idle += time.Duration(u.Replicas) * idle
			if at < length {
				g.Cold++
			}
		}
		from = at
	}
	g.Waited = time.Duration(g.Cold * float64(u.Start))
	return g
}

func off(a, b time.Duration) float64 { return math.Abs(float64(a-b)) / math.Max(1, float64(b)) }
