package probe_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi/coordinate"
	"github.com/headstart-mesh/headstart/shim/probe"
)

var start = time.Unix(1_000_000, 0)

const ms = time.Millisecond

// net is peers at fixed round-trip times, which a plan probes as time goes by.
type net struct {
	plan   *probe.Plan
	rtt    map[string]time.Duration // absent: no answer
	now    time.Time
	probes []time.Time
	by     map[string]int
}

func newNet(peers map[string]time.Duration) *net {
	n := &net{plan: probe.NewPlan("me"), rtt: peers, now: start, by: map[string]int{}}
	var list []probe.Peer
	for name := range peers {
		list = append(list, probe.Peer{Name: name})
	}
	n.plan.SetPeers(list, n.now)
	return n
}

// pass lets time go by; with each probe it is asked what it sees, if seen is not nil.
func (n *net) pass(d time.Duration, seen func(peer string) time.Duration) {
	until := n.now.Add(d)
	for n.now.Before(until) {
		peer, wait, ok := n.plan.Next(n.now)
		if !ok {
			n.now = n.now.Add(min(wait, until.Sub(n.now)))
			continue
		}
		n.probes = append(n.probes, n.now)
		n.by[peer.Name]++
		rtt, answers := n.rtt[peer.Name]
		if seen != nil {
			rtt = seen(peer.Name)
		}
		if !answers {
			n.plan.Failed(peer.Name, n.now)
			continue
		}
		n.plan.Answered(peer.Name, rtt, coordinate.New(peer.Name).Point(), n.now)
	}
}

func (n *net) want(t *testing.T, peer string, rtt time.Duration, by float64) {
	t.Helper()
	m, ok := n.plan.RTT(peer, n.now)
	if !ok || math.Abs(float64(m.RTT-rtt)) > by*float64(rtt) {
		t.Errorf("%s is %s away (%t), want %s", peer, m.RTT, ok, rtt)
	}
}

// However many peers there are and whatever they do, no second has more than Rate probes.
func TestNoSecondHasMoreThanRateProbes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		peers := map[string]time.Duration{}
		for i := range rapid.IntRange(1, 100).Draw(t, "peers") {
			peers[strconv.Itoa(i)] = ms
		}
		n := newNet(peers)
		jump := rapid.Int64Range(1, int64(time.Second))
		n.pass(10*time.Second, func(string) time.Duration { return time.Duration(jump.Draw(t, "rtt")) })
		for i := probe.Rate; i < len(n.probes); i++ {
			if within := n.probes[i].Sub(n.probes[i-probe.Rate]); within < time.Second {
				t.Fatalf("%d probes within %s", probe.Rate+1, within)
			}
		}
	})
}

// A quiet network is asked seldom.
func TestProbesBackOffWhileNothingChanges(t *testing.T) {
	peers := map[string]time.Duration{}
	for i := range 32 {
		peers[strconv.Itoa(i)] = time.Duration(1+i) * ms
	}
	n := newNet(peers)
	n.pass(5*time.Minute, nil)
	before := len(n.probes)
	n.pass(10*time.Minute, nil)
	if perSecond := float64(len(n.probes)-before) / 600; perSecond > 0.6 {
		t.Errorf("%.2f probes per second of a network that does not change", perSecond)
	}
	for name, rtt := range peers {
		n.want(t, name, rtt, 0.001)
	}
}

// What queues add is not the way.
func TestQueuesAreFilteredOut(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 20 * ms})
	i := 0
	n.pass(10*time.Minute, func(string) time.Duration {
		i++
		if i%3 == 0 {
			return 20 * ms
		}
		return 20*ms + time.Duration(i%7)*5*ms
	})
	n.want(t, "a", 20*ms, 0.1)
}

// A new path is known after a few probes, shorter or longer, and is asked more often until
// then.
func TestNewPathIsNoticed(t *testing.T) {
	for _, c := range []struct {
		to     time.Duration
		within time.Duration // after the first probe that sees it
	}{{10 * ms, time.Second}, {51 * ms, time.Hour}, {100 * ms, 20 * time.Second}, {time.Second, 20 * time.Second}} {
		t.Run(c.to.String(), func(t *testing.T) {
			n := newNet(map[string]time.Duration{"a": 50 * ms})
			n.pass(10*time.Minute, nil)
			n.want(t, "a", 50*ms, 0.001)
			n.rtt["a"] = c.to
			for before := len(n.probes); len(n.probes) == before; {
				n.pass(time.Second, nil)
			}
			n.pass(c.within, nil)
			n.want(t, "a", c.to, 0.03)
		})
	}
}

// A jittery link is no news all the time.
func TestJitterIsNotProbedHarder(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 50 * ms})
	i := 0
	jitter := []time.Duration{47, 61, 38, 55, 44, 66, 52, 35, 58, 49}
	see := func(string) time.Duration { i++; return jitter[i%len(jitter)] * ms }
	n.pass(10*time.Minute, see)
	before := len(n.probes)
	n.pass(10*time.Minute, see)
	if perMinute := float64(len(n.probes)-before) / 10; perMinute > 6 {
		t.Errorf("%.1f probes a minute", perMinute)
	}
	n.want(t, "a", 40*ms, 0.2)
}

// Those who do not answer are asked less and less, and what was known of them grows old and
// is then unknown.
func TestSilentPeers(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 5 * ms, "b": 5 * ms})
	n.pass(10*time.Second, nil)
	delete(n.rtt, "a")
	asked := n.by["a"]
	n.pass(4*time.Minute, nil)
	if more := n.by["a"] - asked; more > 10 {
		t.Errorf("asked %d times more", more)
	}
	if m, ok := n.plan.RTT("a", n.now); !ok || m.Age < 3*time.Minute {
		t.Errorf("%+v, %t", m, ok)
	}
	n.pass(2*time.Minute, nil)
	if m, ok := n.plan.RTT("a", n.now); ok {
		t.Errorf("still %+v", m)
	}
	n.want(t, "b", 5*ms, 0.001)
	n.rtt["a"] = 5 * ms
	n.pass(2*time.Minute, nil)
	n.want(t, "a", 5*ms, 0.001)
}

// Traffic stands in for probes.
func TestTrafficNeedsNoProbes(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 5 * ms, "b": 5 * ms})
	n.pass(5*time.Minute, nil)
	before := n.by["a"]
	for range 600 {
		n.plan.Passed("a", 5*ms, n.now)
		n.plan.Passed("stranger", 7*ms, n.now)
		n.pass(time.Second, nil)
	}
	if n.by["a"] != before || n.by["b"] == before {
		t.Errorf("%d probes of a, %d of b", n.by["a"]-before, n.by["b"])
	}
	n.want(t, "a", 5*ms, 0.001)
	n.want(t, "stranger", 7*ms, 0.001)
}

// Round-trip times that cannot be are no samples.
func TestImplausibleRoundTrips(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 5 * ms})
	for _, rtt := range []time.Duration{0, -ms, math.MinInt64, math.MaxInt64, coordinate.LongestRTT + 1} {
		n.plan.Passed("a", rtt, n.now)
		n.plan.Passed("b", rtt, n.now)
		n.pass(time.Minute, func(string) time.Duration { return rtt })
	}
	for _, peer := range []string{"a", "b"} {
		if m, ok := n.plan.RTT(peer, n.now); ok {
			t.Errorf("%+v", m)
		}
	}
	if n.plan.Report(n.now) != nil {
		t.Error("nothing was told")
	}
}

// What one node follows is bounded, whoever connects to it.
func TestPeersAreBounded(t *testing.T) {
	p := probe.NewPlan("me")
	var peers []probe.Peer
	for i := range 1000 {
		peers = append(peers, probe.Peer{Name: strconv.Itoa(i)})
		p.Passed("passes"+strconv.Itoa(i), ms, start)
	}
	p.SetPeers(peers, start)
	for i := range 1000 {
		p.Passed(strconv.Itoa(i), ms, start)
	}
	if n := len(p.Measured(start)); n > 256 {
		t.Errorf("%d are followed", n)
	}
	p.SetPeers(nil, start.Add(2*probe.KeptFor))
	if _, _, ok := p.Next(start.Add(2 * probe.KeptFor)); ok || len(p.Measured(start)) != 0 {
		t.Errorf("%d are still known", len(p.Measured(start)))
	}
}

// News is told soon, and what is no news often enough that nobody forgets it.
func TestReports(t *testing.T) {
	n := newNet(map[string]time.Duration{"a": 5 * ms, "b": 50 * ms})
	if n.plan.Report(n.now) != nil {
		t.Error("there is nothing to tell yet")
	}
	n.pass(3*time.Second, nil)
	r := n.plan.Report(n.now)
	if m := r.GetMeasured(); len(m) != 2 || m[0].GetNode() != "a" || m[1].GetNode() != "b" {
		t.Fatalf("%v", r)
	}
	if r.GetCoordinate() != nil {
		t.Error("a node that has just begun knows where it is")
	}
	if n.plan.Report(n.now) != nil {
		t.Error("told twice at once")
	}
	n.plan.Again()
	if again := n.plan.Report(n.now); len(again.GetMeasured()) != 2 {
		t.Errorf("%v: not told again", again)
	}
	n.pass(10*time.Minute, nil)
	n.plan.Report(n.now)
	told := 0
	for range 600 {
		n.pass(time.Second, nil)
		if r := n.plan.Report(n.now); r != nil {
			told++
			if _, err := coordinate.Parse(r.GetCoordinate()); err != nil {
				t.Error(err)
			}
			for _, m := range r.GetMeasured() {
				if m.GetAge().AsDuration() > 2*time.Minute {
					t.Errorf("%v is told", m)
				}
			}
		}
	}
	if told < 9 || told > 12 {
		t.Errorf("told %d times in ten minutes without news", told)
	}
	n.rtt["a"] = 25 * ms
	n.pass(3*time.Minute, nil)
	n.plan.Report(n.now)
	n.rtt["a"] = 5 * ms
	for before := n.by["a"]; n.by["a"] == before; {
		n.pass(time.Second, nil)
	}
	n.pass(6*time.Second, nil)
	if n.plan.Report(n.now) == nil {
		t.Error("a path that is shorter again is no news")
	}
}
