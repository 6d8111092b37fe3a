package workflow

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/workflow/lessons"
	"github.com/headstart-mesh/headstart/shim/workflow/memo"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// aheadMost is how many calls ahead of a run's own are looked at, and aheadLeast how many are left of them when further ones are.
const aheadMost, aheadLeast = 16, 8

// Why attempts are squashed.
const (
	squashedWrong  = "wrong"  // the run goes another way, or with another input
	squashedFailed = "failed" // there is no answer: another request had the instance, say
	squashedEnd    = "end"    // the run has ended
	squashedState  = "state"  // what it has read of a store was something else in its turn
	squashedIdle   = "idle"   // its turn came before an instance was free
)

// guess is what was guessed of a call. It is not to change while the run lasts, unless the call itself has been answered.
type guess struct {
	key    memo.Key
	answer program.Answer
	known  bool
	doubt  float64 // which part of such guesses is wrong, until the call has answered
}

// guesses implements program.Guesses: with what attempts have answered, and else with what was answered to such requests before.
type guesses struct{ *run }

// Case implements program.Guesses.
func (g guesses) Case(task string, route uint64) (chosen int, known bool) {
	return g.compiled.predictor.Guess(task, route)
}

// Answer implements program.Guesses.
func (g guesses) Answer(step *program.Step) (program.Answer, bool) {
	key := memo.KeyOf(step.Request)
	if made, is := g.run.guesses[step.ID]; is && made.key == key {
		return made.answer, made.known
	}
	made := guess{key: key}
	if w := g.early[step.ID]; w != nil && w.answer != nil && same(w.step, step) {
		made.answer, made.known = *w.answer, true
	} else if to := g.orOutside(g.function(step.Host), step); to.err == nil {
		made.answer, made.doubt, made.known = g.owner.tables.Guess(to.of, key, time.Now())
	}
	g.run.guesses[step.ID] = made
	return made.answer, made.known
}

// same tells whether two steps are the same call.
func same(a, b *program.Step) bool {
	return a.ID == b.ID && a.Task == b.Task && a.Request.Method == b.Request.Method && a.Request.URL.String() == b.Request.URL.String() &&
		maps.EqualFunc(a.Request.Header, b.Request.Header, slices.Equal) && bytes.Equal(a.Request.Body, b.Request.Body)
}

// function is what a host stood for when the run first looked ahead at it. Nothing is waited for: the node knows its functions, or it
// would not know the workflow.
func (r *run) function(host string) found {
	to, is := r.known[host]
	if !is {
		to = r.find(context.Background(), host)
		r.known[host] = to
	}
	return to
}

// revisions are of functions as the control plane has said them last.
type revisions struct {
	mu sync.Mutex
	of map[*nodeapi.Function]string
	// late are those whose programs were at work when they had answered.
	late map[string]bool
}

// get returns the digest of all that is said of a function.
func (r *revisions) get(f *nodeapi.Function) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.digest(f)
}

// digest is get; the caller holds mu.
func (r *revisions) digest(f *nodeapi.Function) string {
	known, is := r.of[f]
	if !is {
		b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(f) // no message of the wire fails
		sum := sha256.Sum256(b)
		known = hex.EncodeToString(sum[:])
		r.of[f] = known
	}
	return known
}

// set forgets the functions of before.
func (r *revisions) set(all []*nodeapi.Function) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of = map[*nodeapi.Function]string{}
	before := r.late
	r.late = map[string]bool{}
	for _, f := range all {
		if len(before) > 0 && before[r.digest(f)] {
			r.late[r.digest(f)] = true
		}
	}
}

// isLate tells whether a revision's programs work when they have answered.
func (r *revisions) isLate(revision string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late[revision]
}

// noteLate notes it, and tells whether it is news.
func (r *revisions) noteLate(f *nodeapi.Function) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	revision := r.digest(f)
	news := !r.late[revision]
	r.late[revision] = true
	return news
}

// Late hears that a function's program does something when it has answered. Nobody could tell the request that this is for, once the program has
// another one, so this revision of the function works in its turn from now on.
func (o *Owner) Late(f *nodeapi.Function) {
	if f.GetRunsAhead() && o.revisions.noteLate(f) {
		o.config.Event(&nodeapi.Event{Function: f.GetName(), Reason: "WorksAfterAnswer", Field: filterapi.AnnotationSpeculation,
			Message: "the function works on requests in their turn only: its program was at work when it had answered; have it end its work with its answer"})
	}
}

// adopt has calls whose turn has come go on that have begun before it.
func (r *run) adopt(ctx context.Context) {
	for again := true; again; {
		again = false
		for _, step := range r.state.Open() {
			w := r.early[step.ID]
			if w == nil || step.Request == nil {
				continue
			}
			if !same(w.step, step) {
				r.looked = false
				r.squash(w, squashedWrong)
				continue
			}
			err := w.attempt.Adopt()
			if err != nil && !errors.Is(err, attempt.ErrEffect) {
				r.squash(w, squashedIdle)
				continue
			}
			r.inTurn(w)
			if err != nil {
				r.commit(ctx, w)
				continue
			}
			r.owner.config.Metrics.attempted(r.request.Workflow.GetName(), adopted)
			if w.answer != nil {
				r.state, again = r.count(w), true
				break
			}
		}
	}
}

// inTurn says that an attempt's turn has come.
func (r *run) inTurn(w *work) {
	delete(r.early, w.step.ID)
	r.under[w.step.ID], r.begun[w.step.ID], w.turn = w, true, time.Now()
}

// learn feeds the tables with an answer that counts.
func (r *run) learn(w *work) {
	if w.answer.Err != nil {
		return
	}
	if key := memo.KeyOf(w.step.Request); r.owner.tables.Feed(w.of, key, *w.answer, time.Now()) {
		r.teach(memo.SizeOf(*w.answer), lessons.Lesson{Rows: []lessons.Row{rowOf(w, key)}})
	}
}

// squash gives an attempt up.
func (r *run) squash(w *work, why string) {
	delete(r.early, w.step.ID)
	w.attempt.Squash()
	w.drop()
	if why == squashedWrong {
		r.owner.config.Metrics.fenced.Observe(time.Since(r.heardAt).Seconds())
	}
	r.owner.config.Metrics.attempted(r.request.Workflow.GetName(), why)
	r.compiled.record.step(w, func(s *nodeapi.StepRecord) { s.Squashed[why]++ })
}

// heard compares an answer with what was guessed of it: what was made of another guess is looked at again.
func (r *run) heard(w *work) {
	made, is := r.guesses[w.step.ID]
	right := is && made.known && w.answer.Err == nil && memo.Same(made.answer, *w.answer)
	if is && made.known && (w.answer.Err == nil || w.attempt == nil) { // else it lost its instance
		r.guessed(w, right)
	}
	if made.doubt = 0; right {
		r.guesses[w.step.ID] = made
		return
	}
	r.guesses[w.step.ID] = guess{key: memo.KeyOf(w.step.Request), answer: *w.answer, known: w.answer.Err == nil}
	r.looked = r.looked && !r.speculates
}

// lookAhead looks ahead when it is the namespace's turn to compute, if there is something else to see than before: an answer was not
// the one that was guessed, or the run comes to where nobody looked. A run whose functions may not run ahead is looked at when it
// begins, and when it has come by a switch.
func (r *run) lookAhead(ctx context.Context) error {
	left := slices.DeleteFunc(r.ahead, func(s *program.Step) bool { return r.begun[s.ID] })
	choices := len(r.state.Choices())
	if further := r.full && len(left) < aheadLeast; r.looked && !further && (r.speculates || choices == r.choices) {
		r.ahead = left
		r.runAhead(ctx)
		return nil
	}
	leave, err := r.owner.turns.Wait(ctx)
	if err != nil {
		return err
	}
	defer leave()
	r.looked, r.choices = true, choices
	r.ahead = r.state.Ahead(guesses{r}, aheadMost, time.Now())
	r.full = len(r.ahead) == aheadMost
	r.keepAhead()
	r.runAhead(ctx)
	return nil
}

// keepAhead has the run count for what it knows ahead, and forgets what it does not. Without room it forgets all of it.
func (r *run) keepAhead() {
	wanted, bytes := map[uint64]bool{}, int64(0)
	for _, step := range append(slices.Clone(r.ahead), r.state.Open()...) {
		wanted[step.ID] = true
	}
	maps.DeleteFunc(r.guesses, func(id uint64, g guess) bool {
		if wanted[id] {
			bytes += int64(len(g.answer.Body))
		}
		return !wanted[id]
	})
	for _, step := range r.ahead {
		bytes += step.Memory()
	}
	if r.owner.ahead.change(r.request.Workflow.GetName(), bytes-r.keptAhead) != "" {
		r.ahead, r.full = nil, false
		clear(r.guesses)
		r.owner.ahead.change(r.request.Workflow.GetName(), -r.keptAhead)
		bytes = 0
	}
	r.keptAhead = bytes
}

// runAhead has those calls be at work that the run is likely to come to, and no others. Those that are not at work get an instance, at
// least.
func (r *run) runAhead(ctx context.Context) {
	wanted, depth := map[uint64]*program.Step{}, r.compiled.load.depth(r.owner.busy())
	before := slices.Clone(r.state.Open())
	r.held = false
	for _, step := range r.ahead {
		sure := r.sure(step, before)
		before = append(before, step)
		if step.Host == "" {
			continue
		}
		to := r.function(step.Host)
		if to.err != nil || to.f.GetWorkflow() != nil {
			continue
		}
		if !r.prepared[step.Host] {
			r.prepared[step.Host] = true
			r.calls.Go(func() { r.prepare(ctx, to.f.GetName()) })
		}
		may := to.f.GetRunsAhead() && !r.owner.revisions.isLate(to.of.Revision) && !to.f.TakesInput() // what a store has may be something else in its turn
		r.speculates = r.speculates || may
		w := r.early[step.ID]
		switch may = may && step.Request != nil && !step.Later && !r.failed[step.ID]; {
		case may && (w != nil && same(w.step, step) || sure >= memo.LeastRight && len(wanted) < depth): // what has begun goes on
			wanted[step.ID] = step
		case may && len(wanted) >= depth && depth < depthMost:
			r.held = true
		}
	}
	for id, w := range r.early {
		if step := wanted[id]; !w.committing && (step == nil || !same(w.step, step)) {
			r.squash(w, squashedWrong)
		}
	}
	for _, step := range r.ahead { // in the order of their turns
		if id := step.ID; wanted[id] != nil && r.early[id] == nil && r.under[id] == nil {
			r.early[id] = r.start(ctx, step, r.line.New(step.Task))
		}
	}
	r.order()
}

// sure is how likely the run comes to a call, by those before it whose answers are guessed.
func (r *run) sure(step *program.Step, before []*program.Step) float64 {
	sure := 1.0
	for _, b := range before {
		if doubt := r.guesses[b.ID].doubt; doubt > 0 && !b.Beside(step) {
			sure *= 1 - doubt
		}
	}
	return sure
}

// order says in which order the turns of attempts come: first those whose turn has come, then as the run is likely to go on.
func (r *run) order() {
	var all []*attempt.Attempt
	for _, step := range slices.Concat(r.state.Open(), r.ahead) {
		w := r.early[step.ID]
		if w == nil {
			w = r.under[step.ID]
		}
		if w != nil && w.attempt != nil {
			all = append(all, w.attempt)
		}
	}
	r.line.Order(all)
}

// prepare has a function have an instance when its turn comes. If it cannot, the call says why.
func (r *run) prepare(ctx context.Context, function string) {
	r.owner.config.Metrics.prepared.WithLabelValues(r.request.Workflow.GetName()).Inc()
	r.request.Prepare(ctx, function, r.request.Workflow.GetName())
}

// load is which part of the instances work on requests in their turn, as calls find it when theirs comes.
type load struct {
	mu    sync.Mutex
	share float64
}

const (
	// loadWeight is how much one call counts: the last hundred or so are what there is now.
	loadWeight = 1.0 / 64
	// depthAgain is how often a run that goes less far ahead since the node is busy looks whether it still is.
	depthAgain = 200 * time.Millisecond
	// depthMost is how many calls run ahead of a run's own at most: the paper's longest workflows are no deeper in front of a wrong
	// guess.
	depthMost = 12
)

// depths are how many calls run ahead at a load (SpecFaaS, section VII): of the function's instances, or the node's processors.
var depths = []struct {
	load float64
	most int
}{{0.8, 4}, {0.7, 5}, {0.6, 6}}

// seen takes what a call has found.
func (l *load) seen(all, turns int) {
	if all == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share += loadWeight * (float64(turns)/float64(all) - l.share)
}

// fullAt is how busy the processors are when there is nothing left of them: no call runs ahead then, since each takes from those in their turn.
const fullAt = 0.95

// depth is how many calls may run ahead, when such a part of the processors is busy.
func (l *load) depth(busy float64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if busy >= fullAt {
		return 0
	}
	for _, d := range depths {
		if max(l.share, busy) >= d.load {
			return d.most
		}
	}
	return depthMost
}

// busy is which part of the processors is.
func (o *Owner) busy() float64 {
	if o.config.Busy == nil {
		return 0
	}
	return o.config.Busy()
}
