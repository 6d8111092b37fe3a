package workflow_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/attempt"
	calls "github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow"
)

// pace is how long a function works.
const pace = 10 * time.Millisecond

// ahead is a node whose functions work for a while, and may do so before their turn. Each function has an instance for each request.
type ahead struct {
	*workflow.Owner
	t testing.TB
	// answers say what functions answer, by their names without a namespace.
	answers map[string]func(body string) string
	// never are those that work in their turn only; loses tells of an attempt that it loses its instance.
	never map[string]bool
	paces map[string]time.Duration // of functions that work for longer
	loses func() bool
	// counts are those that answer how often they have worked, by a store. committing is called when an attempt's part of it is to count.
	counts     map[string]bool
	committing func() error
	together   int // so many have counted in one step
	// unread: what an attempt has read is not compared. unfenced: what it does counts at once. unasked: an attempt has another input than
	// the run believes, as if that were not compared.
	unread, unfenced, unasked bool

	busy float64     // of the processors
	full func() bool // they are, whatever busy is

	redis *redis.Client // of records; nil: there is none
	notes bool          // they are of the store that functions write
	// fails says why a function cannot be asked.
	fails func(name string) error

	mu       sync.Mutex
	attempts []*attempt.Attempt
	events   []*nodeapi.Event
	began    []string       // what functions have got, in its order
	store    map[string]int // how often functions have worked
}

// count is an attempt's part of the store.
type count struct {
	node *ahead
	name string
	read int
}

func (c *count) Commit(_ context.Context, notes []*attempt.Note, following []attempt.Effect) (counted int, noted bool, err error) {
	if err := c.node.committing(); err != nil {
		return 0, false, err
	}
	if noted = notes[0] != nil && c.node.notes; noted && c.node.owner(notes[0]) != notes[0].Owner {
		return 0, false, attempt.ErrFenced
	}
	if notes[0] != nil && !noted {
		following = nil
	}
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	for _, e := range append([]attempt.Effect{c}, following...) {
		c := e.(*count)
		if !c.node.unread && c.node.store[c.name] != c.read {
			break
		}
		c.node.store[c.name] = c.read + 1
		if noted {
			c.node.note(notes[counted])
		}
		counted++
	}
	if counted == 0 {
		return 0, false, attempt.ErrSquashed
	}
	c.node.together = max(c.node.together, counted)
	return counted, noted, nil
}

// owner is who has a note's run.
func (n *ahead) owner(of *attempt.Note) string {
	return n.redis.HGet(n.t.Context(), of.Record, "owner").Val()
}

// note writes one, if it says something.
func (n *ahead) note(of *attempt.Note) {
	if of.Field == "" {
		return
	}
	if err := n.redis.HSet(n.t.Context(), of.Record, of.Field, of.Value).Err(); err != nil {
		n.t.Error(err)
	}
}

// early is the key of a request's attempt in its context.
type early struct{}

// worked is how often a function has worked before.
func (n *ahead) worked(ctx context.Context, name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	times := n.store[name]
	a, is := ctx.Value(early{}).(*attempt.Attempt)
	if !is || n.unfenced || !a.Affect(&count{n, name, times}) && a.InTurn() {
		n.store[name]++
	}
	return times
}

func newAhead(t testing.TB, answers map[string]func(body string) string) *ahead {
	n := &ahead{t: t, answers: answers, never: map[string]bool{}, counts: map[string]bool{}, store: map[string]int{},
		loses: func() bool { return false }, committing: func() error { return nil }, fails: func(string) error { return nil }}
	n.Owner = workflow.New(workflow.Config{Metrics: workflow.NewMetrics(prometheus.NewRegistry()),
		Outside: func(string, *url.URL) (http.RoundTripper, string) { return nil, "" },
		Busy: func() float64 {
			if n.full != nil && n.full() {
				return 1
			}
			return n.busy
		},
		Event: func(e *nodeapi.Event) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, e)
		},
		Store: func(string, string) (*redis.Client, error) {
			if n.redis == nil {
				return nil, problem.New(http.StatusServiceUnavailable, problem.ReasonStateUnavailable, "", "there is none")
			}
			return n.redis, nil
		},
		Find: func(_ context.Context, host string) (*nodeapi.Function, error) {
			name := strings.TrimSuffix(host, ".shop")
			if answers[name] == nil {
				return nil, problem.New(http.StatusNotFound, problem.ReasonFunctionUnknown, "", "no such function is deployed")
			}
			return &nodeapi.Function{Name: "shop/" + name, Hosts: []string{host}, OneAtATime: true, RunsAhead: !n.never[name]}, nil
		}})
	t.Cleanup(n.Close)
	return n
}

// ServeHTTP is the node's ingress: it has a function work.
func (n *ahead) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Error(err)
	}
	name := strings.TrimPrefix(r.Header.Get(filterapi.HeaderFunction), "shop/")
	n.mu.Lock()
	n.began = append(n.began, name+" "+string(body))
	n.mu.Unlock()
	if err := n.fails(name); err != nil {
		w.(interface{ Failed(error) }).Failed(err)
		return
	}
	answer := ""
	if n.counts[name] {
		answer = fmt.Sprintf(`{"n":%d,"of":%q}`, n.worked(r.Context(), name), name)
	}
	select {
	case <-time.After(cmp.Or(n.paces[name], pace)):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer == "" {
		answer = n.answers[name](string(body))
	}
	_, _ = io.WriteString(w, answer)
}

// ahead has a function work before its turn.
func (n *ahead) ahead(a *attempt.Attempt, r *http.Request, keep calls.Keep) calls.Answer {
	ctx, cancel := context.WithCancel(context.WithValue(context.WithoutCancel(r.Context()), early{}, a))
	var working sync.WaitGroup
	defer working.Wait() // a function works on, no matter how little, when it is squashed: not beside the next run
	defer cancel()
	asked := r.Header
	if !a.Begin(cancel) {
		return calls.Answer{Failed: attempt.ErrSquashed}
	}
	n.mu.Lock()
	n.attempts = append(n.attempts, a)
	n.mu.Unlock()
	if n.unasked {
		r = httptest.NewRequest(r.Method, r.URL.String(), strings.NewReader(`{"n":1,"else":true}`))
		r.Header = asked.Clone()
	}
	done := make(chan calls.Answer, 1)
	working.Go(func() { done <- calls.Do(n, r.WithContext(ctx), keep) })
	if n.loses() && a.Squash() {
		return calls.Answer{Failed: attempt.ErrSquashed}
	}
	select {
	case answer := <-done:
		a.Answered()
		return answer
	case <-a.Squashed():
	case <-r.Context().Done():
		a.Squash()
	}
	return calls.Answer{Failed: attempt.ErrSquashed}
}

// wantSettled fails if an attempt was left that neither counts nor does not: it would keep its copies of a store.
func (n *ahead) wantSettled() {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, a := range n.attempts {
		if !a.InTurn() && !a.IsSquashed() {
			n.t.Fatalf("attempt %d of %d was left", i, len(n.attempts))
		}
	}
	n.attempts = nil
}

// run has a workflow answer a request, and returns how long that takes.
func (n *ahead) run(f *nodeapi.Function, body string) (string, time.Duration) {
	n.t.Helper()
	w, began := httptest.NewRecorder(), time.Now()
	r := httptest.NewRequestWithContext(n.t.Context(), http.MethodPost, "/", strings.NewReader(body))
	err := n.serve(w, r, f)
	if err != nil || w.Code != http.StatusOK {
		n.t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	return strings.TrimSpace(w.Body.String()), time.Since(began)
}

func (n *ahead) serve(w http.ResponseWriter, r *http.Request, f *nodeapi.Function) error {
	return n.Serve(r.Context(), w, r, workflow.Request{ID: nodeapi.NewRequestID(), Workflow: f, Ingress: n, Ahead: n.ahead,
		Load: func(string) (int, int, int) { return 1, 0, 1 }, Prepare: func(context.Context, string, string) {}})
}

// task calls a function of the namespace, and its answer is what follows gets.
func task(name string) *nodeapi.Task {
	return &nodeapi.Task{Name: name, Path: "/do/" + name, Kind: &nodeapi.Task_Call{Call: &nodeapi.Call{
		Request: fmt.Sprintf(`{method: "post", url: "http://%s.shop/", body: .}`, name), Host: name + ".shop"}}}
}

// adds is a function that says that it was there.
func adds(name string) func(string) string {
	return func(body string) string { return fmt.Sprintf("[%s,%q]", body, name) }
}

// A run whose functions answer as they did takes as long as the longest of them, and not as all of them. What has no annotation works
// in its turn.
func TestRunsAhead(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	answers := map[string]func(string) string{}
	var tasks []*nodeapi.Task
	for _, name := range names {
		answers[name], tasks = adds(name), append(tasks, task(name))
	}
	for never, want := range map[string]time.Duration{"": pace, "a": pace, "c": 2 * pace, "e": 2 * pace, "abcde": 5 * pace} {
		synctest.Test(t, func(t *testing.T) {
			n := newAhead(t, answers)
			for _, name := range never {
				n.never[string(name)] = true
			}
			first, took := n.run(of(tasks...), "1")
			if took != 5*pace {
				t.Errorf("never %q: the first run takes %s", never, took)
			}
			n.began = nil
			got, took := n.run(of(tasks...), "1")
			if got != first || took != want {
				t.Errorf("never %q: %s after %s, want %s after %s", never, got, took, first, want)
			}
			if len(n.began) != len(names) {
				t.Errorf("never %q: %s is asked", never, n.began)
			}
			if _, took := n.run(of(tasks...), "2"); took != 5*pace {
				t.Errorf("never %q: another request takes %s", never, took)
			}
		})
	}
}

// The busier the processors are, the fewer calls begin before their turn.
func TestBusyProcessors(t *testing.T) {
	answers := map[string]func(string) string{}
	var tasks []*nodeapi.Task
	for i := range 14 {
		name := string(rune('a' + i))
		answers[name], tasks = adds(name), append(tasks, task(name))
	}
	for _, c := range []struct {
		busy  float64
		ahead int
	}{{0, 12}, {0.59, 12}, {0.6, 6}, {0.7, 5}, {0.8, 4}, {0.94, 4}, {0.95, 0}, {1, 0}} {
		synctest.Test(t, func(t *testing.T) {
			n := newAhead(t, answers)
			n.run(of(tasks...), "1")
			began, at := time.Now(), 0
			var mu sync.Mutex
			n.busy, n.fails = c.busy, func(string) error {
				mu.Lock()
				defer mu.Unlock()
				if time.Since(began) < pace {
					at++
				}
				return nil
			}
			if n.run(of(tasks...), "1"); at != 1+c.ahead {
				t.Errorf("at %.2f, %d calls begin at once, want %d", c.busy, at, 1+c.ahead)
			}
		})
	}
}

// What has begun before its turn goes on when the processors become busy, and what was held back begins when they are free again.
func TestProcessorsThatBecomeBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := map[string]func(string) string{}
		var tasks []*nodeapi.Task
		for _, name := range []string{"a", "b", "c", "d"} {
			answers[name], tasks = adds(name), append(tasks, task(name))
		}
		n := newAhead(t, answers)
		n.paces = map[string]time.Duration{"b": 3 * time.Second, "c": 3 * time.Second}
		n.run(of(tasks...), "1")
		var busy atomic.Bool
		n.full = busy.Load
		busier := time.AfterFunc(pace/2, func() { busy.Store(true) })
		defer busier.Stop()
		n.began = nil
		if _, took := n.run(of(tasks...), "1"); took != 3*time.Second || len(n.began) != 4 {
			t.Errorf("when they become busy, it takes %s, and %q is asked", took, n.began)
		}
		freed := time.AfterFunc(time.Second, func() { busy.Store(false) })
		defer freed.Stop()
		n.paces["a"] = 3 * time.Second
		if _, took := n.run(of(tasks...), "1"); took < 4*time.Second || took > 4*time.Second+time.Second/2 {
			t.Errorf("when they are free after a second, it takes %s", took)
		}
	})
}

// Of branches none waits for what the others answer, however doubtful that is.
func TestDoubtsOfBranches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var run atomic.Int32
		early := map[string]int{}
		began, answers := time.Now(), map[string]func(string) string{"x": adds("x")}
		branches := make([]*nodeapi.Task, 4)
		for i, name := range []string{"a", "b", "c", "d"} {
			answers[name] = func(string) string { return fmt.Sprint(run.Load() / 2 % 2) } // it says the same twice, and something else then
			branches[i] = task(name)
			branches[i].Path = "/do/all/fork/branches/" + name
		}
		n := newAhead(t, answers)
		n.fails = func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) < pace {
				early[name]++
			}
			return nil
		}
		all := &nodeapi.Task{Name: "all", Path: "/do/all", InputFrom: "1", Kind: &nodeapi.Task_Fork{Fork: &nodeapi.Fork{Branches: branches}}}
		f := of(task("x"), all)
		const runs = 60
		for i := range runs {
			if i == runs/2 {
				clear(early)
			}
			began = time.Now()
			run.Store(int32(i))
			n.run(f, "1")
		}
		if early["a"] != runs/2 || early["d"] != runs/2 {
			t.Errorf("before x has answered, there begin %v in %d runs", early, runs/2)
		}
	})
}

// A function whose program works on when it has answered works in its turn from then on, until it is another one.
func TestAFunctionThatWorksOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAhead(t, map[string]func(string) string{"a": adds("a"), "b": adds("b"), "c": adds("c")})
		f := of(task("a"), task("b"), task("c"))
		takes := func(when string, want time.Duration) {
			t.Helper()
			if _, took := n.run(f, "1"); took != want {
				t.Errorf("%s: it takes %s, want %s", when, took, want)
			}
		}
		takes("at first", 3*pace)
		takes("then", pace)
		late := &nodeapi.Function{Name: "shop/b", Hosts: []string{"b.shop"}, OneAtATime: true, RunsAhead: true}
		n.Late(late)
		n.Late(late)
		n.Late(&nodeapi.Function{Name: "shop/a"}) // which works in its turn anyway
		n.Late(nil)                               // of which the node does not know
		if len(n.events) != 1 || n.events[0].GetFunction() != "shop/b" || n.events[0].GetReason() != "WorksAfterAnswer" {
			t.Errorf("the operator hears %v", n.events)
		}
		takes("when b has worked on", 2*pace)
		n.Set([]*nodeapi.Function{late})
		takes("when other functions have changed", 2*pace)
		n.Set([]*nodeapi.Function{{Name: "shop/b", Image: "b:2", Hosts: []string{"b.shop"}, OneAtATime: true, RunsAhead: true}})
		n.Late(late)
		if len(n.events) != 2 {
			t.Errorf("the operator hears %v", n.events)
		}
	})
}

// A function that answers something else has what follows run again with that, and no one sees anything else.
func TestAWrongGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		n := newAhead(t, map[string]func(string) string{"a": adds("a"), "b": adds("b"), "d": adds("d"), "e": adds("e"),
			"c": func(body string) string { times++; return fmt.Sprintf("[%s,%d]", body, times) }})
		f := of(task("a"), task("b"), task("c"), task("d"), task("e"))
		n.run(f, "1")
		n.began = nil
		got, took := n.run(f, "1")
		if want := `[[[[[1,"a"],"b"],2],"d"],"e"]`; got != want || took != 3*pace {
			t.Errorf("%s after %s, want %s after %s", got, took, want, 3*pace)
		}
		if len(n.began) != 7 { // d and e twice
			t.Errorf("%q is asked", n.began)
		}
	})
}

// What follows a switch runs ahead where others went, although nobody knows what the function before it answers, if it does not
// depend on that.
func TestASwitchIsGuessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := 0
		n := newAhead(t, map[string]func(string) string{"left": adds("left"), "right": adds("right"),
			"dice": func(string) string {
				times++
				return fmt.Sprintf(`{"n":%d,"way":%q}`, times, []string{"right", "left"}[min(times, 10)/10])
			}})
		dice, left, right := task("dice"), task("left"), task("right")
		for _, side := range []*nodeapi.Task{left, right} {
			side.InputFrom, side.Then = "$workflow.input", "end"
		}
		which := &nodeapi.Task{Name: "which", Path: "/do/which", Kind: &nodeapi.Task_Switch{Switch: &nodeapi.Switch{Cases: []*nodeapi.Case{
			{Name: "left", When: `.way == "left"`, Then: "left"}, {Name: "right", Then: "right"}}}}}
		f := of(dice, which, left, right)
		var took []time.Duration
		for range 10 {
			_, each := n.run(f, `"x"`)
			took = append(took, each/pace)
		}
		// The first rows are guessed from, which is wrong; the guessed way is right all the same, but for the last.
		if took[0] != 2 || slices.ContainsFunc(took[1:9], func(d time.Duration) bool { return d != 1 }) || took[9] != 2 {
			t.Errorf("they take %d", took)
		}
	})
}

// What depends on one guess that is wrong every other time works before its turn, and what depends on two of them does not.
func TestDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		began, early := time.Now(), map[string]int{}
		n := newAhead(t, map[string]func(string) string{"b": adds("b"), "d": adds("d"), "e": adds("e")})
		f := of(task("a"), task("b"), task("c"), task("d"), task("e"))
		n.fails = func(name string) error {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) < pace {
				early[name]++
			}
			return nil
		}
		const runs = 100
		for i := range runs {
			if i == runs/2 { // the node knows by now what to think of them
				clear(early)
			}
			began = time.Now()
			// Each says the same twice, and something else then; c for each answer of a.
			n.answers["a"] = func(string) string { return fmt.Sprint(i / 2 % 2) }
			n.answers["c"] = func(string) string { return fmt.Sprint(i / 4 % 2) }
			n.run(f, "1")
		}
		if early["b"] != runs/2 || early["c"] != runs/2 || early["d"] != 0 || early["e"] != 0 {
			t.Errorf("before a has answered, there begin %v in %d runs", early, runs/2)
		}
	})
}

// runsOfASeed is how often the workflow of a seed is run.
const runsOfASeed = 6

// seeds are those of random workflows: 300, or as many as make HEADSTART_SCHEDULES runs, which are others each time.
func seeds(t *testing.T) (first, most uint64) {
	said := os.Getenv("HEADSTART_SCHEDULES")
	if said == "" {
		return 0, 300
	}
	schedules, err := strconv.ParseUint(said, 10, 32)
	if err != nil {
		t.Fatalf("HEADSTART_SCHEDULES: %v", err)
	}
	first, most = rand.Uint64()>>1, schedules/runsOfASeed
	t.Logf("%d runs, from seed %d on", most*runsOfASeed, first)
	return first, most
}

// With any guesses, and with attempts that lose their instances, a run answers as one in which each function works in its turn, and no
// later, and what functions have written is the same, while others write it, too.
func TestRunningAheadChangesNothing(t *testing.T) {
	first, most := seeds(t)
	for seed := first; seed < first+most; seed++ {
		synctest.Test(t, func(t *testing.T) {
			if wrong := compare(t, seed, func(*ahead) {}); wrong != "" {
				t.Fatalf("seed %d: %s", seed, wrong)
			}
		})
	}
}

// The comparison finds each check that is left out.
func TestWhatIsNotCheckedIsFound(t *testing.T) {
	for name, leaveOut := range map[string]func(*ahead){
		"what an attempt is asked": func(n *ahead) { n.unasked = true },
		"what an attempt has read": func(n *ahead) { n.unread = true },
		"the fence":                func(n *ahead) { n.unfenced = true },
	} {
		found := false
		for seed := range uint64(100) {
			synctest.Test(t, func(t *testing.T) { found = found || compare(t, seed, leaveOut) != "" })
		}
		if !found {
			t.Errorf("nothing differs without %s", name)
		}
	}
}

// compare runs a random workflow ahead and in its turn, and returns what differs.
func compare(t *testing.T, seed uint64, leaveOut func(*ahead)) (wrong string) {
	r := rand.New(rand.NewPCG(seed, 20))
	answers := map[string]func(string) string{}
	var changes atomic.Int64 // what functions have learned elsewhere
	for i := range 6 {
		name, kind := string(rune('a'+i)), r.IntN(3)
		answers[name] = func(body string) string {
			if kind == 0 {
				return fmt.Sprint(len(body) + int(changes.Load())/3)
			}
			return fmt.Sprintf(`{"n":%d,"of":%q}`, len(body)%(kind+1), name)
		}
	}
	n, plain := newAhead(t, answers), newAhead(t, answers)
	leaveOut(n)
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		n.never[name], plain.never[name] = r.IntN(6) == 0, true
	}
	for _, name := range []string{"d", "e", "f"} { // of which no two work at the same time in their turns
		n.counts[name] = r.IntN(2) == 0
		plain.counts[name] = n.counts[name]
	}
	lost := rand.New(rand.NewPCG(seed, 21))
	n.loses = func() bool { n.mu.Lock(); defer n.mu.Unlock(); return lost.IntN(8) == 0 }
	f := of(randomTasks(r, "/do", 2+r.IntN(5), 2, 6)...)
	f.RequestTimeout = durationpb.New(time.Hour)
	for range runsOfASeed {
		body := fmt.Sprintf(`{"n":%d}`, r.IntN(2))
		want, slow := plain.run(f, body)
		got, fast := n.run(f, body)
		changes.Add(1)
		switch {
		case got != want:
			return fmt.Sprintf("%s, want %s", got, want)
		case fast > slow:
			return fmt.Sprintf("it takes %s, in turn %s", fast, slow)
		case !maps.Equal(n.store, plain.store):
			return fmt.Sprintf("the store has %v, want %v", n.store, plain.store)
		}
		if others := r.IntN(4); others < 3 { // somebody else has worked, too
			name := []string{"d", "e", "f"}[others]
			n.store[name]++
			plain.store[name]++
		}
	}
	return ""
}

// Calls that have answered before their turns count in one step, as far as what they have done elsewhere does.
func TestNeighboursCountTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAhead(t, map[string]func(string) string{"a": adds("a"), "b": adds("b"), "c": adds("c"), "d": adds("d")})
		n.paces = map[string]time.Duration{"a": 2 * pace}
		tasks := []*nodeapi.Task{task("a")}
		for _, name := range []string{"b", "c", "d"} {
			n.counts[name] = true
			one := task(name)
			one.InputFrom = "$workflow.input"
			tasks = append(tasks, one)
		}
		f, steps := of(tasks...), 0
		runs := func(when string, committing func() error, want string, takes time.Duration, together, inSteps int) {
			t.Helper()
			steps, n.together = 0, 0
			n.committing = func() error { steps++; return committing() }
			if got, took := n.run(f, "1"); got != want || took != takes || steps != inSteps || n.together != together {
				t.Errorf("%s: %s after %s, with %d in one of %d steps", when, got, took, n.together, steps)
			}
		}
		runs("at first", func() error { return nil }, `{"n":0,"of":"d"}`, 2*pace, 3, 1)
		runs("when somebody else has changed what d has read", func() error {
			if steps == 1 {
				n.store["d"]++
			}
			return nil
		}, `{"n":2,"of":"d"}`, 3*pace, 2, 2)
		runs("then", func() error { return nil }, `{"n":3,"of":"d"}`, 2*pace, 3, 1)

		n.committing = func() error { return attempt.ErrUnclear }
		caught := of(&nodeapi.Task{Name: "try", Path: "/do/try", Kind: &nodeapi.Task_Try{Try: &nodeapi.Try{Tasks: tasks, Catches: true}}})
		w := httptest.NewRecorder()
		err := n.serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("1")), caught)
		if p := problem.Of(err); p.Title != "StateUnclear" || !strings.Contains(p.Detail, "/do/b: ") {
			t.Errorf("if nobody knows which of them count, there is %d %s, %v", w.Code, w.Body, err)
		}
	})
}

// If nobody knows whether an attempt's part of a store counts, the run does not do it again.
func TestAnUnclearEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newAhead(t, map[string]func(string) string{"a": adds("a"), "b": adds("b")})
		n.counts["b"] = true
		two := task("b")
		two.InputFrom = "$workflow.input"
		f := of(task("a"), two)
		n.run(f, "1")
		n.began, n.committing = nil, func() error { return attempt.ErrUnclear }
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("1"))
		err := n.serve(w, r, f)
		if err != nil || w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "StateUnclear") {
			t.Errorf("%d %s, %v", w.Code, w.Body, err)
		}
		if len(n.began) != 2 {
			t.Errorf("%q is asked", n.began)
		}
	})
}

// randomTasks are calls of so many functions, switches on what was answered, and branches.
func randomTasks(r *rand.Rand, path string, n, deep, functions int) (tasks []*nodeapi.Task) {
	for i := range n {
		name := fmt.Sprint("t", i)
		at := path + "/" + name
		one := &nodeapi.Task{Name: name, Path: at}
		switch kind := r.IntN(6); {
		case kind == 0 && i+1 < n:
			one.Kind = &nodeapi.Task_Switch{Switch: &nodeapi.Switch{Cases: []*nodeapi.Case{
				{Name: "odd", When: `(.n? // 0) % 2 == 1`, Then: fmt.Sprint("t", i+1+r.IntN(n-i-1))}, {Name: "even"}}}}
		case kind == 1 && deep > 0:
			one.Kind = &nodeapi.Task_Fork{Fork: &nodeapi.Fork{Branches: randomTasks(r, at, 2, 0, 3)}}
			one.OutputAs = "{n: length}"
		case kind == 2 && deep > 0:
			one.Kind = &nodeapi.Task_Do{Do: &nodeapi.TaskList{Tasks: randomTasks(r, at, 1+r.IntN(2), deep-1, functions)}}
		default:
			c := task(string(rune('a' + r.IntN(functions))))
			c.Name, c.Path = name, at
			if r.IntN(3) == 0 {
				c.InputFrom = "$workflow.input"
			}
			one = c
		}
		tasks = append(tasks, one)
	}
	return tasks
}
