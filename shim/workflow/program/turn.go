package program

import (
	"errors"
	"maps"
	"slices"
	"time"
)

// turn makes a state of another.
type turn struct {
	s     *State
	now   time.Time
	until time.Time // it computes no longer
	most  int       // tasks that the run may begin
	todo  []func()  // the last one first
	// guesses are asked for what is not known, if the run is only looked at; late: behind a wait.
	guesses Guesses
	late    bool
}

// work does what is to do. A run of many tasks is to need no deep stack.
func (t *turn) work() {
	for len(t.todo) > 0 && !t.s.ended {
		last := len(t.todo) - 1
		do := t.todo[last]
		t.todo = t.todo[:last]
		do()
	}
	t.todo = nil
}

func (t *turn) later(do func()) { t.todo = append(t.todo, do) }

// end ends the run.
func (t *turn) end(output any, fault *Fault) {
	t.s.ended, t.s.output, t.s.fault = true, output, fault
}

// finish ends the run well.
func (t *turn) finish(value, context any, root *frame) {
	value, err := t.eval(t.s.run.program.as, root, view{value: value, context: context})
	if err != nil {
		t.end(nil, badExpression("/output/as", err))
		return
	}
	t.end(value, nil)
}

// begin begins a task, before which its list has begun others.
func (t *turn) begin(k *task, raw any, up *frame, before int, context any) {
	t.later(func() { t.beginNow(k, raw, up, before, context) })
}

func (t *turn) beginNow(k *task, raw any, up *frame, before int, context any) {
	t.s.tasks++
	f := up.in(ofTask, k, before, t.now)
	f.raw = raw
	if k.timeout > 0 {
		f.deadline = t.now.Add(k.timeout)
	}
	switch {
	case t.s.tasks > t.most:
		t.end(nil, overrun(k.path, errTasks))
		return
	case time.Now().After(t.until):
		t.end(nil, overrun(k.path, errTurn))
		return
	}
	does, err := t.eval(k.condition, f, view{value: raw, context: context})
	if err != nil {
		t.fail(f, context, badExpression(k.path+"/if", err))
		return
	}
	if k.condition != nil && !truth(does) {
		t.next(f, raw, context, then{to: k.at + 1})
		return
	}
	if f.input, err = t.eval(k.from, f, view{value: raw, context: context}); err != nil {
		t.fail(f, context, badExpression(k.path+"/input/from", err))
		return
	}
	t.do(f, context)
}

// do does what a task is for.
func (t *turn) do(f *frame, context any) {
	k := f.task
	subject, err := t.eval(k.subject, f, view{value: f.input, context: context, input: f.input})
	if err != nil {
		t.fail(f, context, badExpression(k.path, err))
		return
	}
	switch {
	case k.call != nil && isUnknown(subject):
		t.open(&Step{Host: k.call.GetHost(), frame: f, context: context})
	case k.call != nil:
		r, err := newRequest(subject)
		if err != nil {
			t.fail(f, context, badExpression(k.path+"/with", err))
			return
		}
		t.open(&Step{Request: r, Host: r.URL.Host, frame: f, context: context})
	case k.wait != nil:
		t.open(&Step{Until: t.now.Add(*k.wait), frame: f, context: context})
	case k.set:
		t.complete(f, subject, context, k.then)
	case k.raise && isUnknown(subject): // nobody knows who catches it
	case k.raise:
		fault, err := raised(subject, k.path)
		if err != nil {
			fault = badExpression(k.path+"/raise/error", err)
		}
		t.fail(f, context, fault)
	case k.cases != nil:
		t.choose(f, context)
	case k.fork != nil:
		t.split(f, context)
	case k.loop != nil:
		items, ok := subject.([]any)
		if isUnknown(subject) { // gone through once
			items, ok = []any{unknown{}}, true
		}
		if !ok {
			t.fail(f, context, badExpression(k.path+"/for/in", errors.New("the expression yields no array")))
			return
		}
		t.iterate(f, items, 0, f.input, context)
	case k.try != nil:
		t.attempt(f, 0, t.now, context)
	default:
		t.list(*k.do, f.input, f, context)
	}
}

// open has the run wait for a step.
func (t *turn) open(s *Step) {
	if len(t.s.open) >= OpenLimit {
		t.end(nil, overrun(s.frame.task.path, errOpen))
		return
	}
	t.pass(s.frame.task, -1)
	s.ID, s.Task, s.Later = s.frame.place, s.frame.task.path, t.late
	t.s.open = append(t.s.open, s)
}

// list begins the tasks of a frame.
func (t *turn) list(l list, value any, up *frame, context any) {
	if len(l) == 0 {
		t.listEnds(up, value, context)
		return
	}
	t.begin(l[0], value, up, 0, context)
}

// choose goes on where a switch says.
func (t *turn) choose(f *frame, context any) {
	to, chosen := f.task.then, len(f.task.cases)
	for i, c := range f.task.cases {
		holds, err := t.eval(c.when, f, view{value: f.input, context: context, input: f.input})
		if err != nil {
			t.fail(f, context, badExpression(f.task.path+"/switch", err))
			return
		}
		if isUnknown(holds) {
			var known bool
			if chosen, known = t.guesses.Case(f.task.path, t.s.route); !known || chosen > len(f.task.cases) {
				return
			}
			if chosen < len(f.task.cases) {
				to = f.task.cases[chosen].then
			}
			break
		}
		if c.when == nil || truth(holds) {
			to, chosen = c.then, i
			break
		}
	}
	if len(t.s.choices) < choicesLimit {
		t.s.choices = append(slices.Clip(t.s.choices), Choice{f.task.path, t.s.route, chosen})
	}
	t.pass(f.task, chosen)
	t.complete(f, f.input, context, to)
}

// pass notes that the run comes by a task, and what it has chosen there.
func (t *turn) pass(k *task, chosen int) { t.s.route = mix(t.s.route, k.path, chosen) }

// split begins the branches of a fork.
func (t *turn) split(f *frame, context any) {
	branches := f.task.fork.branches
	if t.s.joins == nil {
		t.s.joins = map[uint64]join{}
	}
	t.s.joins[f.place] = join{frame: f, left: len(branches), outputs: make([]any, len(branches))}
	for i, branch := range slices.Backward(branches) { // the first one begins first
		t.begin(branch, f.input, f.in(ofBranch, f.task, i, t.now), 0, context)
	}
}

// meet takes the output of a branch.
func (t *turn) meet(branch *frame, value, context any) {
	place := branch.up.place
	j, waited := t.s.joins[place]
	if !waited {
		return // another branch has ended the fork
	}
	j.left--
	j.outputs = slices.Clone(j.outputs)
	j.outputs[branch.index] = value
	t.s.joins[place] = j
	switch compete := j.frame.task.fork.compete; {
	case compete:
		t.leave(place)
		t.complete(j.frame, value, context, j.frame.task.then)
	case j.left == 0:
		t.leave(place)
		t.complete(j.frame, together(j.outputs), context, j.frame.task.then)
	}
}

// leave ends all branches of a fork.
func (t *turn) leave(place uint64) {
	delete(t.s.joins, place)
	t.s.open = slices.DeleteFunc(t.s.open, func(s *Step) bool { return s.frame.forks(place) })
	maps.DeleteFunc(t.s.joins, func(_ uint64, j join) bool { return j.frame.forks(place) })
}

// iterate begins the tasks of a for with one of its items, or ends it.
func (t *turn) iterate(f *frame, items []any, index int, value, context any) {
	if index == len(items) {
		t.complete(f, value, context, f.task.then)
		return
	}
	g := f.in(ofIteration, f.task, index, t.now)
	g.items, g.scope = items, append(slices.Clip(f.scope), items[index], index)
	goes, err := t.eval(f.task.loop.while, g, view{value: value, context: context, input: f.input})
	switch {
	case err != nil:
		t.fail(f, context, badExpression(f.task.path+"/while", err))
	case f.task.loop.while != nil && !truth(goes):
		t.complete(f, value, context, f.task.then)
	default:
		t.list(f.task.loop.tasks, value, g, context)
	}
}

// attempt begins the tasks of a try. began is when they were begun for the first time.
func (t *turn) attempt(f *frame, before int, began time.Time, context any) {
	t.list(f.task.try.tasks, f.input, f.in(ofAttempt, f.task, before, began), context)
}

// waited ends a wait.
func (t *turn) waited(s *Step) {
	if s.again {
		t.attempt(s.frame.up, s.frame.index+1, s.frame.started, s.context)
	} else {
		t.complete(s.frame, s.frame.input, s.context, s.frame.task.then)
	}
}

// complete ends a task well: out is its output, before that is transformed.
func (t *turn) complete(f *frame, out, context any, to then) {
	seen := view{value: out, context: context, input: f.input, raw: out}
	value, err := t.eval(f.task.as, f, seen)
	if err != nil {
		t.fail(f, context, badExpression(f.task.path+"/output/as", err))
		return
	}
	if f.task.export != nil {
		seen.value, seen.output = value, value
		exported, err := t.eval(f.task.export, f, seen)
		if err != nil {
			t.fail(f, context, badExpression(f.task.path+"/export/as", err))
			return
		}
		context = exported
	}
	t.next(f, value, context, to)
}

// next goes on after a task.
func (t *turn) next(f *frame, value, context any, to then) {
	up := f.up
	l := up.tasks(t.s.run.program)
	switch {
	case to.end:
		t.finish(value, context, root(up))
	case to.exit || up.role == ofBranch || to.to >= len(l):
		t.listEnds(up, value, context)
	default:
		t.begin(l[to.to], value, up, f.index+1, context)
	}
}

// root is the frame of the run.
func root(f *frame) *frame {
	for f.up != nil {
		f = f.up
	}
	return f
}

// tasks are those that a frame does one after the other.
func (f *frame) tasks(p *Program) list {
	switch f.role {
	case ofRun:
		return p.tasks
	case ofIteration:
		return f.task.loop.tasks
	case ofAttempt:
		return f.task.try.tasks
	case ofCatch:
		return f.task.try.catch
	case ofTask:
		return *f.task.do
	}
	return nil
}

// listEnds goes on after all tasks of a frame.
func (t *turn) listEnds(f *frame, value, context any) {
	switch f.role {
	case ofRun:
		t.finish(value, context, f)
	case ofBranch:
		t.meet(f, value, context)
	case ofIteration:
		t.later(func() { t.iterate(f.up, f.items, f.index+1, value, context) })
	case ofAttempt, ofCatch:
		t.complete(f.up, value, context, f.task.then)
	default:
		t.complete(f, value, context, f.task.then)
	}
}

// fail has a fault go up from a frame, until something catches it.
func (t *turn) fail(f *frame, context any, fault *Fault) {
	for ; f != nil; f = f.up {
		switch f.role {
		case ofBranch:
			t.leave(f.up.place)
		case ofAttempt:
			if t.catch(f, context, fault) {
				return
			}
		}
	}
	t.end(nil, fault)
}

// expire has the outermost timeout that is over fail its task; false: there is none.
func (t *turn) expire() bool {
	var over *frame
	for _, step := range t.s.open {
		for f := step.frame; f != nil; f = f.up {
			if !f.deadline.IsZero() && !t.now.Before(f.deadline) && (over == nil || over.within(f)) {
				over = f
			}
		}
	}
	if over == nil {
		return false
	}
	var context any
	t.s.open = slices.DeleteFunc(t.s.open, func(s *Step) bool {
		in := s.frame.within(over)
		if in {
			context = s.context
		}
		return in
	})
	maps.DeleteFunc(t.s.joins, func(_ uint64, j join) bool { return j.frame.within(over) })
	if over.task == nil {
		t.end(nil, late(""))
	} else {
		t.fail(over, context, late(over.task.path))
	}
	return true
}

var (
	errTasks = errors.New("the run begins too many tasks; does it go in circles?")
	errTurn  = errors.New("the run computes for too long without calling anything")
	errOpen  = errors.New("too many calls and waits are open at the same time")
)

// truth is what jq makes of a value.
func truth(v any) bool { return v != nil && v != false }
