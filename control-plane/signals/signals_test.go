package signals_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/signals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const fire = "default/fire"

var start = time.Unix(1_000_000, 0)

// said is a report of so many requests per second and in flight, which take so many seconds.
func said(rps, inFlight, service float64) signals.Report {
	return signals.Report{RPSFractional: rps, NamedMetrics: map[string]float64{
		signals.InFlightMetric: inFlight, signals.SojournTimeMetric: service, signals.QueueWaitMetric: service / 10, signals.CapacityMetric: 8}}
}

type book struct {
	*signals.Book
	now     time.Time
	refused map[signals.Reason]int
}

func newBook(nodes ...string) *book {
	b := &book{now: start, refused: map[signals.Reason]int{}}
	b.Book = signals.New(func(_ string, r signals.Reason) { b.refused[r]++ })
	b.SetFunctions([]string{fire, "default/water"})
	for _, n := range nodes {
		b.Join(n, "")
	}
	return b
}

// demand is what a gateway sends to fire.
func (b *book) demand(gateway string) float64 {
	of, _ := b.Demand(gateway, b.now)
	return of[fire]
}

// daemons say the same each second.
func (b *book) daemons(d time.Duration, reports map[string]signals.Report) {
	for until := b.now.Add(d); b.now.Before(until); b.now = b.now.Add(time.Second) {
		for node, r := range reports {
			b.Daemon(node, "", map[string]signals.Report{fire: r}, b.now)
		}
	}
	b.now = b.now.Add(-time.Second)
}

func near(got, want float64) bool { return math.Abs(got-want) <= 0.03*math.Abs(want)+1e-3 }

func TestSteadyNodeIsAsItSays(t *testing.T) {
	b := newBook("edge")
	b.daemons(time.Minute, map[string]signals.Report{"edge": said(20, 4, 0.2)})
	e := b.Of(fire, "edge", b.now)
	want := signals.Estimate{RPS: 20, InFlight: 4, SojournTime: 200 * time.Millisecond, ServiceTime: 200 * time.Millisecond, QueueWait: 20 * time.Millisecond, Capacity: 8, Trust: 1}
	if diff := cmp.Diff(want, e, cmp.Comparer(near), cmp.Comparer(func(a, b time.Duration) bool { return near(float64(a), float64(b)) })); diff != "" {
		t.Error(diff)
	}
	if e := b.Of("default/water", "edge", b.now); e != (signals.Estimate{}) {
		t.Errorf("of a function without requests %+v", e)
	}
}

// What requests wait for each other is no part of what one takes; a function that knows says
// it itself.
func TestServiceTimeIsWithoutWaiting(t *testing.T) {
	b := newBook("edge")
	b.daemons(2*time.Minute, map[string]signals.Report{"edge": said(10, 1, 0.1)})
	b.now = b.now.Add(time.Second)
	b.daemons(2*time.Minute, map[string]signals.Report{"edge": said(20, 20, 1)})
	if e := b.Of(fire, "edge", b.now); !near(e.SojournTime.Seconds(), 1) || !near(e.ServiceTime.Seconds(), 0.1) {
		t.Errorf("under load %+v", e)
	}
	b.now = b.now.Add(time.Second)
	b.daemons(6*time.Minute, map[string]signals.Report{"edge": said(20, 20, 1)})
	if e := b.Of(fire, "edge", b.now); !near(e.ServiceTime.Seconds(), 1) {
		t.Errorf("after minutes of it %+v", e)
	}
	r := said(20, 20, 1)
	r.NamedMetrics[signals.ServiceTimeMetric] = 0.05
	b.now = b.now.Add(time.Second)
	b.daemons(time.Minute, map[string]signals.Report{"edge": r})
	if e := b.Of(fire, "edge", b.now); !near(e.SojournTime.Seconds(), 1) || !near(e.ServiceTime.Seconds(), 0.05) {
		t.Errorf("by its own word %+v", e)
	}
}

// A burst of a second is not what a node is like; a change that stays is, within seconds.
func TestSmoothing(t *testing.T) {
	b := newBook("edge")
	b.daemons(time.Minute, map[string]signals.Report{"edge": said(10, 1, 0.1)})
	b.now = b.now.Add(time.Second)
	b.daemons(time.Second, map[string]signals.Report{"edge": said(100, 50, 0.1)})
	if e := b.Of(fire, "edge", b.now); e.InFlight > 11 || e.RPS > 30 {
		t.Errorf("after a burst %+v", e)
	}
	b.now = b.now.Add(time.Second)
	b.daemons(20*time.Second, map[string]signals.Report{"edge": said(100, 50, 0.5)})
	if e := b.Of(fire, "edge", b.now); e.InFlight < 48 || e.RPS < 95 || e.SojournTime < 490*time.Millisecond || e.ServiceTime > 110*time.Millisecond {
		t.Errorf("20 s later %+v", e)
	}
}

// A silent node goes from what it said to what others say, and is then unknown; it neither
// stays as it was nor looks idle.
func TestSilentNodeDecays(t *testing.T) {
	b := newBook("silent", "other")
	b.daemons(time.Minute, map[string]signals.Report{"silent": said(100, 40, 0.4), "other": said(10, 2, 0.2)})
	last := b.Of(fire, "silent", b.now)
	for range 90 {
		b.now = b.now.Add(time.Second)
		b.daemons(time.Second, map[string]signals.Report{"other": said(10, 2, 0.2)})
		e := b.Of(fire, "silent", b.now)
		if e.InFlight > last.InFlight || e.Trust > last.Trust || e.InFlight < 1.9 || e.SojournTime > last.SojournTime || e.SojournTime < 190*time.Millisecond || e.ServiceTime > e.SojournTime {
			t.Fatalf("after %s %+v, before %+v", b.now.Sub(start), e, last)
		}
		if drop := last.InFlight - e.InFlight; drop > 8 {
			t.Errorf("a jump from %+v to %+v", last, e)
		}
		if e.Age > 3*time.Second && e.Trust == 1 {
			t.Errorf("trusted after %s", e.Age)
		}
		last = e
	}
	if last.Trust != 0 || !near(last.InFlight, 2) {
		t.Errorf("at last %+v", last)
	}
	b.Expire(b.now)
	if rows := b.All(b.now); len(rows) != 1 || rows[0].Node != "other" {
		t.Errorf("%+v", rows)
	}
}

// A node without requests says so seldom, and is not silent for that.
func TestIdleIsNotSilent(t *testing.T) {
	b := newBook("edge")
	b.daemons(10*time.Second, map[string]signals.Report{"edge": said(100, 40, 0.4)})
	b.now = b.now.Add(time.Second)
	for range 20 {
		b.Daemon("edge", "", nil, b.now)
		for range 10 {
			if e := b.Of(fire, "edge", b.now); e.Trust != 1 {
				t.Fatalf("%+v", e)
			}
			b.now = b.now.Add(time.Second)
		}
	}
	if e := b.Of(fire, "edge", b.now); e.InFlight > 0.01 || e.RPS > 0.01 || !near(e.SojournTime.Seconds(), 0.4) {
		t.Errorf("%+v", e)
	}
	b.now = b.now.Add(5 * time.Minute)
	b.Daemon("edge", "", nil, b.now)
	b.Expire(b.now)
	if rows := b.All(b.now); len(rows) != 0 {
		t.Errorf("%+v is remembered", rows)
	}
}

// Gateways see requests that pass no daemon: those on their way are not the node's, and the
// time that they stay follows from how many there are.
func TestGatewaysSeeWhatDaemonsDoNot(t *testing.T) {
	b := newBook("edge", "one", "two")
	away := func(string) time.Duration { return 50 * time.Millisecond }
	for range 120 {
		b.now = b.now.Add(time.Second)
		for _, gateway := range []string{"one", "two"} {
			// 100 requests a second that stay for 0.2 s over there are 25 in flight.
			b.Relayed(gateway, "", map[string]map[string]signals.Report{fire: {"edge": {RPSFractional: 100, EPS: 1, NamedMetrics: map[string]float64{signals.InFlightMetric: 25}}}}, away, b.now)
		}
		b.Daemon("edge", "", map[string]signals.Report{fire: {RPSFractional: 1, NamedMetrics: map[string]float64{signals.InFlightMetric: 1, signals.SojournTimeMetric: 1e-6, signals.CapacityMetric: 64}}}, b.now)
	}
	e := b.Of(fire, "edge", b.now)
	if !near(e.RPS, 201) || !near(e.Seen, 200) || !near(e.InFlight, 41) || !near(e.EPS, 2) || e.Capacity != 64 {
		t.Errorf("%+v", e)
	}
	if !near(e.SojournTime.Seconds(), 0.2) {
		t.Errorf("a sojourn time of %s: what the node says of itself beats what others see", e.SojournTime)
	}
	if d, known := b.Demand("two", b.now); !near(d[fire], 100) || len(d) != 1 || !known {
		t.Errorf("a demand of %v", d)
	}
	for gateway, now := range map[string]time.Time{"three": b.now, "two": b.now.Add(10 * time.Second)} {
		if d, known := b.Demand(gateway, now); known {
			t.Errorf("a demand of %v by gateway %s, which says nothing", d, gateway)
		}
	}
}

// A report is due each second while there are requests, and each ten seconds while there are
// none. Of a node that has two daemons, one will do.
func TestOverdue(t *testing.T) {
	b := newBook("edge")
	want := func(what, node string, want time.Duration, known bool) {
		t.Helper()
		if got, k := b.Overdue(node, b.now); got != want || k != known {
			t.Errorf("%s: %s, %v", what, got, k)
		}
	}
	want("it has said nothing", "edge", 0, false)
	b.daemons(10*time.Second, map[string]signals.Report{"edge": said(100, 40, 0.4)})
	want("just now", "edge", 0, true)
	b.now = b.now.Add(4 * time.Second)
	want("four seconds later", "edge", 3*time.Second, true)
	b.Daemon("edge", "", nil, b.now)
	b.now = b.now.Add(time.Second)
	b.Daemon("edge", "", nil, b.now)
	b.now = b.now.Add(9 * time.Second)
	want("without requests", "edge", 0, true)
	b.now = b.now.Add(11 * time.Second)
	want("and then silent", "edge", 10*time.Second, true)
	b.Join("edge", "second")
	b.Daemon("edge", "second", nil, b.now)
	want("the second daemon", "edge", 0, true)
	b.Leave("edge", "second")
	want("the first one", "edge", 10*time.Second, true)
	b.Leave("edge", "")
	want("no daemon", "edge", 0, false)
	want("no node", "nowhere", 0, false)
}

// A gateway's requests in the words of its node's daemon are the gateway's; the way to the node
// is no part of the time that they stay there.
func TestDaemonsSpeakForGateways(t *testing.T) {
	b := newBook("edge", "cloud")
	away := func(string) time.Duration { return 50 * time.Millisecond }
	routed := map[string]map[string]signals.Report{fire: {"cloud": {RPSFractional: 100, EPS: 1, NamedMetrics: map[string]float64{signals.InFlightMetric: 7, signals.SojournTimeMetric: 0.07}}}}
	for range 60 {
		b.now = b.now.Add(time.Second)
		b.Daemon("edge", "", map[string]signals.Report{fire: said(3, 1, 0.5)}, b.now)
		b.Relayed("edge", "", routed, away, b.now)
		b.Daemon("cloud", "", nil, b.now)
		b.Relayed("cloud", "", nil, away, b.now)
	}
	e := b.Of(fire, "cloud", b.now)
	if !near(e.RPS, 100) || !near(e.EPS, 1) || !near(e.InFlight, 2) || !near(e.SojournTime.Seconds(), 0.02) || !near(e.ServiceTime.Seconds(), 0.02) || e.Trust != 1 {
		t.Errorf("%+v", e)
	}
	if got := []float64{b.demand("edge"), b.demand("cloud"), b.Of(fire, "edge", b.now).RPS}; !near(got[0], 100) || got[1] != 0 || !near(got[2], 3) {
		t.Errorf("demand at the edge and in the cloud, requests on the edge: %v", got)
	}
	for range 20 { // and then there are none, which is said seldom
		b.now = b.now.Add(time.Second)
		if b.now.Unix()%10 == 0 {
			b.Relayed("edge", "", nil, away, b.now)
		}
	}
	if e := b.Of(fire, "cloud", b.now); e.RPS > 20 || e.Trust != 1 {
		t.Errorf("without requests %+v", e)
	}
	b.Relayed("edge", "another", routed, away, b.now)
	if b.refused[signals.Superseded] != 1 {
		t.Errorf("a daemon that there is not: %v", b.refused)
	}
}

// While a daemon is being replaced each of the two speaks for the gateways that report to it.
func TestDaemonsOfOneNameSpeakForGateways(t *testing.T) {
	b := newBook()
	b.Join("edge", "old")
	b.Join("edge", "new")
	say := func(processes ...string) {
		for range 30 {
			b.now = b.now.Add(time.Second)
			for _, p := range processes {
				b.Relayed("edge", p, map[string]map[string]signals.Report{fire: {"cloud": {RPSFractional: 10}}}, func(string) time.Duration { return 0 }, b.now)
			}
		}
	}
	say("old", "new")
	if d := b.demand("edge"); !near(d, 20) {
		t.Errorf("a demand of %g by both", d)
	}
	b.Leave("edge", "old")
	if d := b.demand("edge"); !near(d, 10) {
		t.Errorf("a demand of %g by the new one", d)
	}
	b.Leave("edge", "new")
	if d := b.demand("edge"); !near(d, 10) {
		t.Errorf("a demand of %g: the last word goes at once", d)
	}
	b.Join("edge", "third")
	if d := b.demand("edge"); d != 0 {
		t.Errorf("a demand of %g by none", d)
	}
	b.Expire(b.now.Add(time.Hour))
	if rows := b.All(b.now.Add(time.Hour)); len(rows) > 0 {
		t.Errorf("%+v after an hour", rows)
	}
}

// What fails at once is no request that was served fast, whoever tells of it, and is not
// remembered as one when the node is well again. What an application fails on its own account is
// its work.
func TestFailuresAreNoServiceTime(t *testing.T) {
	const rps = 100.0
	// failing is what there is to be said while a part of the requests fails in 0.1 ms.
	failing := func(part float64, told bool) signals.Report {
		r := signals.Report{RPSFractional: rps, EPS: part * rps, NamedMetrics: map[string]float64{signals.InFlightMetric: rps * ((1-part)*0.2 + part*1e-4)}}
		if told && part < 1 {
			r.NamedMetrics[signals.SojournTimeMetric] = 0.2
		}
		return r
	}
	for name, c := range map[string]struct {
		told        bool
		part        float64
		least, most float64 // seconds that a request is taken to be served, while that part fails
	}{
		"all, by those in flight":         {false, 1, 0.2, 0.2},
		"most, by those in flight":        {false, 0.9, 0.2, 0.2},
		"a few, by those in flight":       {false, 0.1, 0.18, 0.2},
		"all, by those that are answered": {true, 1, 0.2, 0.2},
		"most, by those that are":         {true, 0.9, 0.2, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook("edge")
			say := func(seconds int, part float64) signals.Estimate {
				for range seconds {
					b.now = b.now.Add(time.Second)
					b.Relayed("edge", "", map[string]map[string]signals.Report{fire: {"edge": failing(part, c.told)}}, func(string) time.Duration { return 0 }, b.now)
				}
				return b.Of(fire, "edge", b.now)
			}
			say(60, 0)
			e := say(600, c.part)
			if got := e.ServiceTime.Seconds(); got < 0.97*c.least || got > 1.03*c.most || e.SojournTime < e.ServiceTime || !near(e.EPS, c.part*rps) {
				t.Errorf("while it fails %+v", e)
			}
			if e := say(60, 0); e.ServiceTime.Seconds() < 0.97*c.least || !near(e.SojournTime.Seconds(), 0.2) {
				t.Errorf("when it is well %+v", e)
			}
		})
	}
	for name, r := range map[string]signals.Report{"in flight": failing(1, false), "told": {RPSFractional: rps, EPS: rps, NamedMetrics: map[string]float64{signals.SojournTimeMetric: 1e-4, signals.ServiceTimeMetric: 1e-4}}} {
		b := newBook("edge")
		b.daemons(time.Minute, map[string]signals.Report{"edge": r})
		if e := b.Of(fire, "edge", b.now); e.SojournTime != 0 || e.ServiceTime != 0 {
			t.Errorf("%s, of one that has answered none: %+v", name, e)
		}
	}
}

// Few requests say nothing about how long they stay.
func TestFewRequestsAreNoMean(t *testing.T) {
	b := newBook("edge")
	for i := range 60 {
		b.now = b.now.Add(time.Second)
		inFlight := 0.0
		if i%10 == 0 {
			inFlight = 1
		}
		b.Relayed("edge", "", map[string]map[string]signals.Report{fire: {"edge": {RPSFractional: 1, NamedMetrics: map[string]float64{signals.InFlightMetric: inFlight}}}}, func(string) time.Duration { return 0 }, b.now)
	}
	if e := b.Of(fire, "edge", b.now); e.SojournTime != 0 || e.ServiceTime != 0 || !near(e.RPS, 1) {
		t.Errorf("%+v", e)
	}
}

func TestHostileReports(t *testing.T) {
	metric := func(name string, v float64) signals.Report {
		r := said(10, 1, 0.1)
		r.NamedMetrics[name] = v
		return r
	}
	honest := said(10, 1, 0.1)
	for name, c := range map[string]struct {
		report map[string]signals.Report
		reason signals.Reason
	}{
		"rate that is no number":        {map[string]signals.Report{fire: said(math.NaN(), 1, 1)}, signals.NotANumber},
		"infinite rate":                 {map[string]signals.Report{fire: said(math.Inf(1), 1, 1)}, signals.NotANumber},
		"requests in flight, no number": {map[string]signals.Report{fire: metric(signals.InFlightMetric, math.NaN())}, signals.NotANumber},
		"negative requests in flight":   {map[string]signals.Report{fire: metric(signals.InFlightMetric, -1)}, signals.Negative},
		"negative service time":         {map[string]signals.Report{fire: metric(signals.ServiceTimeMetric, -0.1)}, signals.Negative},
		"negative wait":                 {map[string]signals.Report{fire: metric(signals.QueueWaitMetric, math.Inf(-1))}, signals.NotANumber},
		"absurd service time":           {map[string]signals.Report{fire: metric(signals.ServiceTimeMetric, 1e9)}, signals.Absurd},
		"absurd capacity":               {map[string]signals.Report{fire: metric(signals.CapacityMetric, 1e300)}, signals.Absurd},
		"absurd rate":                   {map[string]signals.Report{fire: said(1e9, 1, 0.1)}, signals.Absurd},
		"utilization that is no number": {map[string]signals.Report{fire: {ApplicationUtilization: math.NaN()}}, signals.NotANumber},
		"function that there is not":    {map[string]signals.Report{fire: honest, "default/none": honest}, signals.FunctionUnknown},
		"more failures than requests":   {map[string]signals.Report{fire: {RPSFractional: 10, EPS: 1e5, NamedMetrics: honest.NamedMetrics}}, signals.Contradictory},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook("edge", "liar")
			b.daemons(time.Minute, map[string]signals.Report{"liar": honest, "edge": honest})
			before := b.Of(fire, "edge", b.now)
			b.now = b.now.Add(time.Second)
			b.Daemon("liar", "", c.report, b.now)
			if diff := cmp.Diff(map[signals.Reason]int{c.reason: 1}, b.refused); diff != "" {
				t.Error(diff)
			}
			e := b.Of(fire, "liar", b.now)
			if math.IsNaN(e.RPS) || e.RPS > 10.01 || e.EPS > e.RPS || e.InFlight > 1.01 || e.SojournTime > 101*time.Millisecond || e.ServiceTime > 101*time.Millisecond || e.Capacity != 8 {
				t.Errorf("%+v", e)
			}
			if after := b.Of(fire, "edge", b.now); after.InFlight != before.InFlight || after.SojournTime != before.SojournTime {
				t.Errorf("another node's is %+v, was %+v", after, before)
			}
		})
	}
}

// A flood is not smoothed into anything.
func TestFloods(t *testing.T) {
	b := newBook("edge")
	b.daemons(10*time.Second, map[string]signals.Report{"edge": said(10, 1, 0.1)})
	before := b.Of(fire, "edge", b.now)
	for i := range 1000 {
		b.Daemon("edge", "", map[string]signals.Report{fire: said(1000, 1000, 10)}, b.now.Add(time.Duration(i)*time.Microsecond))
	}
	if e := b.Of(fire, "edge", b.now); e != before || b.refused[signals.TooOften] != 1000 {
		t.Errorf("%+v, was %+v; %v", e, before, b.refused)
	}
}

// A node whose daemon is being replaced has two, whose requests are different ones. More of
// one name are nodes that share it: the newest two count.
func TestDaemonsOfOneName(t *testing.T) {
	b := newBook()
	say := func(processes ...string) {
		for range 60 {
			b.now = b.now.Add(time.Second)
			for _, p := range processes {
				b.Daemon("edge", p, map[string]signals.Report{fire: said(10, 1, 0.1)}, b.now)
			}
		}
	}
	b.Join("edge", "old")
	b.Join("edge", "new")
	say("old", "new")
	if e := b.Of(fire, "edge", b.now); !near(e.RPS, 20) || !near(e.InFlight, 2) || !near(e.SojournTime.Seconds(), 0.1) {
		t.Errorf("of both %+v", e)
	}
	b.Leave("edge", "old")
	if e := b.Of(fire, "edge", b.now); !near(e.RPS, 10) {
		t.Errorf("of the new one %+v", e)
	}
	b.Join("edge", "third")
	b.Join("edge", "fourth")
	say("new", "third", "fourth")
	if e := b.Of(fire, "edge", b.now); !near(e.RPS, 20) || b.refused[signals.Superseded] != 60 {
		t.Errorf("of four %+v, %v", e, b.refused)
	}
	b.Leave("edge", "third")
	b.Leave("edge", "fourth")
	if e := b.Of(fire, "edge", b.now); e.Trust != 1 {
		t.Errorf("%+v: the last daemon's word goes at once", e)
	}
	b.Daemon("edge", "fourth", map[string]signals.Report{fire: said(10, 1, 0.1)}, b.now)
	if b.refused[signals.Superseded] != 61 {
		t.Error("a daemon that has left is listened to")
	}
	b.Join("edge", "fifth")
	b.Daemon("edge", "fifth", map[string]signals.Report{fire: said(10, 1, 0.1)}, b.now)
	if e := b.Of(fire, "edge", b.now); !near(e.RPS, 10) {
		t.Errorf("of the one that came after %+v", e)
	}
}

// Capacity may be told as the part of it that is in use.
func TestCapacityByUtilization(t *testing.T) {
	b := newBook("edge")
	r := signals.Report{RPSFractional: 1, ApplicationUtilization: 0.25, NamedMetrics: map[string]float64{signals.InFlightMetric: 4}}
	b.daemons(time.Minute, map[string]signals.Report{"edge": r})
	if e := b.Of(fire, "edge", b.now); e.Capacity != 16 {
		t.Errorf("%+v", e)
	}
}

// Functions that are gone take what was said of them along.
func TestFunctionsThatAreGone(t *testing.T) {
	b := newBook("edge")
	b.daemons(time.Minute, map[string]signals.Report{"edge": said(10, 1, 0.1)})
	b.SetFunctions([]string{"default/water"})
	b.SetFunctions([]string{fire})
	if e := b.Of(fire, "edge", b.now); e != (signals.Estimate{}) {
		t.Errorf("%+v", e)
	}
}

// Whatever is said, in whatever order: estimates are finite and within what can be, and all
// of it is forgotten.
func TestAnythingMayBeSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook("a", "b")
		name, process := rapid.SampledFrom([]string{"a", "b", "c"}), rapid.SampledFrom([]string{"", "x", "y"})
		value := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 100), rapid.Just(math.NaN()), rapid.Just(math.Inf(1)))
		report := func() signals.Report {
			return signals.Report{RPSFractional: value.Draw(t, "rps"), EPS: value.Draw(t, "eps"), ApplicationUtilization: value.Draw(t, "utilization"), NamedMetrics: map[string]float64{
				signals.InFlightMetric: value.Draw(t, "in flight"), signals.ServiceTimeMetric: value.Draw(t, "service"), signals.SojournTimeMetric: value.Draw(t, "sojourn"), signals.QueueWaitMetric: value.Draw(t, "wait"), signals.CapacityMetric: value.Draw(t, "capacity")}}
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			b.now = b.now.Add(time.Duration(rapid.Int64Range(-int64(time.Second), int64(20*time.Second)).Draw(t, "later")))
			switch rapid.IntRange(0, 8).Draw(t, "what") {
			case 0:
				b.Join(name.Draw(t, "joins"), process.Draw(t, "process"))
			case 1:
				b.Leave(name.Draw(t, "leaves"), process.Draw(t, "process"))
			case 2:
				b.Expire(b.now)
			case 3:
				b.SetFunctions([]string{rapid.SampledFrom([]string{fire, "default/water"}).Draw(t, "function")})
			case 4, 5, 6:
				b.Relayed(name.Draw(t, "node"), process.Draw(t, "process"), map[string]map[string]signals.Report{fire: {name.Draw(t, "to"): report()}},
					func(string) time.Duration { return time.Duration(rapid.Int64().Draw(t, "away")) }, b.now)
			default:
				b.Daemon(name.Draw(t, "node"), process.Draw(t, "process"), map[string]signals.Report{fire: report(), "default/water": report()}, b.now)
			}
			for _, r := range b.All(b.now) {
				for _, v := range []float64{r.RPS, r.EPS, r.InFlight, r.Capacity, r.SojournTime.Seconds(), r.ServiceTime.Seconds(), r.QueueWait.Seconds(), r.Trust, r.Age.Seconds()} {
					if !(v >= 0 && v <= 1e8) {
						t.Fatalf("%+v", r)
					}
				}
				if r.Trust > 1 || r.SojournTime > time.Hour+time.Second || r.ServiceTime > r.SojournTime && r.SojournTime > 0 || r.QueueWait > time.Hour+time.Second {
					t.Fatalf("%+v", r)
				}
			}
		}
		b.Expire(b.now.Add(time.Hour))
		if rows := b.All(b.now.Add(time.Hour)); len(rows) > 0 {
			t.Fatalf("%+v after an hour", rows)
		}
	})
}
