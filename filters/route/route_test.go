package route_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/route"
)

const ms = time.Millisecond

// at is an endpoint's address.
func at(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080)
}

// near and far are an edge's own endpoint and one in the cloud.
func near() filterapi.RouteEndpoint {
	return filterapi.RouteEndpoint{
		Address: at(1), Weight: 1000, Expected: filterapi.Expected{Service: 4 * ms, Workers: 2},
	}
}

func far() filterapi.RouteEndpoint {
	return filterapi.RouteEndpoint{
		Address: at(2), Expected: filterapi.Expected{RTT: 50 * ms, Service: 4 * ms, Workers: 8},
	}
}

func table(list ...filterapi.RouteEndpoint) *route.Table {
	t := &route.Table{}
	t.Set(list)
	return t
}

func pick(t *testing.T, table *route.Table, now time.Duration) int {
	t.Helper()
	i, ok := table.Pick(now, rand.Uint64())
	if !ok {
		t.Fatal("nothing is picked")
	}
	return i
}

func TestTheNearEndpointIsPickedWhileItHasRoom(t *testing.T) {
	table := table(far(), near())
	for n := range 2 {
		if i := pick(t, table, 0); i != 1 {
			t.Fatalf("with %d in flight, %d is picked", n, i)
		}
		table.Begin(1, 0)
	}
}

// A request leaves nothing to collect.
func TestARequestAllocatesNothing(t *testing.T) {
	table := table(near(), far())
	load := &route.Load{InFlight: 1, Workers: 2, Service: 4 * ms}
	var text []byte
	if n := testing.AllocsPerRun(100, func() {
		table.Join(text, ms)
		i, _ := table.Pick(ms, 1)
		sent := table.Begin(i, ms)
		table.Answered(sent, ms, true, load)
		table.Over(sent)
		text = table.Append(text[:0], ms)
		table.Told()
	}); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}

// However many come at once, they do not wait longer near than the way to the cloud is.
func TestWhatIsTooMuchGoesFar(t *testing.T) {
	table := table(near(), far())
	picked := [2]int{}
	for range 200 {
		i := pick(t, table, 0)
		table.Begin(i, 0)
		picked[i]++
	}
	if wait := time.Duration(picked[0]) / 2 * 4 * ms; wait < 30*ms || picked[1] == 0 && wait > 60*ms {
		t.Errorf("%v go near and far", picked)
	}
	if picked[0] > 140 {
		t.Errorf("%v go near and far", picked)
	}
}

// Where the weights send some far for want of room, the near queue is kept short: it would
// never be over. Weight on the next endpoint, as near as a request is long, says nothing.
func TestAFullEndpointsQueueIsShort(t *testing.T) {
	queue := func(nearWeight, nextWeight, farWeight uint32) (n int) {
		near, next, far := near(), near(), far()
		next.Address, next.RTT = at(3), near.RTT+near.Service
		near.Weight, next.Weight, far.Weight = nearWeight, nextWeight, farWeight
		table := table(near, next, far)
		table.Eject(func(i int) bool { return i == 1 })
		for pick(t, table, 0) == 0 {
			table.Begin(0, 0)
			n++
		}
		return n
	}
	roomy := queue(100, 0, 0)
	for _, c := range []struct {
		near, next, far uint32
		shortest        int
		longest         int
	}{{0, 0, 0, roomy, roomy}, {50, 50, 0, roomy, roomy}, {90, 0, 10, roomy - 3, roomy - 1}, {80, 0, 20, roomy / 2, roomy - 4},
		{40, 0, 60, roomy / 4, roomy / 3}, {10, 0, 90, roomy / 8, roomy / 4}} {
		if n := queue(c.near, c.next, c.far); n < c.shortest || n > c.longest {
			t.Errorf("with weights %d, %d, %d %d requests go near, want %d to %d; with all weight near %d", c.near, c.next, c.far, n, c.shortest, c.longest, roomy)
		}
	}
}

// An endpoint that is suddenly ten times as slow gets next to nothing after a second, whether
// it reports its load or not.
func TestASlowEndpointIsDrainedWithinASecond(t *testing.T) {
	for _, reports := range []bool{true, false} {
		t.Run(fmt.Sprint("reports=", reports), func(t *testing.T) {
			other := near()
			other.Address, other.RTT = at(3), ms
			w := &world{table: table(near(), other), service: []time.Duration{4 * ms, 4 * ms}, rtt: []time.Duration{0, ms}, reports: reports}
			w.run(0, time.Second, 200)
			if w.picked[0] < 190 {
				t.Fatalf("the near endpoint has %d of 200 when all is well", w.picked[0])
			}
			w.service[0] = 40 * ms
			w.run(time.Second, time.Second, 200)
			w.picked = [2]int{}
			w.run(2*time.Second, 2*time.Second, 200)
			if w.picked[0] > 20 {
				t.Errorf("it still gets %d of 400", w.picked[0])
			}
			w.service[0] = 4 * ms
			w.run(4*time.Second, 20*time.Second, 200)
			w.picked = [2]int{}
			w.run(24*time.Second, time.Second, 200)
			if w.picked[0] < 190 {
				t.Errorf("it gets %d of 200 when it is well again", w.picked[0])
			}
		})
	}
}

// When the gateway itself, or the machine, has stood still for a moment, all that was under way
// is late at once. That says little of the endpoint, and must not keep requests from it when
// they need it.
func TestOneStallMakesNoEndpointSlowForLong(t *testing.T) {
	other := near()
	other.Address, other.RTT = at(3), ms
	w := &world{table: table(near(), other), service: []time.Duration{4 * ms, 4 * ms}, rtt: []time.Duration{0, ms}}
	w.run(0, time.Second, 50)
	var late []route.Sent
	for range 5 {
		late = append(late, w.table.Begin(1, time.Second))
	}
	for _, sent := range late {
		w.table.End(sent, time.Second+200*ms, true, nil)
	}
	w.service[0] = 40 * ms
	w.run(time.Second+200*ms, 800*ms, 50)
	w.picked = [2]int{}
	w.run(2*time.Second, time.Second, 50)
	if w.picked[0] > 10 {
		t.Errorf("the endpoint that is slow gets %d of 50", w.picked[0])
	}
}

// An error that comes at once is no sign of speed: an endpoint that has been slow is not well by
// it, and one that was well is not picked rather than a nearer one.
func TestAnErrorAtOnceIsNotFast(t *testing.T) {
	other := near()
	other.Address, other.RTT = at(3), 10*ms
	t.Run("slow before", func(t *testing.T) {
		table := table(near(), other)
		for k := range 20 {
			table.End(table.Begin(0, time.Duration(k)*ms), time.Duration(k+100)*ms, true, nil)
		}
		for k := range 20 {
			now := time.Duration(120+k) * ms
			sent := table.Begin(0, now)
			table.Erred(sent, now+ms/10, nil)
			table.Over(sent)
		}
		if i := pick(t, table, 150*ms); i != 1 {
			t.Error("it is picked")
		}
	})
	t.Run("well before", func(t *testing.T) {
		table := table(near(), other)
		for k := range 200 {
			now := time.Duration(k) * ms
			sent := table.Begin(1, now)
			table.Erred(sent, now+ms/10, nil)
			table.Over(sent)
		}
		if i := pick(t, table, 200*ms); i != 0 {
			t.Error("it is picked")
		}
		for k := range 20 { // one that takes long counts as any answer
			sent := table.Begin(0, time.Duration(200+k)*ms)
			table.Erred(sent, time.Duration(300+k)*ms, nil)
			table.Over(sent)
		}
		if i := pick(t, table, 350*ms); i != 1 {
			t.Error("one whose errors take long is picked")
		}
	})
}

// However many requests come meanwhile, one finds out whether an endpoint that was slow is
// well again; what the control plane says anew of what to expect does not have it forgotten.
func TestASlowEndpointIsTriedByOneRequestAtATime(t *testing.T) {
	other := near()
	other.Address, other.RTT = at(3), ms
	slow := near()
	slow.Workers = 8
	w := &world{table: table(slow, other), service: []time.Duration{4 * ms, 4 * ms}, rtt: []time.Duration{0, ms}}
	w.run(0, time.Second, 200)
	w.service[0] = 40 * ms
	w.run(time.Second, time.Second, 200)
	for k := range 20 {
		slow.Service += 40 * time.Microsecond // as an average would
		w.table.Set([]filterapi.RouteEndpoint{slow, other})
		w.picked = [2]int{}
		w.run(time.Duration(2+k)*time.Second, time.Second, 200)
		if w.picked[0] > 2 {
			t.Errorf("in second %d it gets %d of 200", 2+k, w.picked[0])
		}
	}
}

// An endpoint that is no slower than the way to the next one is long gets what it can do.
func TestASlowEndpointThatIsStillTheSoonestServes(t *testing.T) {
	alone := near()
	alone.Workers = 1
	w := &world{table: table(alone, far()), workers: 1, service: []time.Duration{40 * ms, 4 * ms}, rtt: []time.Duration{0, 50 * ms}, reports: true}
	w.run(0, time.Second, 100)
	w.picked = [2]int{}
	w.run(time.Second, 4*time.Second, 100)
	// Its one worker, as it says, does 25 per second.
	if w.picked[0] < 60 || w.picked[0] > 110 {
		t.Errorf("of 400 it gets %d", w.picked[0])
	}
}

// What is expected may change by little or by much: how long answers took, which was seen, is
// believed more.
func TestWhatIsSaidAnewDoesNotHideASlowEndpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := near(), near()
		b.Address = at(2)
		table := table(a, b)
		for k := range 20 {
			table.End(table.Begin(0, time.Duration(k+1)*ms), time.Duration(k+41)*ms, true, nil)
		}
		a.Service = time.Duration(rapid.Int64Range(int64(ms), int64(12*ms)).Draw(t, "service"))
		table.Set([]filterapi.RouteEndpoint{a, b})
		if i, _ := table.Pick(100*ms, rapid.Uint64().Draw(t, "random")); i != 1 {
			t.Error("the slow endpoint is picked")
		}
	})
}

// An endpoint that is answered sooner than was thought at first is not slow by what is known
// then.
func TestAnEndpointIsNotSlowBecauseLessIsExpected(t *testing.T) {
	unknown, other := near(), near()
	unknown.Service, other.RTT, other.Address = 0, 2*ms, at(3)
	table := table(unknown, other)
	for k := range 3 {
		table.End(table.Begin(0, time.Duration(k+1)*ms), time.Duration(k+2)*ms, true, nil)
	}
	unknown.Service, other.Service = ms, ms
	table.Set([]filterapi.RouteEndpoint{unknown, other})
	if i := pick(t, table, 10*ms); i != 0 {
		t.Error("the far one is picked")
	}
}

// world serves what a table picks: endpoints with one request after the other on each
// of two workers.
type world struct {
	table   *route.Table
	service []time.Duration
	rtt     []time.Duration
	reports bool
	workers int // of endpoint 0, if not two
	free    [2][2]time.Duration
	flying  []flight
	picked  [2]int
}

type flight struct {
	sent route.Sent
	to   int
	done time.Duration
}

func (w *world) run(from, length time.Duration, perSecond int) {
	for k := range int(length.Seconds() * float64(perSecond)) {
		now := from + time.Duration(k)*time.Second/time.Duration(perSecond)
		w.land(now)
		i, _ := w.table.Pick(now, rand.Uint64())
		w.picked[i]++
		worker := 0
		if w.free[i][1] < w.free[i][0] && !(i == 0 && w.workers == 1) {
			worker = 1
		}
		w.free[i][worker] = max(w.free[i][worker], now+w.rtt[i]/2) + w.service[i]
		w.flying = append(w.flying, flight{w.table.Begin(i, now), i, w.free[i][worker] + w.rtt[i]/2})
	}
}

func (w *world) land(now time.Duration) {
	left := w.flying[:0]
	for _, f := range w.flying {
		if f.done > now {
			left = append(left, f)
			continue
		}
		var load *route.Load
		if w.reports {
			load = &route.Load{Workers: cmp.Or(w.workers, 2), Service: w.service[f.to]}
		}
		w.table.End(f.sent, f.done, true, load)
	}
	w.flying = left
}

// Of two endpoints whose workers are as many as have work on average, one is known to have a
// worker free this moment. The other may have one, or a queue.
func TestWhatIsKnownToHaveRoomIsPreferred(t *testing.T) {
	full := func(address netip.AddrPort) filterapi.RouteEndpoint {
		return filterapi.RouteEndpoint{
			Address: address, Expected: filterapi.Expected{Service: 4 * ms, Workers: 8, Others: 7},
		}
	}
	table := table(full(at(1)), full(at(2)))
	now := time.Minute
	table.Hear(0, 0, route.Load{InFlight: 7, Workers: 8})
	table.Hear(1, now, route.Load{InFlight: 7, Workers: 8})
	for range 20 {
		if i := pick(t, table, now); i != 1 {
			t.Fatal("the endpoint is picked of which nothing was heard for a minute")
		}
	}
}

// What was heard of a queue counts for as long as a queue lasts.
func TestWhatWasHeardIsForgotten(t *testing.T) {
	table := table(near(), far())
	table.Hear(0, 0, route.Load{InFlight: 40, Workers: 2})
	if i := pick(t, table, ms); i != 1 {
		t.Error("the near endpoint is picked a millisecond after it had a long queue")
	}
	if i := pick(t, table, time.Second); i != 0 {
		t.Error("the far endpoint is picked a second after the near one had a long queue")
	}
}

// An endpoint that no longer answers at all gets no further requests, though Envoy has not
// found out yet.
func TestASilentEndpointIsLeftAlone(t *testing.T) {
	table := table(near(), far())
	for k := range 2 {
		table.Begin(0, time.Duration(k)*ms)
	}
	if i := pick(t, table, 300*ms); i != 1 {
		t.Error("it is picked after 300 ms of silence")
	}
	for k := range 100 { // it is tried for its turn, not for good
		sent := table.Begin(1, 300*ms+time.Duration(k)*ms)
		table.End(sent, 354*ms+time.Duration(k)*ms, true, nil)
	}
	if i := pick(t, table, time.Second); i != 1 {
		t.Error("it is picked after a second of silence")
	}
}

// An endpoint that has answered later requests is not silent because of an older one: that takes its time,
// also when no others come for a while.
func TestALongRequestIsNoSilence(t *testing.T) {
	table := table(near(), far())
	long := table.Begin(0, 0)
	table.End(table.Begin(0, ms), 6*ms, true, nil)
	if i := pick(t, table, time.Minute); i != 0 {
		t.Error("it is not picked although it has answered all else")
	}
	table.Over(long)
	if i := pick(t, table, time.Minute); i != 0 {
		t.Error("it is not picked when it has no request")
	}
}

// An endpoint whose way was cut has requests again some time after those have failed that were on the way,
// whatever it had before.
func TestALongRequestKeepsNoEndpointSilent(t *testing.T) {
	table := table(near(), far())
	table.Begin(0, 0)
	table.End(table.Begin(0, ms), 6*ms, true, nil)
	lost := table.Begin(0, 10*ms)
	if i := pick(t, table, time.Second); i != 1 {
		t.Error("it is picked while it is silent")
	}
	table.End(lost, 12*time.Second, false, nil)
	if i := pick(t, table, time.Minute); i != 0 {
		t.Error("it is not tried again a minute after")
	}
}

func TestWhatIsEjectedIsNeverPicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := table(endpoints(t)...)
		n := table.Len()
		out := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "out")
		table.Eject(func(i int) bool { return out[i] })
		left := false
		for _, o := range out {
			left = left || !o
		}
		for range 20 {
			i, ok := table.Pick(0, rapid.Uint64().Draw(t, "random"))
			if ok != left {
				t.Fatalf("picked is %v, %v are out", ok, out)
			}
			if ok && out[i] {
				t.Fatalf("%d is picked", i)
			}
			if ok {
				table.Begin(i, 0)
			}
		}
	})
}

// Whatever is said of endpoints and by them, in whatever order and at whatever time, one of
// them is picked.
func TestWhateverIsSaidOneIsPicked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := table(endpoints(t)...)
		var flying []route.Sent
		t.Repeat(map[string]func(*rapid.T){
			"pick": func(t *rapid.T) {
				now := time.Duration(rapid.Int64().Draw(t, "now"))
				i, ok := table.Pick(now, rapid.Uint64().Draw(t, "random"))
				if ok != (table.Len() > 0) || ok && (i < 0 || i >= table.Len()) {
					t.Fatalf("picked %d, %v of %d", i, ok, table.Len())
				}
				if ok {
					flying = append(flying, table.Begin(i, now))
				}
			},
			"end": func(t *rapid.T) {
				if len(flying) == 0 {
					t.Skip("nothing is in flight")
				}
				k := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
				table.End(flying[k], time.Duration(rapid.Int64().Draw(t, "now")), rapid.Bool().Draw(t, "answered"), load(t))
				flying = append(flying[:k], flying[k+1:]...)
			},
			"hear": func(t *rapid.T) {
				if table.Len() > 0 {
					table.Hear(rapid.IntRange(0, table.Len()-1).Draw(t, "which"), time.Duration(rapid.Int64().Draw(t, "now")), *load(t))
				}
			},
			"set": func(t *rapid.T) { table.Set(endpoints(t)) },
		})
	})
}

func load(t *rapid.T) *route.Load {
	return &route.Load{InFlight: rapid.Int().Draw(t, "in flight"), Workers: rapid.Int().Draw(t, "workers")}
}

func endpoints(t *rapid.T) []filterapi.RouteEndpoint {
	n := rapid.OneOf(rapid.IntRange(0, 4), rapid.IntRange(10, 40)).Draw(t, "endpoints")
	list := make([]filterapi.RouteEndpoint, n)
	for i := range list {
		list[i] = filterapi.RouteEndpoint{Address: at(i), Weight: rapid.Uint32().Draw(t, "weight"),
			Expected: filterapi.Expected{
				RTT:     time.Duration(rapid.Int64().Draw(t, "rtt")),
				Service: time.Duration(rapid.Int64().Draw(t, "service")),
				Workers: rapid.SampledFrom([]float64{0, 1, 2.5, -1, math.NaN(), math.Inf(1)}).Draw(t, "workers"),
				Others:  rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1)}).Draw(t, "others")}}
	}
	return list
}

// Endpoints that are alike get alike.
func TestEqualEndpointsShare(t *testing.T) {
	for _, n := range []int{3, 30} {
		list := make([]filterapi.RouteEndpoint, n)
		for i := range list {
			list[i] = near()
			list[i].Address = at(i)
		}
		table, counts := table(list...), make([]int, n)
		for range 1000 * n {
			i, _ := table.Pick(0, rand.Uint64())
			counts[i]++
		}
		for i, c := range counts {
			if n <= 3 && (c < 800 || c > 1200) {
				t.Errorf("%d of %d gets %d", i, n, c)
			}
		}
	}
}

// What has been seen of an endpoint outlives a new list; answers of one that is gone count
// for none.
func TestANewListKeepsWhatWasSeen(t *testing.T) {
	table := table(near(), far())
	var sent []route.Sent
	for range 100 {
		sent = append(sent, table.Begin(0, 0))
	}
	table.Set([]filterapi.RouteEndpoint{far(), near()})
	if i := pick(t, table, 0); i != 0 {
		t.Error("requests in flight are forgotten")
	}
	table.Set([]filterapi.RouteEndpoint{far()})
	for _, s := range sent {
		table.End(s, ms, true, nil)
	}
	if i := pick(t, table, ms); i != 0 {
		t.Error("one that is gone is picked")
	}
}

func TestPickingAllocatesNothing(t *testing.T) {
	list := make([]filterapi.RouteEndpoint, 100)
	for i := range list {
		list[i] = far()
		list[i].Address, list[i].Weight = at(i), uint32(i)
	}
	table := table(list...)
	now := time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() {
		now += ms
		i, _ := table.Pick(now, uint64(now)*0x9e3779b97f4a7c15)
		load := route.Load{InFlight: 1, Workers: 2}
		table.End(table.Begin(i, now), now+ms, true, &load)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{3, 12, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := make([]filterapi.RouteEndpoint, n)
			for i := range list {
				list[i] = far()
				list[i].Address, list[i].Weight, list[i].RTT = at(i), uint32(i), time.Duration(i)*ms
			}
			table := table(list...)
			now := time.Duration(0)
			for b.Loop() {
				now += ms
				i, _ := table.Pick(now, uint64(now)*0x9e3779b97f4a7c15)
				table.End(table.Begin(i, now), now+ms, true, nil)
			}
		})
	}
}
