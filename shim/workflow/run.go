package workflow

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
	"github.com/headstart-mesh/headstart/shim/workflow/lessons"
	"github.com/headstart-mesh/headstart/shim/workflow/memo"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// run is one at work. It belongs to the goroutine of finish, but for its calls.
type run struct {
	owner     *Owner
	compiled  compiled
	request   Request
	namespace string
	// kept is what the run has of the memory of runs, and keptAhead of that for what lies ahead of them.
	kept, keptAhead int64

	state    *program.State
	prepared map[string]bool  // by host
	known    map[string]found // by host
	under    map[uint64]*work // calls whose turn it is, by their steps
	begun    map[uint64]bool  // those whose turn has come
	early    map[uint64]*work // calls before their turn
	guesses  map[uint64]guess // what was guessed, by step

	// ahead are the calls that the run is likely to come to. looked: they are known, as they were after so many choices; full: there
	// may be more of them. speculates: some are of functions that may run ahead.
	ahead                    []*program.Step
	looked, full, speculates bool
	choices                  int
	held                     bool // some of them do not work, since the node is busy

	line    *attempt.Line
	calls   sync.WaitGroup
	answers chan came
	failed  map[uint64]bool // calls that have failed before their turn

	heardAt time.Time // when there was the last answer, or something was over

	notes *notes // nil: what the run has come to is noted nowhere
	err   error  // why the run does not go on

	waiting  []*work     // whose answers are to be noted
	settling *settlement // what is about to count before anything else does; nil: nothing is
	apart    bool        // what functions do elsewhere does not count together with notes

	path  []*nodeapi.RunStep // calls whose answers count
	saved time.Duration      // by those that began before their turn
}

// came is what a run hears of one of its calls.
type came struct {
	work   *work
	of     news
	at     time.Time
	answer program.Answer
	// noted: the effect was to count together with a note in its store.
	noted   bool
	err     error
	settled *settlement
}

// news are what there is to hear of a call.
type news int

const (
	answered  news = iota
	committed      // what an attempt has done elsewhere counts, or does not
	settled        // answers count, or do not
)

func newRun(o *Owner, c compiled, q Request) *run {
	return &run{owner: o, compiled: c, request: q, namespace: namespaceOf(q.Workflow.GetName()), prepared: map[string]bool{},
		known: map[string]found{}, under: map[uint64]*work{}, begun: map[uint64]bool{}, early: map[uint64]*work{}, guesses: map[uint64]guess{},
		line: attempt.NewLine(c.stalls), heardAt: time.Now(), answers: make(chan came), failed: map[uint64]bool{}}
}

// turn goes on to another state, when it is the namespace's turn to compute.
func (r *run) turn(ctx context.Context, next func() *program.State) error {
	leave, err := r.owner.turns.Wait(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := r.notes.owns(time.Now()); err != nil { // another node may have the run
		return err
	}
	r.state = next()
	if r.err != nil {
		return r.err
	}
	r.adopt(ctx)
	return r.keep(max(r.state.Memory(), leastMemory))
}

// keep has the run count for so many bytes.
func (r *run) keep(bytes int64) error {
	if err := r.owner.take(r.owner.memory, r.request.Workflow.GetName(), bytes-r.kept); err != nil {
		return err
	}
	r.kept = bytes
	return nil
}

// reasonInFlight is that the node has too much to do.
const reasonInFlight = "TooManyInFlight"

// take takes so many bytes more for a workflow's runs.
func (o *Owner) take(from *memory, workflow string, bytes int64) error {
	if why := from.change(workflow, bytes); why != "" {
		return problem.New(http.StatusServiceUnavailable, reasonInFlight, "", "the node has "+why)
	}
	return nil
}

// finish runs the program to its end, from where it is by its record. All calls have ended when it returns, as far as anybody waits for them.
func (r *run) finish(ctx context.Context, input any, of journal.Run) (any, *program.Fault, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		r.owner.ahead.change(r.request.Workflow.GetName(), -r.keptAhead)
	}()
	defer r.line.End()
	defer r.calls.Wait()
	defer r.dropAll()
	defer cancel(nil)
	if r.notes != nil {
		r.calls.Go(func() { r.notes.keepOwning(ctx, cancel) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	err := r.turn(ctx, func() *program.State { return r.compiled.program.Start(of.ID, input, of.Began) })
	if err == nil && of.Again {
		err = r.replay(ctx)
	}
	for err == nil {
		if output, fault, ended := r.state.Ended(); ended {
			r.compiled.predictor.Feed(r.state.Choices())
			r.teach(choiceBytes*int64(len(r.state.Choices())), lessons.Lesson{Choices: r.state.Choices()})
			return output, fault, nil
		}
		if err = r.begin(ctx); err != nil { // before anything else: it waits for nothing but this
			break
		}
		if r.settling == nil && len(r.waiting) > 0 {
			err = r.turn(ctx, func() *program.State { return r.noteNext(ctx) })
			continue
		}
		if err = r.lookAhead(ctx); err != nil {
			break
		}
		var elapsed <-chan time.Time
		if at := r.state.Deadline(); !at.IsZero() && r.settling == nil { // what is about to count comes first
			timer.Reset(time.Until(at))
			elapsed = timer.C
		}
		var freed <-chan time.Time
		if r.held {
			freed = time.After(depthAgain)
		}
		select {
		case c := <-r.answers:
			err = r.turn(ctx, func() *program.State { return r.came(ctx, c) })
		case <-elapsed:
			err = r.turn(ctx, r.elapse)
		case <-freed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return nil, nil, err
}

// begin begins the calls whose turn it is, and ends those for which nobody waits any more.
func (r *run) begin(ctx context.Context) error {
	if err := r.notes.owns(time.Now()); err != nil {
		return err
	}
	open := map[uint64]bool{}
	for _, step := range r.state.Open() {
		open[step.ID] = true
		if step.Request != nil && r.under[step.ID] == nil {
			if to := r.function(step.Host); to.err == nil && to.f.GetOneAtATime() {
				all, turns, _ := r.request.Load(to.f.GetName())
				r.compiled.load.seen(all, turns)
			}
			r.under[step.ID], r.begun[step.ID] = r.start(ctx, step, nil), true
		}
	}
	for id, w := range r.under {
		if !open[id] {
			w.drop()
			delete(r.under, id)
		}
	}
	return nil
}

// came takes a call's answer. That of one before its turn is a guess until then.
func (r *run) came(ctx context.Context, c came) *program.State {
	w := c.work
	r.heardAt = c.at
	switch c.of {
	case committed:
		return r.committed(c)
	case settled:
		return r.settled(c.settled)
	}
	if w.answer != nil { // it was given up when its effect was lost sight of
		return r.state
	}
	if r.notes != nil && r.under[w.step.ID] == w && ofTheNode(c.answer.Err) {
		r.err = c.answer.Err
		return r.state
	}
	w.answer, w.answered = &c.answer, time.Now()
	r.heard(w)
	switch {
	case r.under[w.step.ID] == w && w.committing: // the answer counts with it
	case r.under[w.step.ID] == w:
		return r.count(w)
	case r.early[w.step.ID] == w && w.answer.Err != nil: // it runs in its turn
		r.failed[w.step.ID] = true
		r.squash(w, squashedFailed)
	}
	return r.state
}

// elapse goes on with what was to happen until now. With notes it is one thing at its own time, as another node has it that reads them.
func (r *run) elapse() *program.State {
	r.looked, r.heardAt = false, time.Now()
	if r.notes == nil {
		return r.state.Elapse(time.Now())
	}
	if at := r.state.Deadline(); !at.After(r.notes.clock()) {
		return r.state.Elapse(at)
	}
	return r.state
}

// count has the answer of a call count whose turn it is: once it is noted, if the run is.
func (r *run) count(w *work) *program.State {
	if r.notes != nil {
		r.waiting = append(r.waiting, w)
		return r.state
	}
	defer r.counted(w)
	return r.state.Answer(w.step.ID, *w.answer, time.Now())
}

// counted is done with a call whose answer counts.
func (r *run) counted(w *work) {
	delete(r.under, w.step.ID)
	delete(r.guesses, w.step.ID)
	r.learn(w)
	r.commits(w)
	w.drop()
}

func (r *run) dropAll() {
	for _, w := range r.waiting {
		w.squash()
	}
	for _, w := range r.under {
		w.drop()
	}
	for _, w := range r.early {
		r.squash(w, squashedEnd)
	}
}

// found is what a host stands for: a function, or a server outside.
type found struct {
	f       *nodeapi.Function
	outside http.RoundTripper
	err     error
	of      memo.Of
}

// find returns the function that answers to a host, if the workflow may call it.
func (r *run) find(ctx context.Context, host string) found {
	f, err := r.owner.config.Find(ctx, host)
	if err == nil {
		f, err = call.Allowed(f.GetName(), f, nil, r.namespace)
	}
	if err != nil {
		return found{err: err}
	}
	return found{f: f, of: memo.Of{Namespace: r.namespace, Function: f.GetName(), Revision: r.owner.revisions.get(f)}}
}

// orOutside returns what a step's host stands for, or else the server that its URL is of.
func (r *run) orOutside(to found, step *program.Step) found {
	if problem.ReasonOf(to.err) != problem.ReasonFunctionUnknown {
		return to
	}
	outside, name := r.owner.config.Outside(r.namespace, step.Request.URL)
	if outside == nil {
		return found{err: problem.New(http.StatusBadGateway, problem.ReasonFunctionUnknown, "", fmt.Sprintf(
			"%.100q is no host of a function, and no destination of namespace %s with the origin node", step.Host, r.namespace))}
	}
	return found{outside: outside, of: memo.Of{Namespace: r.namespace, Function: name}}
}

// work is a call at work, or done.
type work struct {
	step    *program.Step
	of      memo.Of          // what it is an answer of
	attempt *attempt.Attempt // nil: it began in its turn
	answer  *program.Answer  // once the run has heard of it
	// began is when it was begun, answered when the run heard of its answer, and turn when its turn came.
	began, answered, turn time.Time
	end                   context.CancelFunc
	committing            bool // what it has done elsewhere is about to count

	mu      sync.Mutex
	kept    int64 // of the memory of runs, for the answer's body
	dropped bool
	give    func(bytes int64) error
}

// grow takes so many bytes more of the memory of runs.
func (w *work) grow(bytes int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped {
		return call.ErrUnwanted
	}
	if err := w.give(int64(bytes)); err != nil {
		return err
	}
	w.kept += int64(bytes)
	return nil
}

// squash ends an attempt whose effect does not count: it may hold copies of a store.
func (w *work) squash() {
	if w.attempt != nil {
		w.attempt.Squash()
	}
}

// drop lets go of a call: nobody waits for it any more.
func (w *work) drop() {
	w.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.dropped {
		w.dropped = true
		_ = w.give(-w.kept) // what is given back has no limit
	}
}

// start begins a call; with an attempt before its turn.
func (r *run) start(ctx context.Context, step *program.Step, a *attempt.Attempt) *work {
	ctx, end := context.WithCancel(ctx)
	from := r.owner.memory
	if a != nil {
		from = r.owner.ahead // attempts leave what runs need to these
	}
	w := &work{step: step, attempt: a, end: end, began: time.Now(), give: func(bytes int64) error { return r.owner.take(from, r.request.Workflow.GetName(), bytes) }}
	r.report(ctx, func() came { return came{work: w, answer: r.call(ctx, w)} })
	return w
}

// report does something of a call's, and has the run hear of it, unless ctx ends before.
func (r *run) report(ctx context.Context, do func() came) {
	r.calls.Go(func() {
		c := do()
		if ctx.Err() != nil {
			return
		}
		c.at = time.Now()
		select {
		case r.answers <- c:
		case <-ctx.Done():
		}
	})
}

// call does what a step of a run is for.
func (r *run) call(ctx context.Context, w *work) (a program.Answer) {
	step := w.step
	ctx, span := tracer.Start(ctx, tracing.Step, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.WorkflowTask.String(step.Task), tracing.Ahead.Bool(w.attempt != nil)))
	defer func() {
		if a.Err != nil {
			span.SetStatus(codes.Error, problem.Of(a.Err).Title)
		}
		span.End()
	}()
	to := r.find(ctx, step.Host)
	if w.attempt == nil { // servers outside are asked in their turn alone
		to = r.orOutside(to, step)
	}
	if to.err != nil {
		return program.Answer{Err: to.err}
	}
	w.of = to.of
	id := nodeapi.NewRequestID()
	out, err := newRequest(ctx, step.Request)
	switch {
	case err != nil:
	case to.outside != nil:
		span.SetAttributes(tracing.ConnectionDestination.String(to.of.Function))
		tracing.Inject(ctx, out.Header)
	default:
		span.SetAttributes(tracing.Function.String(to.f.GetName()))
		out, err = call.Request(out, id, to.f, pathOf(step.Request.URL), call.By{Function: r.request.Workflow.GetName(), Depth: r.request.Depth})
	}
	if err != nil {
		return program.Answer{Err: err}
	}
	keep := call.Keep{Most: expression.SizeLimit, Grow: w.grow}
	var got call.Answer
	switch {
	case to.outside != nil:
		leave, err := r.owner.outside.Wait(ctx)
		if err != nil {
			return program.Answer{Err: err}
		}
		defer leave()
		got = call.Send(to.outside, out, keep)
	case w.attempt != nil:
		got = r.request.Ahead(w.attempt, out, keep)
	default:
		got = call.Do(r.request.Ingress, out, keep)
	}
	switch {
	case got.Failed != nil:
		return program.Answer{Err: problem.ForCaller(got.Failed, to.f.GetName(), id)}
	case got.Cut:
		return program.Answer{Err: problem.New(http.StatusBadGateway, "AnswerTooLarge", "", fmt.Sprintf("the answer's body is larger than %d bytes", expression.SizeLimit))}
	}
	return program.Answer{Status: got.Status, Header: got.Header, Body: got.Body}
}
