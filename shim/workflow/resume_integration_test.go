//go:build integration

package workflow_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/redistest"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
)

// nodes are two, with the same functions and the same store.
func nodes(t *testing.T, answers map[string]func(string) string) (a, b *ahead) {
	t.Helper()
	server := redistest.Start(t)
	var both [2]*ahead
	for i := range both {
		c := redis.NewClient(&redis.Options{Addr: server.Address, Protocol: 2, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		both[i] = newAhead(t, answers)
		both[i].redis = c
	}
	return both[0], both[1]
}

// keyed sends a request with a key.
func keyed(ctx context.Context, n *ahead, f *nodeapi.Function, key, body string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Idempotency-Key", key)
	return w, n.serve(w, r, f)
}

func noting(tasks ...*nodeapi.Task) *nodeapi.Function {
	f := of(tasks...)
	f.State = "sessions"
	return f
}

// records are all that are in the store.
func (n *ahead) records(t *testing.T) (all []map[string]string) {
	t.Helper()
	for _, record := range n.redis.Keys(t.Context(), "headstart:run:*").Val() {
		all = append(all, n.redis.HGetAll(t.Context(), record).Val())
	}
	return all
}

// writes says when a key of the store is written.
func (n *ahead) writes(t *testing.T, pattern string) <-chan *redis.Message {
	t.Helper()
	if err := n.redis.ConfigSet(t.Context(), "notify-keyspace-events", "KA").Err(); err != nil {
		t.Fatal(err)
	}
	s := n.redis.PSubscribe(t.Context(), "__keyspace@0__:"+pattern)
	t.Cleanup(func() { _ = s.Close() })
	if _, err := s.Receive(t.Context()); err != nil { // that it hears from now on
		t.Fatal(err)
	}
	return s.Channel()
}

// lapse has the owner of all runs be silent for too long.
func lapse(t *testing.T, n *ahead) {
	t.Helper()
	for _, record := range n.redis.Keys(t.Context(), "headstart:run:*").Val() {
		if err := n.redis.HIncrBy(t.Context(), record, "lease", -journal.Lease.Milliseconds()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A run whose node is lost goes on where it was, on another node, and answers as it would have. What the first node does then does not
// count. With the same key each node gives the same answer.
func TestARunWhoseNodeIsLost(t *testing.T) {
	entered, leave := make(chan bool, 1), make(chan bool)
	var hangs atomic.Bool
	hangs.Store(true)
	a, b := nodes(t, map[string]func(string) string{"a": adds("a"), "c": adds("c"), "b": func(body string) string {
		if hangs.Swap(false) {
			entered <- true
			<-leave
		}
		return adds("b")(body)
	}})
	for _, n := range []*ahead{a, b} {
		for _, f := range []string{"a", "b", "c"} {
			n.never[f] = true
		}
	}
	f := noting(task("a"), task("b"), task("c"))
	type result struct {
		w   *httptest.ResponseRecorder
		err error
	}
	first := make(chan result, 1)
	go func() {
		w, err := keyed(t.Context(), a, f, "k", "1")
		first <- result{w, err}
	}()
	<-entered
	_, err := keyed(t.Context(), b, f, "k", "1")
	if problem.ReasonOf(err) != journal.ReasonInProgress {
		t.Errorf("while the first node has it: %v", err)
	}
	lapse(t, b)
	const want = `[[[1,"a"],"b"],"c"]`
	w, err := keyed(t.Context(), b, f, "k", "1")
	if got := strings.TrimSpace(w.Body.String()); err != nil || w.Code != http.StatusOK || got != want {
		t.Errorf("%d %s, %v, want %s", w.Code, got, err, want)
	}
	if got := fmt.Sprint(b.began); got != `[b [1,"a"] c [[1,"a"],"b"]]` {
		t.Errorf("the second node asks %s", got)
	}
	close(leave)
	if r := <-first; !errors.Is(r.err, journal.ErrTakenOver) {
		t.Errorf("the first node answers %d %s, %v", r.w.Code, r.w.Body, r.err)
	}
	if slices.ContainsFunc(a.began, func(s string) bool { return strings.HasPrefix(s, "c") }) {
		t.Errorf("the first node asks %q", a.began)
	}
	for _, n := range []*ahead{a, b} {
		again, err := keyed(t.Context(), n, f, "k", "1")
		if err != nil || again.Code != w.Code || again.Body.String() != w.Body.String() || again.Header().Get("Content-Type") != w.Header().Get("Content-Type") {
			t.Errorf("again: %d %s, %v", again.Code, again.Body, err)
		}
		if _, err := keyed(t.Context(), n, f, "k", "2"); problem.ReasonOf(err) != "IdempotencyKeyReused" {
			t.Errorf("with another body: %v", err)
		}
	}
}

// A client that leaves, and comes again, finds its run at once where it was. What has failed has failed: the run goes on from that.
func TestAClientThatComesAgain(t *testing.T) {
	var calls atomic.Int64
	leaves := make(chan context.CancelFunc, 1)
	a, b := nodes(t, map[string]func(string) string{"a": func(string) string { return fmt.Sprint(calls.Add(1)) },
		"b": func(body string) string {
			select {
			case leave := <-leaves:
				leave()
			default:
			}
			return adds("b")(body)
		}})
	gone := &nodeapi.Task{Name: "gone", Path: "/do/gone", Kind: &nodeapi.Task_Try{Try: &nodeapi.Try{
		Tasks: []*nodeapi.Task{{Name: "none", Path: "/do/gone/try/none", Kind: &nodeapi.Task_Call{Call: &nodeapi.Call{Request: `{method: "get", url: "http://nobody.shop/"}`, Host: "nobody.shop"}}}},
		As:    "error", Catches: true, Catch: []*nodeapi.Task{task("a")}}}}
	f := noting(gone, task("b"))
	ctx, cancel := context.WithCancel(t.Context())
	leaves <- cancel
	if _, err := keyed(ctx, a, f, "k", ""); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	w, err := keyed(t.Context(), b, f, "k", "")
	if got := strings.TrimSpace(w.Body.String()); err != nil || got != `[1,"b"]` || calls.Load() != 1 {
		t.Errorf("%d %s, %v; a was asked %d times", w.Code, got, err, calls.Load())
	}
}

// A run answers as one in which each function works in its turn, wherever it was lost, by guesses that are right or wrong, and on both nodes.
func TestRandomRunsThatAreLost(t *testing.T) {
	answers := map[string]func(string) string{}
	for i := range 6 {
		name := string(rune('a' + i))
		answers[name] = func(body string) string { return fmt.Sprintf(`{"n":%d,"of":%q}`, len(body)%(i%3+1), name) }
	}
	a, b := nodes(t, answers)
	plain := newAhead(t, answers)
	lost := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 22))
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			a.never[name], b.never[name], plain.never[name] = r.IntN(4) == 0, r.IntN(4) == 0, true
		}
		f := noting(randomTasks(r, "/do", 2+r.IntN(5), 2, 6)...)
		f.Workflow.Revision = fmt.Sprint(seed)
		want, _ := plain.run(f, `{"n":1}`)
		for try := 0; ; try++ {
			ctx, cancel := context.WithCancel(t.Context())
			if try < 4 {
				ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(int(4*pace))))
			}
			w, err := keyed(ctx, []*ahead{a, b}[try%2], f, fmt.Sprint(seed), `{"n":1}`)
			cancel()
			a.wantSettled()
			b.wantSettled()
			if err != nil {
				lost++
				lapse(t, a) // whether its node had a last word or not
				continue
			}
			if got := strings.TrimSpace(w.Body.String()); got != want {
				t.Fatalf("seed %d, try %d: %d %s, want %s", seed, try, w.Code, got, want)
			}
			break
		}
	}
	if lost < 60 {
		t.Errorf("only %d runs were lost", lost)
	}
}

// What a stopping daemon says is no answer of the function's: the next node asks the function.
func TestADaemonThatStops(t *testing.T) {
	a, b := nodes(t, map[string]func(string) string{"a": adds("a")})
	a.never["a"], b.never["a"] = true, true
	stopping := problem.New(http.StatusServiceUnavailable, problem.ReasonDaemonStopping, "", "it is being stopped")
	a.fails = func(string) error { return stopping }
	caught := &nodeapi.Task{Name: "all", Path: "/do/all", Kind: &nodeapi.Task_Try{Try: &nodeapi.Try{Tasks: []*nodeapi.Task{task("a")}, As: "error", Catches: true}}}
	f := noting(caught)
	if w, err := keyed(t.Context(), a, f, "k", "1"); problem.ReasonOf(err) != problem.ReasonDaemonStopping {
		t.Errorf("%d %s, %v", w.Code, w.Body, err)
	}
	w, err := keyed(t.Context(), b, f, "k", "1")
	if got := strings.TrimSpace(w.Body.String()); err != nil || got != `[1,"a"]` {
		t.Errorf("%d %s, %v", w.Code, got, err)
	}
}

// A run goes on as it would have also where the order of answers, waits and timeouts decides: what one node has noted, another one reads.
func TestTheOrderIsKept(t *testing.T) {
	answers := map[string]func(string) string{}
	var mu sync.Mutex
	paces := rand.New(rand.NewPCG(0, 23))
	random := func(most time.Duration) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(paces.Int64N(int64(most)))
	}
	for i := range 4 {
		name := string(rune('a' + i))
		answers[name] = func(string) string {
			<-time.After(random(pace)) // work
			return fmt.Sprintf(`{"n":%d,"of":%q}`, random(3), name)
		}
	}
	a, b := nodes(t, answers)
	for _, n := range []*ahead{a, b} {
		n.counts["a"], n.counts["b"], n.notes = true, true, true
	}
	lost := 0
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 23))
		f := noting(timed(r, "/do", 3+r.IntN(4), 2)...)
		f.Workflow.Revision = fmt.Sprint(seed)
		for try := 0; ; try++ {
			ctx, cancel := context.WithCancel(t.Context())
			if try < 5 {
				ctx, cancel = context.WithTimeout(ctx, random(6*pace))
			}
			w, err := keyed(ctx, []*ahead{a, b}[try%2], f, fmt.Sprint(seed), `{"n":1}`)
			ended := ctx.Err() != nil
			cancel()
			a.wantSettled()
			b.wantSettled()
			if err == nil && w.Code == http.StatusOK {
				break
			}
			if !ended {
				t.Fatalf("seed %d, try %d: %d %s, %v", seed, try, w.Code, w.Body, err)
			}
			lost++
			lapse(t, a)
		}
	}
	if lost < 80 {
		t.Errorf("only %d runs were lost", lost)
	}
}

// Of branches that compete, and have run ahead, one counts. The others are given up, with what they have done to a store.
func TestBranchesThatCompete(t *testing.T) {
	slow := func(string) string { <-time.After(5 * pace); return "1" } // longer than the branches, as a rule
	a, _ := nodes(t, map[string]func(string) string{"x": slow, "a": adds("a"), "b": adds("b"), "y": adds("y")})
	a.never["x"], a.never["y"], a.counts["a"], a.counts["b"] = true, true, true, true
	one, two := task("a"), task("b")
	one.Path, two.Path = "/do/first/a", "/do/first/b"
	f := noting(task("x"), &nodeapi.Task{Name: "first", Path: "/do/first", Kind: &nodeapi.Task_Fork{Fork: &nodeapi.Fork{Compete: true, Branches: []*nodeapi.Task{one, two}}}}, task("y"))
	given := 0
	for n := 0; n < 20 && given == 0; n++ {
		was := a.store["a"] + a.store["b"]
		a.began = nil
		if w, err := keyed(t.Context(), a, f, fmt.Sprint(n), "1"); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		squashed := 0
		for _, attempt := range a.attempts {
			if attempt.IsSquashed() {
				squashed++
			}
		}
		// Both have begun ahead, and none of them again in its turn: x and y are asked besides.
		ahead := len(a.attempts) == 2 && len(a.began) == 4
		a.wantSettled()
		if !ahead {
			continue
		}
		given += squashed
		if did := a.store["a"] + a.store["b"] - was; did != 2-squashed {
			t.Errorf("run %d: the store has what %d branches have done, and %d are given up", n, did, squashed)
		}
	}
	if given == 0 {
		t.Error("no branch had run ahead in vain")
	}
}

// What several calls have answered and done counts in one step, with all their notes: another node asks none of them again.
func TestWhatCountsTogetherIsNoted(t *testing.T) {
	answers := map[string]func(string) string{}
	var tasks []*nodeapi.Task
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		answers[name] = adds(name)
		one := task(name)
		if name != "e" {
			one.InputFrom = "$workflow.input"
		}
		tasks = append(tasks, one)
	}
	a, b := nodes(t, answers)
	a.notes, a.paces, a.never["e"], b.never["e"] = true, map[string]time.Duration{"a": 5 * pace}, true, true
	for _, name := range []string{"b", "c", "d"} {
		a.counts[name] = true
	}
	a.fails = func(name string) error {
		if name != "e" {
			return nil
		}
		return problem.New(http.StatusServiceUnavailable, problem.ReasonDaemonStopping, "", "it is being stopped")
	}
	for n := 0; n < 20 && a.together < 3; n++ { // the three have answered before a, as a rule
		key := fmt.Sprint(n)
		a.began, b.began = nil, nil
		if w, err := keyed(t.Context(), a, noting(tasks...), key, "1"); problem.ReasonOf(err) != problem.ReasonDaemonStopping {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		a.wantSettled()
		w, err := keyed(t.Context(), b, noting(tasks...), key, "1")
		if want := fmt.Sprintf(`[{"n":%d,"of":"d"},"e"]`, n); err != nil || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%d %s, %v, want %s", w.Code, w.Body, err, want)
		}
		if len(a.began) != 5 || len(b.began) != 1 {
			t.Errorf("%q is asked, and then %q", a.began, b.began)
		}
	}
	if a.together < 3 {
		t.Errorf("%d have counted in one step", a.together)
	}
}

// If nobody knows whether what a call has done in another store counts, the call's answer says so, and is noted: it is not made again.
func TestAnUnclearEffectIsNoted(t *testing.T) {
	a, b := nodes(t, map[string]func(string) string{"a": adds("a"), "b": adds("b"), "c": adds("c")})
	a.paces = map[string]time.Duration{"a": 5 * pace}
	tasks := []*nodeapi.Task{task("a")}
	for _, name := range []string{"b", "c"} {
		one := task(name)
		one.InputFrom = "$workflow.input"
		tasks = append(tasks, one)
		a.counts[name] = true
	}
	a.committing = func() error { return attempt.ErrUnclear }
	unclear := 0
	for n := 0; n < 20 && unclear == 0; n++ { // one has answered before a, as a rule
		key := fmt.Sprint(n)
		w, err := keyed(t.Context(), a, noting(tasks...), key, "1")
		if err != nil {
			t.Fatal(err)
		}
		unclear = strings.Count(w.Body.String(), "StateUnclear")
		again, err := keyed(t.Context(), b, noting(tasks...), key, "1")
		if err != nil || again.Body.String() != w.Body.String() || len(b.began) > 0 {
			t.Errorf("the other node answers %d %s, %v, and asks %q", again.Code, again.Body, err, b.began)
		}
	}
	if unclear == 0 {
		t.Error("no answer says that its effect is unclear")
	}
}

// timed are tasks whose order, and whose timeouts, decide what comes of them.
func timed(r *rand.Rand, path string, n, deep int) (tasks []*nodeapi.Task) {
	for i := range n {
		one := &nodeapi.Task{Name: fmt.Sprint("t", i), Path: fmt.Sprintf("%s/t%d", path, i)}
		switch kind := r.IntN(6); {
		case kind == 0 && deep > 0:
			one.Kind = &nodeapi.Task_Fork{Fork: &nodeapi.Fork{Compete: r.IntN(2) == 0, Branches: timed(r, one.Path, 3, deep-1)}}
			one.OutputAs = "{n: length}"
		case kind == 1:
			one.Kind = &nodeapi.Task_Wait{Wait: durationpb.New(time.Duration(r.Int64N(int64(2 * pace))))}
		case kind == 2 && deep > 0:
			in := &nodeapi.Task{Name: "in", Path: one.Path + "/try/in", Kind: &nodeapi.Task_Do{Do: &nodeapi.TaskList{Tasks: timed(r, one.Path+"/try/in", 2, deep-1)}},
				Timeout: durationpb.New(time.Duration(1 + r.Int64N(int64(3*pace))))}
			one.Kind = &nodeapi.Task_Try{Try: &nodeapi.Try{Tasks: []*nodeapi.Task{in}, As: "error", Catches: true, Catch: timed(r, one.Path+"/catch", 1, 0)}}
		case kind == 3 && i+1 < n:
			one.Kind = &nodeapi.Task_Switch{Switch: &nodeapi.Switch{Cases: []*nodeapi.Case{
				{Name: "odd", When: `(.n? // 0) % 2 == 1`, Then: fmt.Sprint("t", i+1+r.IntN(n-i-1))}, {Name: "even"}}}}
		default:
			c := task(string(rune('a' + r.IntN(4))))
			c.Name, c.Path = one.Name, one.Path
			if r.IntN(2) == 0 { // all that run ahead may have answered when their turn comes
				c.InputFrom = "$workflow.input"
			}
			one = c
		}
		tasks = append(tasks, one)
	}
	return tasks
}

// A run whose store is lost ends, also while it waits: another node may have it by then. It begins nothing more.
func TestARunWhoseStoreIsLost(t *testing.T) {
	for name, second := range map[string]*nodeapi.Task{
		"it notes": task("b"),
		"it waits": {Name: "long", Path: "/do/long", Kind: &nodeapi.Task_Wait{Wait: durationpb.New(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entered, lost := make(chan bool, 2), make(chan bool)
			a, _ := nodes(t, map[string]func(string) string{"a": adds("a"), "c": adds("c"), "b": func(body string) string {
				entered <- true
				<-lost
				return adds("b")(body)
			}})
			for _, f := range []string{"a", "b", "c"} {
				a.never[f] = true
			}
			wrote := a.writes(t, "headstart:run:*")
			go func() {
				if name == "it notes" {
					<-entered
				} else {
					for !slices.ContainsFunc(a.records(t), func(r map[string]string) bool { return r["call:1"] != "" }) {
						<-wrote
					}
				}
				_ = a.redis.Close()
				close(lost)
			}()
			began := time.Now()
			w, err := keyed(t.Context(), a, noting(task("a"), second, task("c")), "k", "1")
			if problem.ReasonOf(err) != problem.ReasonStateUnavailable || slices.ContainsFunc(a.began, func(s string) bool { return strings.HasPrefix(s, "c") }) {
				t.Errorf("%d %s, %v; asked %q", w.Code, w.Body, err, a.began)
			}
			if took := time.Since(began); took > journal.Lease {
				t.Errorf("it goes on for %s", took)
			}
		})
	}
}

// A store that is away fails a request with a key, and no other one.
func TestARequestWithAKeyAndNoStore(t *testing.T) {
	a, _ := nodes(t, map[string]func(string) string{"a": adds("a")})
	_ = a.redis.Close()
	f := noting(task("a"))
	if _, err := keyed(t.Context(), a, f, "k", "1"); problem.ReasonOf(err) != problem.ReasonStateUnavailable || len(a.began) != 0 {
		t.Errorf("%v, asked %q", err, a.began)
	}
	if _, err := keyed(t.Context(), a, f, strings.Repeat("k", journal.KeyMost+1), "1"); problem.ReasonOf(err) != "IdempotencyKeyMalformed" {
		t.Error(err)
	}
	w := httptest.NewRecorder()
	if err := a.serve(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("1")), f); err != nil || w.Code != http.StatusOK {
		t.Errorf("without a key: %d %s, %v", w.Code, w.Body, err)
	}
	f.State = ""
	if w, err := keyed(t.Context(), a, f, "k", "1"); err != nil || w.Code != http.StatusOK {
		t.Errorf("of a workflow without a store: %d %s, %v", w.Code, w.Body, err)
	}
}
