package route_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/route"
)

// gateway has a table for each of its workers, and what they share.
type gateway struct {
	workers []*route.Table
	text    []byte
}

func newGateway(workers int, list ...filterapi.RouteEndpoint) *gateway {
	g := &gateway{}
	for w := range workers {
		g.workers = append(g.workers, table(list...))
		g.tell(w, ms, func(*route.Table) {}) // each has been here before
	}
	return g
}

// tell has a worker do something between reading and writing.
func (g *gateway) tell(worker int, now time.Duration, do func(*route.Table)) {
	t := g.workers[worker]
	t.Join(g.text, now)
	do(t)
	g.text = t.Append(nil, now)
	t.Told()
}

func (g *gateway) begin(worker, endpoint int, now time.Duration) (sent route.Sent) {
	g.tell(worker, now, func(t *route.Table) { sent = t.Begin(endpoint, now) })
	return sent
}

func (g *gateway) over(worker int, sent route.Sent, now time.Duration) {
	g.tell(worker, now, func(t *route.Table) { t.Over(sent) })
}

// picks is what a worker would pick, with what the others have told.
func (g *gateway) picks(t *testing.T, worker int, now time.Duration) (i int) {
	t.Helper()
	g.tell(worker, now, func(table *route.Table) { i = pick(t, table, now) })
	return i
}

// Whichever worker a request comes to, it goes where there is room: with the near endpoint's
// two workers and its queue full of the one's requests, the other goes far.
func TestWorkersSeeEachOthersRequests(t *testing.T) {
	g := newGateway(2, near(), far())
	now := time.Second
	var sent []route.Sent
	for range 60 {
		sent = append(sent, g.begin(0, 0, now))
	}
	if got := g.picks(t, 1, now); got != 1 {
		t.Errorf("worker 1 picks %d while the near endpoint is full", got)
	}
	for _, s := range sent {
		g.over(0, s, now)
	}
	if got := g.picks(t, 1, now); got != 0 {
		t.Errorf("worker 1 picks %d when the near endpoint is free again", got)
	}
}

// What one worker has seen of an endpoint that is slow, or full of others' requests, the
// others need not see themselves.
func TestWorkersHearOfEachOthersAnswers(t *testing.T) {
	now := time.Second
	for name, answer := range map[string]func(table *route.Table, s route.Sent){
		"failures": func(table *route.Table, s route.Sent) { table.Answered(s, now, false, nil) },
		"load": func(table *route.Table, s route.Sent) {
			table.Answered(s, now, true, &route.Load{InFlight: 100})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(2, near(), far())
			for range 20 {
				s := g.begin(0, 0, now)
				g.tell(0, now, func(table *route.Table) { answer(table, s); table.Over(s) })
			}
			if got := g.picks(t, 1, now); got != 1 {
				t.Errorf("worker 1 picks %d", got)
			}
			if got := g.picks(t, 1, now+time.Minute); got != 0 {
				t.Errorf("a minute later it picks %d", got)
			}
		})
	}
}

// A worker that ends in the middle of requests takes them with it when it begins anew.
func TestAWorkerThatBeginsAnewHasNoRequests(t *testing.T) {
	g := newGateway(2, near(), far())
	now := time.Second
	held := g.begin(1, 0, now)
	for range 60 {
		g.begin(0, 0, now)
	}
	g.workers[0] = table(near(), far())
	g.picks(t, 0, now+ms)
	if got := g.picks(t, 1, now+ms); got != 0 {
		t.Errorf("worker 1 picks %d: the requests of a worker that is gone still count", got)
	}
	for range 59 { // with the one that is held as many as before
		g.begin(1, 0, now+ms)
	}
	if got := g.picks(t, 0, now+ms); got != 1 {
		t.Errorf("worker 0 picks %d: it does not know of the other's requests", got)
	}
	g.over(1, held, now+ms)
}

// One that never comes back has its requests forgotten after a while.
func TestWhatNobodyEndsIsForgotten(t *testing.T) {
	g := newGateway(2, near(), far())
	for range 60 {
		g.begin(0, 0, time.Second)
	}
	if got := g.picks(t, 1, time.Minute); got != 1 {
		t.Errorf("after a minute, worker 1 picks %d", got)
	}
	if got := g.picks(t, 1, time.Hour); got != 0 {
		t.Errorf("after an hour, worker 1 picks %d", got)
	}
}

// However requests come and go, also while lists change, nothing is left of them when all are
// over, and what is shared is of those endpoints only that were in use lately.
func TestNothingIsLeftOfRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lists := [][]filterapi.RouteEndpoint{
			{near(), far()}, {far(), near()}, {far(), {Address: at(3), Expected: filterapi.Expected{Service: ms}}},
		}
		g := newGateway(3, lists[0]...)
		now := time.Second
		flying := make([][]route.Sent, len(g.workers))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * ms
			w := rapid.IntRange(0, len(g.workers)-1).Draw(t, "worker")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				flying[w] = append(flying[w], g.begin(w, rapid.IntRange(0, 1).Draw(t, "endpoint"), now))
			case 2:
				if n := len(flying[w]); n > 0 {
					g.over(w, flying[w][n-1], now)
					flying[w] = flying[w][:n-1]
				}
			case 3:
				g.workers[w].Set(rapid.SampledFrom(lists).Draw(t, "list"))
			}
		}
		for w := range flying {
			g.workers[w].Set(lists[0])
			for _, s := range flying[w] {
				g.over(w, s, now)
			}
		}
		now += time.Minute
		for w := range flying { // each has a look
			g.tell(w, now, func(*route.Table) {})
		}
		for w := range flying {
			g.tell(w, now, func(*route.Table) {})
		}
		if len(g.text) != 8 {
			t.Fatalf("%d bytes are left: %x", len(g.text), g.text)
		}
	})
}

// Workers that wrote at the same time join each other's text and write again; nothing is
// counted twice.
func TestAWorkerThatIsLateWritesAgain(t *testing.T) {
	g := newGateway(2, near(), far())
	now := time.Second
	g.begin(0, 1, now)
	late := g.workers[1]
	late.Join(g.text, now)
	sent := late.Begin(0, now)
	_ = late.Append(nil, now) // and meanwhile
	g.begin(0, 0, now)
	late.Join(g.text, now)
	g.text = late.Append(nil, now)
	late.Told()
	g.over(1, sent, now)
	g.begin(0, 0, now) // the near endpoint's two workers are in use, and no more
	if i, ok := g.workers[1].Pick(now, 0); !ok || i != 0 {
		t.Errorf("it picks %d", i)
	}
}

// news has a worker tell what became of a request if it has to.
func (g *gateway) news(worker int, sent route.Sent, now time.Duration) {
	if g.workers[worker].News(sent) {
		g.tell(worker, now, func(*route.Table) {})
	}
}

// known is how many requests of an only endpoint a worker knows of that has none itself.
func (g *gateway) known(worker int, now time.Duration) int {
	t := g.workers[worker]
	t.Join(g.text, now)
	text := t.Append(nil, now)
	if len(text) <= 8+4 { // the text's own number, and the endpoint's
		return 0
	}
	return int(binary.LittleEndian.Uint32(text[8+4:]))
}

// However requests come and go, who reads what was told is wrong by at most a sixteenth of the
// endpoint's workers for each worker of the gateway, which is by nothing if these are few; and
// nothing is left when all are over.
func TestWhatIsNotToldMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := near()
		workers := rapid.SampledFrom([]int{1, 2, 15, 16, 40, 100, 1000}).Draw(t, "workers")
		e.Workers = float64(workers)
		g := newGateway(3, e)
		now := time.Second
		var flying [2][]route.Sent
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * ms
			w := rapid.IntRange(0, 1).Draw(t, "worker")
			var sent route.Sent
			if n := len(flying[w]); n > 0 && rapid.Bool().Draw(t, "over") {
				sent, flying[w] = flying[w][n-1], flying[w][:n-1]
				g.workers[w].Over(sent)
			} else {
				sent = g.workers[w].Begin(0, now)
				flying[w] = append(flying[w], sent)
			}
			g.news(w, sent, now)
			if wrong := g.known(2, now) - len(flying[0]) - len(flying[1]); max(wrong, -wrong) > 2*(workers/16) {
				t.Fatalf("what is known is wrong by %d", wrong)
			}
		}
		for w := range flying {
			for _, sent := range flying[w] {
				g.workers[w].Over(sent)
				g.news(w, sent, now)
			}
		}
		if n := g.known(2, now); n != 0 {
			t.Fatalf("%d requests are left", n)
		}
	})
}

// An endpoint that becomes slow, or has many of others' requests, is told of however much room
// it has, and that it is well again, too.
func TestWhatMakesADifferenceIsTold(t *testing.T) {
	now := time.Second
	for name, answer := range map[string]func(table *route.Table, s route.Sent){
		"failures": func(table *route.Table, s route.Sent) {
			for range 3 {
				table.Answered(s, now, false, nil)
			}
		},
		"load": func(table *route.Table, s route.Sent) { table.Answered(s, now, true, &route.Load{InFlight: 5000}) },
	} {
		t.Run(name, func(t *testing.T) {
			wide := near()
			wide.Workers = 64
			g := newGateway(2, wide, far())
			s := g.begin(0, 0, now)
			answer(g.workers[0], s)
			g.workers[0].Over(s)
			g.news(0, s, now)
			g.workers[1].Join(g.text, now)
			if got := pick(t, g.workers[1], now); got != 1 {
				t.Errorf("worker 1 picks %d", got)
			}
			if g.workers[1].Roomy(0, now) {
				t.Error("it takes the endpoint for one where nothing has to be known")
			}
		})
	}
}

// Any text is read without harm.
func FuzzJoin(f *testing.F) {
	g := newGateway(1, near(), far())
	g.begin(0, 0, time.Second)
	f.Add(g.text)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		table := table(near(), far())
		table.Join(text, time.Second)
		table.Append(nil, time.Second)
		table.Told()
		table.Join(text, time.Second)
		i := pickNow(t, table)
		table.End(table.Begin(i, time.Second), 2*time.Second, true, nil)
		pickNow(t, table)
		if again := table.Append(nil, math.MaxInt64); len(again) > 8+2*32 {
			t.Errorf("%d bytes for two endpoints", len(again))
		}
	})
}

func pickNow(t *testing.T, table *route.Table) int {
	t.Helper()
	i, ok := table.Pick(time.Second, 1)
	if !ok {
		t.Fatal("nothing is picked")
	}
	return i
}
