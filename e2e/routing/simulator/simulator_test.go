package simulator_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/routing/simulator"
)

// requests per case: enough for a 99th percentile that the bounds have room for.
const requests = 12_000

// The simulator agrees with queueing theory: a node with four workers, exponential times and
// random arrivals has Erlang's waits.
func TestWaitsAreErlangs(t *testing.T) {
	const c, mean, rho = 4, 10 * time.Millisecond, 0.7
	service, _ := simulator.Exponential(mean)
	rate := rho * c / mean.Seconds()
	none := func(int, int) time.Duration { return 0 }
	w := &simulator.World{Nodes: []simulator.Node{{Workers: c, Speed: 1}}, Functions: []simulator.Function{{Nodes: []int{0}, Service: service, Mean: mean}},
		Sources: []simulator.Source{{Rate: simulator.Constant(rate), Peak: rate}}, RTT: none, Jitter: none, Warmup: time.Second, Length: 1000 * time.Second, Seed: 1}
	busy, sum := 1.0, 0.0 // a^k/k!
	for k := range c {
		sum += busy
		busy *= rho * c / float64(k+1)
	}
	waits := busy / (1 - rho) / (sum + busy/(1-rho))
	want := mean.Seconds() + waits*mean.Seconds()/c/(1-rho)
	if got := simulator.Run(w, simulator.RoundRobin()).Mean().Seconds(); math.Abs(got-want) > 0.03*want {
		t.Errorf("a request takes %v s, by Erlang's formula %v", got, want)
	}
}

func TestTheSameSeedGivesTheSameFigures(t *testing.T) {
	for _, p := range simulator.Policies() {
		world := func() *simulator.World {
			return simulator.Shape{Topology: simulator.Random, Nodes: 3, Load: 0.6, Mixed: true, Uneven: 0.5, Functions: 2, Mean: 100 * time.Millisecond, Down: true, Requests: 2000, Seed: 3}.World()
		}
		a, b := simulator.Run(world(), p), simulator.Run(world(), p)
		if a.Requests == 0 || a.Requests != b.Requests || a.Mean() != b.Mean() || a.Failed != b.Failed {
			t.Errorf("%s: %v, %d lost, then %v, %d lost", p.Name, a.Mean(), a.Failed, b.Mean(), b.Failed)
		}
	}
}

// What the cases claim, on networks of 3, 6 and 12 nodes: steady load is routed as by an oracle
// that knows every queue, bursts nearly so, and the paper's testbed in at most half of the
// time that FaaSt takes.
func TestBoundsHold(t *testing.T) {
	for _, c := range simulator.Cases(requests, []int{3, 6, 12}, 1) {
		t.Run(fmt.Sprint(c.Kind, "/", c.World.Name), func(t *testing.T) {
			if c.Kind == simulator.Beyond || c.Kind == simulator.Faulty {
				return // no bound is claimed; what is, of faults, has tests of its own
			}
			ours := simulator.Run(c.World, simulator.Headstart())
			than, bound := simulator.Foreseeing(), simulator.SteadyBound
			switch c.Kind {
			case simulator.Burst:
				bound = simulator.BurstBound
			case simulator.Near:
				than, bound = simulator.FaaSt(), simulator.FaaStBound
			case simulator.Overload:
				than, bound = simulator.Oracle(), simulator.OverloadBound
			}
			other := simulator.Run(c.World, than)
			// To two digits: quantiles of so many requests are no more exact.
			if ratio := math.Round(100*float64(ours.Quantile(0.99))/float64(other.Quantile(0.99))) / 100; ratio > bound {
				t.Errorf("p99 is %v, of %s %v: %.2f times as long, at most %v is claimed", ours.Quantile(0.99), than.Name, other.Quantile(0.99), ratio, bound)
			}
			if ours.Failed > 0 {
				t.Errorf("%d requests failed", ours.Failed)
			}
		})
	}
}

// When the edge has no room for its users, the median is no worse for it than by any other
// way, and all are answered.
func TestOverloadDoesNotCostTheMedian(t *testing.T) {
	for _, link := range simulator.Links {
		w := simulator.Testbed(50, link[0], link[1], 3*requests, 1)
		ours := simulator.Run(w, simulator.Headstart())
		for _, p := range []simulator.Policy{simulator.RoundRobin(), simulator.Locality(), simulator.FaaSt()} {
			other := simulator.Run(w, p)
			if float64(ours.Quantile(0.5)) > 1.05*float64(other.Quantile(0.5)) {
				t.Errorf("%s: p50 is %v, of %s %v", w.Name, ours.Quantile(0.5), p.Name, other.Quantile(0.5))
			}
		}
	}
}

// Ten minutes of steady load change no weights, once they are measured; nor does load near
// what nodes can do. Outside of the testbed times are longer, and requests as many times
// fewer, which makes noisier measurements.
func TestSteadyLoadRebuildsNothing(t *testing.T) {
	const settled = 3 * time.Minute
	for _, w := range []*simulator.World{
		simulator.Testbed(10, 50*time.Millisecond, 10*time.Millisecond, 1, 1),
		simulator.Shape{Topology: simulator.Star, Nodes: 4, Load: 0.5, Mean: 100 * time.Millisecond, Seed: 1}.World(),
		simulator.Shape{Topology: simulator.Regions, Nodes: 6, Load: 0.7, Mixed: true, Uneven: 0.5, Mean: 400 * time.Millisecond, Seed: 1}.World(),
		simulator.Shape{Topology: simulator.Random, Nodes: 12, Load: 0.6, Mixed: true, Uneven: 0.5, Heavy: true, Mean: 200 * time.Millisecond, Seed: 1}.World(),
	} {
		w.Length = settled + 10*time.Minute
		if r := simulator.Run(w, simulator.Headstart()); r.Latest > settled {
			t.Errorf("%s: %d rows replaced, the last after %v", w.Name, r.Pushes, r.Latest)
		}
	}
}

// A node that becomes ten times as slow gets next to nothing a second later, of all gateways
// together, and what it had when it is itself again.
func TestASlowNodeIsDrainedWithinASecond(t *testing.T) {
	for _, p := range []simulator.Policy{simulator.Headstart(), simulator.Silent()} {
		for _, topology := range []simulator.Topology{simulator.Line, simulator.Regions} {
			w := simulator.Shape{Topology: topology, Nodes: 6, Load: 0.4, Requests: 1, Seed: 1}.World()
			slow, well := 30*time.Second, 35*time.Second
			w.Length = 60 * time.Second
			w.Faults = []simulator.Fault{{From: slow, To: well, Slow: 10, Nodes: []int{5}}}
			r := simulator.Run(w, p)
			before := r.Sent(5, slow-2*time.Second, slow)
			during := r.Sent(5, slow+time.Second, slow+3*time.Second)
			after := r.Sent(5, w.Length-2*time.Second, w.Length)
			if 5*during > before {
				t.Errorf("%s, %s: it got %d in two seconds, and gets %d when it is slow", topology, p.Name, before, during)
			}
			if 2*after < before {
				t.Errorf("%s, %s: it got %d in two seconds, and gets %d when it is well again", topology, p.Name, before, after)
			}
		}
	}
}

// A node that is off costs the requests that were on it, and no others.
func TestANodeThatIsOffCostsWhatWasOnIt(t *testing.T) {
	w := simulator.Shape{Topology: simulator.Regions, Nodes: 6, Load: 0.5, Down: true, Requests: 20_000, Seed: 1}.World()
	r := simulator.Run(w, simulator.Headstart())
	if most := w.Nodes[5].Workers * 2; r.Failed > most {
		t.Errorf("%d requests failed, of at most %d that were there", r.Failed, most)
	}
}

// A node that is cut off from the others and from the control plane costs what was on the way
// to it. A neighbour that is full has sent it a third of its own requests; it goes elsewhere long
// before the first of them is given up, after a second. The node goes on by itself, and later all
// is as it was.
func TestAPartitionCostsWhatWasOnTheWay(t *testing.T) {
	w := simulator.Shape{Topology: simulator.Regions, Nodes: 6, Load: 0.5, Requests: 1, Seed: 1}.World()
	const full, node = 1, 4
	rate := w.Sources[full].Peak * 1.3 / 0.5 // of what it can do
	w.Sources[full].Rate, w.Sources[full].Peak = simulator.Constant(rate), rate
	cut, whole := 30*time.Second, 60*time.Second
	w.Length = 90 * time.Second
	w.Faults = []simulator.Fault{{From: cut, To: whole, Nodes: []int{node}}}
	r := simulator.Run(w, simulator.Headstart())
	perSecond := func(from, to time.Duration) float64 { return float64(r.Sent(node, from, to)) / (to - from).Seconds() }
	before, during, after := perSecond(cut-10*time.Second, cut), perSecond(cut+time.Second, whole), perSecond(w.Length-10*time.Second, w.Length)
	own := w.Sources[node].Peak
	if before < 1.5*own || math.Abs(during-own) > 0.05*own || math.Abs(after-before) > 0.05*before {
		t.Errorf("it has %.0f requests/s, %.0f when it is cut off, of its own %.0f, and %.0f later", before, during, own, after)
	}
	if most := int((before - own) * 0.05); r.Failed == 0 || r.Failed > most {
		t.Errorf("%d of %d requests failed; in 50 ms others sent it %d", r.Failed, r.Requests, most)
	}
}

// A thousand nodes, all of which are gateways, too: nobody waits for long where there is room.
// No oracle is asked, which would look at a million ways a second: nothing can have a p99 below
// that of the work alone.
func TestAThousandNodes(t *testing.T) {
	const mean = 100 * time.Millisecond
	w := simulator.Shape{Topology: simulator.Random, Nodes: 1000, Load: 0.3, Mean: mean, Requests: 1, Seed: 1}.World()
	r := simulator.Run(w, simulator.Headstart())
	// Times are from 3/4 to 5/4 of the mean.
	if least := mean * (75 + 99/2) / 100; float64(r.Quantile(0.99)) > simulator.SteadyBound*float64(least) {
		t.Errorf("p99 is %v, and the work alone has %v", r.Quantile(0.99), least)
	}
	if r.Failed > 0 {
		t.Errorf("%d of %d requests failed", r.Failed, r.Requests)
	}
}

// Weights are made within what is measured, and within what is a fault: each five seconds, of what
// was measured in thirty.
func TestWindowsAreLongEnoughForWeightsToFollow(t *testing.T) {
	for _, c := range simulator.Cases(requests, []int{3, 12, 100}, 1) {
		if window := c.World.Length - c.World.Warmup; window < 10*time.Second {
			t.Errorf("%s: %v", c.World.Name, window)
		}
		for _, f := range c.World.Faults {
			if f.From < c.World.Warmup || f.To > c.World.Length || f.To-f.From < 30*time.Second {
				t.Errorf("%s: from %v to %v of %v", c.World.Name, f.From, f.To, c.World.Length)
			}
		}
	}
}

// The worlds are as they say.
func TestShapesAreAsTheySay(t *testing.T) {
	for _, topology := range simulator.Topologies {
		w := simulator.Shape{Topology: topology, Nodes: 9, Load: 0.5, Requests: 100, Seed: 1}.World()
		for a := range w.Nodes {
			for b := range w.Nodes {
				if (w.RTT(a, b) == 0) != (a == b) || w.RTT(a, b) != w.RTT(b, a) {
					t.Errorf("%s: %v from %d to %d, %v back", topology, w.RTT(a, b), a, b, w.RTT(b, a))
				}
			}
		}
	}
	var names []string
	for _, p := range simulator.Policies() {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"round robin", "least request", "peak EWMA", "locality failover", "FaaSt", "Prequal", "balanced weights alone", "Headstart, no load reports", "Headstart", "oracle", "oracle, foreseeing jitter"}, names); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
}
