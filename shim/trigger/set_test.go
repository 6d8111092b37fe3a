package trigger_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/trigger"
	"github.com/headstart-mesh/headstart/shim/trigger/triggertest"
)

var spans = tracetest.NewSpanRecorder()

func TestMain(m *testing.M) {
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	goleak.VerifyTestMain(m)
}

func TestMemory(t *testing.T) {
	triggertest.Run(t, func(*testing.T) triggertest.Rig { return triggertest.NewMemory(20 * time.Millisecond) })
}

const (
	readyTimeout   = 5 * time.Second
	requestTimeout = 20 * time.Second
)

// gateway answers as a node's own does, and remembers what it was asked.
type gateway struct {
	answer func(w http.ResponseWriter, r *http.Request)

	mu          sync.Mutex
	got         map[string]int // by entry
	now, widest int
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("ce-id")
	g.mu.Lock()
	g.got[id]++
	g.now++
	g.widest = max(g.widest, g.now)
	g.mu.Unlock()
	defer func() { g.mu.Lock(); g.now--; g.mu.Unlock() }()
	if g.answer != nil {
		g.answer(w, r)
	}
}

func (g *gateway) calls() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.got)
}

// events are told to the operator.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Event(m *nodeapi.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, m.GetReason()+" "+m.GetFunction()+": "+m.GetMessage())
}

func (e *events) told() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.all)
}

// rig is one node that consumes a stream in memory.
type rig struct {
	*trigger.Set
	gateway  *gateway
	stream   *triggertest.Memory
	events   *events
	registry *prometheus.Registry
}

func onStream(stream *triggertest.Memory, node string, answer func(http.ResponseWriter, *http.Request)) *rig {
	r := &rig{gateway: &gateway{answer: answer, got: map[string]int{}}, stream: stream, events: &events{}, registry: prometheus.NewRegistry()}
	r.Set = trigger.New(trigger.Config{Gateway: r.gateway, Node: node, Process: "p", Events: r.events, Metrics: trigger.NewMetrics(r.registry), Log: slog.New(slog.DiscardHandler),
		Function: func(string) *nodeapi.Function {
			return &nodeapi.Function{Name: triggertest.Function, Hosts: []string{"fire.default"}, ReadyTimeout: durationpb.New(readyTimeout), RequestTimeout: durationpb.New(requestTimeout)}
		},
		Open: func(_ *nodeapi.Trigger, consumer string) (trigger.Stream, error) { return stream.Open(consumer), nil }})
	return r
}

func newRig(answer func(http.ResponseWriter, *http.Request)) *rig {
	return onStream(triggertest.NewMemory(time.Second), "edge-1", answer)
}

func (r *rig) consume() { r.Set.Set([]*nodeapi.Trigger{wanted()}) }

func wanted() *nodeapi.Trigger {
	return &nodeapi.Trigger{Function: triggertest.Function, Store: "queue", Stream: source, Tries: 3}
}

func (r *rig) close(t *testing.T) {
	t.Helper()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// pass lets the bubble's time go by, and what is due then happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// clean wants a stream in which nothing is left.
func clean(t *testing.T, m *triggertest.Memory) {
	t.Helper()
	if p := m.Pending(t); len(p) != 0 {
		t.Errorf("still pending: %v", p)
	}
	if c := m.Consumers(t); len(c) != 0 {
		t.Errorf("still there: %q", c)
	}
}

func (r *rig) counted(t *testing.T, want string) {
	t.Helper()
	text := "# HELP headstart_trigger_entries_total Entries of streams, by what became of them: delivered, retried, dead or returned.\n# TYPE headstart_trigger_entries_total counter\n" + want
	if err := testutil.GatherAndCompare(r.registry, strings.NewReader(text), "headstart_trigger_entries_total"); err != nil {
		t.Error(err)
	}
}

func TestEntriesAreDeliveredAndAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type request struct {
			Method, Host, Path, Type, Function, Body string
			Named                                    bool
		}
		var got request
		r := newRig(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			id, err := hex.DecodeString(r.Header.Get("x-headstart-request"))
			got = request{r.Method, r.Host, r.URL.Path, r.Header.Get("ce-type"), r.Header.Get("x-headstart-function"), string(body), err == nil && len(id) == 16}
			w.WriteHeader(http.StatusAccepted)
		})
		r.consume()
		id := r.stream.Put(map[string]string{"data": "hello", "type": "greeting"})
		synctest.Wait()
		if d := cmp.Diff(request{"POST", "fire.default", "/", "greeting", triggertest.Function, "hello", true}, got); d != "" {
			t.Error(d)
		}
		if p := r.stream.Pending(t); len(p) != 0 {
			t.Errorf("still pending: %v", p)
		}
		r.close(t)
		clean(t, r.stream)
		if d := cmp.Diff(map[string]int{id: 1}, r.gateway.calls()); d != "" {
			t.Error(d)
		}
		r.counted(t, "headstart_trigger_entries_total{function=\"default/fire\",result=\"delivered\"} 1\n")
	})
}

// No more are read than can be delivered: what a slow function cannot take stays in the
// stream for others.
func TestASlowFunctionHoldsTheStreamBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newRig(func(http.ResponseWriter, *http.Request) { <-answer })
		for range 5 * trigger.AtOnce {
			r.stream.Put(nil)
		}
		r.consume()
		synctest.Wait()
		if n := len(r.stream.Pending(t)); n != trigger.AtOnce {
			t.Errorf("%d entries were taken", n)
		}
		close(answer)
		synctest.Wait()
		pass(time.Second)
		if n := len(r.gateway.calls()); n != 5*trigger.AtOnce || r.gateway.widest != trigger.AtOnce {
			t.Errorf("%d were delivered, at most %d at once", n, r.gateway.widest)
		}
		r.close(t)
		clean(t, r.stream)
	})
}

// What entries take of the node's memory is bounded, however large they are: the others wait in
// the stream.
func TestLargeEntriesAreNotAllHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newRig(func(http.ResponseWriter, *http.Request) { <-answer })
		half := strings.Repeat("x", trigger.TakeMost/2-len("data"))
		most := int(trigger.BytesInHand / (trigger.TakeMost / 2))
		for range most + 3 {
			r.stream.Put(map[string]string{"data": half})
		}
		r.consume()
		pass(time.Minute)
		if n := len(r.stream.Pending(t)); n != most {
			t.Errorf("%d entries are held, want %d", n, most)
		}
		close(answer)
		pass(time.Minute)
		if n := len(r.gateway.calls()); n != most+3 {
			t.Errorf("%d were delivered", n)
		}
		r.close(t)
		clean(t, r.stream)
	})
}

// An entry that is larger than a node takes goes to the dead letters at once, and the others to the
// function.
func TestAnEntryThatIsTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(http.ResponseWriter, *http.Request) {})
		large := r.stream.Put(map[string]string{"data": strings.Repeat("x", trigger.TakeMost)})
		small := r.stream.Put(map[string]string{"data": "x"})
		r.consume()
		pass(time.Second)
		if d := cmp.Diff(map[string]int{small: 1}, r.gateway.calls()); d != "" {
			t.Error(d)
		}
		letters := r.stream.Dead(t)
		if len(letters) != 1 || letters[0]["headstart-id"] != large || letters[0]["headstart-tries"] != "1" || letters[0]["headstart-reason"] != "EntryTooLarge" || letters[0]["data"] != "" {
			t.Errorf("dead letters: %.1000v", letters)
		}
		r.close(t)
		clean(t, r.stream)
	})
}

// An entry that fails is tried as often as its trigger says, with pauses, and then is a
// dead letter; the others go on meanwhile.
func TestAPoisonedEntryIsADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		r := newRig(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("ce-subject") == "poison" {
				at = append(at, time.Since(began).Round(time.Second))
				w.WriteHeader(http.StatusInternalServerError)
			}
		})
		r.consume()
		poison := r.stream.Put(map[string]string{"subject": "poison"})
		for range 10 {
			r.stream.Put(nil)
		}
		synctest.Wait()
		if d := cmp.Diff(map[string]string{poison: "edge-1/p/1"}, r.stream.Pending(t)); d != "" {
			t.Error(d)
		}
		pass(time.Minute)
		if d := cmp.Diff([]time.Duration{0, time.Second, 3 * time.Second}, at); d != "" {
			t.Errorf("tried at (-want +got):\n%s", d)
		}
		letters := r.stream.Dead(t)
		if len(letters) != 1 || letters[0]["headstart-id"] != poison || letters[0]["headstart-tries"] != "3" || letters[0]["headstart-reason"] != "FunctionRefused" || letters[0]["subject"] != "poison" {
			t.Errorf("dead letters: %v", letters)
		}
		want := []string{"DeadLettered default/fire: entry " + poison + " is among the dead letters: FunctionRefused: the function answered 500 Internal Server Error"}
		if d := cmp.Diff(want, r.events.told()); d != "" {
			t.Error(d)
		}
		r.close(t)
		clean(t, r.stream)
		r.counted(t, `headstart_trigger_entries_total{function="default/fire",result="dead"} 1
headstart_trigger_entries_total{function="default/fire",result="delivered"} 10
headstart_trigger_entries_total{function="default/fire",result="retried"} 2
`)
	})
}

// What keeps all entries from the function costs none of them a try.
func TestAnOutageBuriesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mended := time.Now().Add(time.Hour)
		r := newRig(func(w http.ResponseWriter, _ *http.Request) {
			if time.Now().Before(mended) {
				problem.Write(w, problem.New(http.StatusServiceUnavailable, "NoNode", "", "no node is connected"), triggertest.Function, "")
			}
		})
		r.consume()
		for range 2 * trigger.InHand {
			r.stream.Put(nil)
		}
		pass(30 * time.Minute)
		if n := len(r.stream.Pending(t)); n != trigger.InHand {
			t.Errorf("%d entries were taken", n)
		}
		pass(31 * time.Minute)
		r.close(t)
		clean(t, r.stream)
		if n := len(r.gateway.calls()); n != 2*trigger.InHand || len(r.stream.Dead(t)) != 0 {
			t.Errorf("%d were delivered, %d are dead", n, len(r.stream.Dead(t)))
		}
	})
}

// An answer that breaks off, or a handler that panics, is no answer.
func TestABrokenAnswerIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newRig(func(w http.ResponseWriter, _ *http.Request) {
			switch tries++; tries {
			case 1:
				w.WriteHeader(http.StatusOK)
				panic(http.ErrAbortHandler)
			case 2:
				panic("a fault")
			}
		})
		r.consume()
		r.stream.Put(nil)
		pass(time.Minute)
		r.close(t)
		clean(t, r.stream)
		if tries != 3 {
			t.Errorf("tried %d times", tries)
		}
	})
}

// Entries of a node that was killed are another's once they have rested, and only then.
func TestEntriesOfADeadNodeAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := triggertest.NewMemory(time.Second)
		dead := stream.Open("dead/1/1")
		var ids []string
		for range 40 {
			ids = append(ids, stream.Put(nil))
		}
		if _, err := dead.Take(t.Context(), 30, time.Hour); err != nil {
			t.Fatal(err)
		}
		r := onStream(stream, "edge-2", nil)
		r.consume()
		pass(readyTimeout + requestTimeout)
		if n := len(r.gateway.calls()); n != 10 {
			t.Errorf("%d were delivered while the other node may have been alive", n)
		}
		pass(trigger.IdleGrace + 2*time.Second)
		r.close(t)
		want := map[string]int{}
		for _, id := range ids {
			want[id] = 1
		}
		if d := cmp.Diff(want, r.gateway.calls()); d != "" {
			t.Error(d)
		}
		if p := stream.Pending(t); len(p) != 0 {
			t.Errorf("still pending: %v", p)
		}
	})
}

// A stream that is away is told of once. What was answered meanwhile is acknowledged when it
// is back, and not delivered again.
func TestAStreamThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newRig(func(http.ResponseWriter, *http.Request) { <-answer })
		r.consume()
		id := r.stream.Put(nil)
		synctest.Wait()
		r.stream.SetAway(true)
		close(answer)
		pass(10 * time.Second)
		if d := cmp.Diff(map[string]string{id: "edge-1/p/1"}, r.stream.Pending(t)); d != "" {
			t.Error(d)
		}
		r.stream.SetAway(false)
		second := r.stream.Put(nil)
		pass(10 * time.Second)
		if d := cmp.Diff(map[string]int{id: 1, second: 1}, r.gateway.calls()); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"TriggerUnavailable default/fire: the stream cannot be read: the stream is away"}, r.events.told()); d != "" {
			t.Error(d)
		}
		r.close(t)
		clean(t, r.stream)
	})
}

// A node that ends waits for what is being delivered, and gives the rest to others at once.
func TestACleanEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		r := newRig(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("ce-subject") == "fails" {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			<-answer
		})
		r.consume()
		slow, fails := r.stream.Put(nil), r.stream.Put(map[string]string{"subject": "fails"})
		synctest.Wait()
		r.Stop()
		synctest.Wait()
		other := onStream(r.stream, "edge-2", nil)
		other.consume()
		synctest.Wait()
		if d := cmp.Diff(map[string]int{fails: 1}, other.gateway.calls()); d != "" {
			t.Errorf("the other node got (-want +got):\n%s", d)
		}
		after := r.stream.Put(nil)
		close(answer)
		r.close(t)
		synctest.Wait()
		other.close(t)
		clean(t, r.stream)
		if d := cmp.Diff(map[string]int{slow: 1, fails: 1}, r.gateway.calls()); d != "" {
			t.Errorf("the node that ends got (-want +got):\n%s", d)
		}
		if other.gateway.calls()[after] != 1 {
			t.Error("the other node did not go on")
		}
	})
}

// A delivery that takes too long is broken off, and its entry stays pending for others.
func TestAnEndThatMustBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			problem.Write(w, problem.New(http.StatusBadRequest, "ClientGone", "", ""), "", "")
		})
		r.consume()
		id := r.stream.Put(nil)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := r.Close(ctx); err == nil {
			t.Error("nothing was said of a delivery that was broken off")
		}
		got, err := r.stream.Open("other").Take(t.Context(), 1, time.Second)
		if err != nil || len(got) != 1 || got[0].ID != id || got[0].Tries != 1 {
			t.Errorf("another takes %v, %v", got, err)
		}
	})
}

// Triggers come, change and go; a consumer that ends takes nothing from the one after it.
func TestTriggersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(nil)
		r.consume()
		r.consume() // the same again
		synctest.Wait()
		if d := cmp.Diff([]string{"edge-1/p/1"}, r.stream.Consumers(t)); d != "" {
			t.Error(d)
		}
		changed := wanted()
		changed.Tries = 7
		r.Set.Set([]*nodeapi.Trigger{changed})
		synctest.Wait()
		if d := cmp.Diff([]string{"edge-1/p/2"}, r.stream.Consumers(t)); d != "" {
			t.Error(d)
		}
		r.Set.Set(nil)
		synctest.Wait()
		r.stream.Put(nil)
		pass(time.Minute)
		if len(r.gateway.calls()) != 0 {
			t.Error("an entry was delivered by nobody")
		}
		if n := testutil.CollectAndCount(r.registry, "headstart_trigger_lag"); n != 0 {
			t.Errorf("%d functions still have a lag here", n)
		}
		r.close(t)
		r.consume() // too late
		r.close(t)
		r.stream.Put(nil)
	})
}

// A consumer that ends tells of its backlog until then, and nothing stays of it.
func TestNoBacklogStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(func(w http.ResponseWriter, _ *http.Request) { <-time.After(time.Minute) })
		r.consume()
		r.stream.Put(nil)
		synctest.Wait()
		r.Set.Set(nil)
		pass(2 * time.Minute)
		if n := testutil.CollectAndCount(r.registry, "headstart_trigger_lag"); n != 0 {
			t.Errorf("%d functions still have a lag here", n)
		}
		r.close(t)
	})
}

// Two nodes that consume one stream, and of which one ends every now and then, lose nothing.
func TestNothingIsLostBetweenNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := triggertest.NewMemory(time.Second)
		var mu sync.Mutex
		done := map[string]int{}
		answer := func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if len(done)%7 == 3 && done[r.Header.Get("ce-id")] == 0 {
				done[r.Header.Get("ce-id")] = -1
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			done[r.Header.Get("ce-id")] = 1
		}
		steady := onStream(stream, "edge-1", answer)
		steady.consume()
		var ids []string
		for round := range 20 {
			r := onStream(stream, fmt.Sprint("edge-", round), answer)
			r.consume()
			for range 30 {
				ids = append(ids, stream.Put(nil))
			}
			pass(300 * time.Millisecond)
			r.close(t)
		}
		pass(10 * time.Minute)
		steady.close(t)
		clean(t, stream)
		for _, id := range ids {
			if done[id] != 1 {
				t.Errorf("%s is lost", id)
			}
		}
	})
}

// A trace that an entry brings is continued; else the delivery is its root.
func TestADeliveryIsASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parent string
		r := newRig(func(_ http.ResponseWriter, r *http.Request) { parent = r.Header.Get("traceparent") })
		r.consume()
		const theirs = "0af7651916cd43dd8448eb211c80319c"
		id := r.stream.Put(map[string]string{"traceparent": "00-" + theirs + "-b7ad6b7169203331-01"})
		synctest.Wait()
		r.close(t)
		for _, s := range spans.Ended() {
			if s.SpanContext().TraceID().String() != theirs {
				continue
			}
			if want := "00-" + theirs + "-" + s.SpanContext().SpanID().String() + "-01"; s.Name() != "trigger" || parent != want {
				t.Errorf("span %s; the function got %s, want %s", s.Name(), parent, want)
			}
			got := map[string]string{}
			for _, a := range s.Attributes() {
				got[string(a.Key)] = a.Value.String()
			}
			if got["headstart.trigger.entry"] != id || got["headstart.trigger.try"] != "1" || got["faas.trigger"] != "pubsub" || got["headstart.function"] != triggertest.Function {
				t.Errorf("attributes %v", got)
			}
			return
		}
		t.Error("there is no span of the entry's trace")
	})
}

// Only another process of the same node is known to be gone.
func TestEarlierProcesses(t *testing.T) {
	gone := trigger.Earlier("edge-1", "b")
	for consumer, want := range map[string]bool{
		"edge-1/a/1": true, "edge-1/bb/1": true, "edge-1/b/2": false, "edge-10/a/1": false, "edge/1/a": false, "returned": false, "": false,
	} {
		if gone(consumer) != want {
			t.Errorf("%q is gone: %t", consumer, !want)
		}
	}
}
