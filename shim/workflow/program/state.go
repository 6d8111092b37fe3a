package program

import (
	"maps"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
)

// State is how far a run is. It is never changed.
type State struct {
	run    *run
	open   []*Step
	joins  map[uint64]join // by the forks' places
	tasks  int             // were begun
	ended  bool
	output any
	fault  *Fault
	// route tells by which tasks the run has come here, choices what it has chosen on its way.
	route   uint64
	choices []Choice
}

// Choice is what a switch has chosen.
type Choice struct {
	// Task is where the document has the switch (JSON pointer).
	Task string
	// Route tells by which calls and choices the run has come there.
	Route uint64
	// Case is the number of the first case that held; as many as there are: none did.
	Case int
}

// run is what stays the same for a run.
type run struct {
	program *Program
	id      string
	input   any // as it came
	started time.Time
}

// Step is a call, or a wait, that the run has come to. It is never changed.
type Step struct {
	// ID names it among those of the run, whatever else the run has done before: it is the place of its task.
	ID uint64
	// Task is where the document has the task (JSON pointer).
	Task string
	// Request is what is to be sent; nil: nothing is, and the step is over Until then.
	Request *Request
	Until   time.Time
	// Host is the one that is called, as far as it is known.
	Host string
	// Later is of a step ahead: a wait lies before it.
	Later bool

	frame   *frame
	context any
	again   bool // the tasks of a try are done again
}

// role is what a frame is of.
type role int

const (
	ofTask      role = iota // a task at work
	ofRun                   // the whole run
	ofBranch                // a branch of a fork
	ofIteration             // one time of a for
	ofAttempt               // one time of the tasks of a try
	ofCatch                 // the tasks that are done with its error
)

// frame is one of those that a step is in, from the innermost to the run. It is never changed.
type frame struct {
	role       role
	up         *frame
	task       *task  // nil: of a run
	place      uint64 // tells it from all others of the run
	raw, input any    // of the task
	started    time.Time
	deadline   time.Time // zero: it has no timeout
	scope      []any     // values of the variables of the tasks around
	index      int       // of an iteration, a branch; of a task, an attempt how many were before
	items      []any     // of an iteration
}

// in makes a frame that is in another one, the numbered one of its kind there.
func (f *frame) in(r role, k *task, number int, now time.Time) *frame {
	return &frame{role: r, up: f, task: k, place: mix(f.place, k.path, int(r), number), index: number, started: now, scope: f.scope}
}

// within tells whether the frame is in another one.
func (f *frame) within(other *frame) bool {
	for ; f != nil; f = f.up {
		if f == other {
			return true
		}
	}
	return false
}

// forks tells whether the frame is in a branch of the fork at that place.
func (f *frame) forks(place uint64) bool {
	for ; f != nil; f = f.up {
		if f.role == ofBranch && f.up.place == place {
			return true
		}
	}
	return false
}

// Beside tells whether the step is in another branch of a fork than the other one: neither is for the sake of the other's answer.
func (s *Step) Beside(other *Step) bool {
	branches := map[uint64]uint64{} // by their forks
	for f := s.frame; f != nil; f = f.up {
		if f.role == ofBranch {
			branches[f.up.place] = f.place
		}
	}
	for f := other.frame; f != nil && len(branches) > 0; f = f.up {
		if f.role == ofBranch && branches[f.up.place] != 0 && branches[f.up.place] != f.place {
			return true
		}
	}
	return false
}

// basis is where hashes begin (FNV-1a's offset basis).
const basis = 14695981039346656037

// mix is a hash of another one, a path and numbers.
func mix(h uint64, path string, numbers ...int) uint64 {
	const prime = 1099511628211 // FNV-1a's
	for i := range len(path) {
		h = (h ^ uint64(path[i])) * prime
	}
	for _, n := range numbers {
		for range 8 {
			h = (h ^ uint64(byte(n))) * prime
			n >>= 8
		}
	}
	return h
}

// join is where the branches of a fork meet.
type join struct {
	frame   *frame // of the fork
	left    int    // branches that have not ended
	outputs []any
}

// Start begins a run.
func (p *Program) Start(id string, input any, now time.Time) *State {
	s := &State{run: &run{program: p, id: id, input: input, started: now}}
	return s.change(now, func(t *turn) {
		root := &frame{role: ofRun, place: basis, started: now}
		if p.timeout > 0 {
			root.deadline = now.Add(p.timeout)
		}
		value, err := t.eval(p.from, root, view{value: input})
		if err != nil {
			t.end(nil, badExpression("/input/from", err))
			return
		}
		t.begin(p.tasks[0], value, root, 0, value)
	})
}

// Choices are what the run has chosen until now, the first 256 of them.
func (s *State) Choices() []Choice { return s.choices }

// Open are the calls and waits that the run has come to, in the order in which it did.
func (s *State) Open() []*Step { return s.open }

// Ended returns the run's output, or its fault; false: it goes on.
func (s *State) Ended() (output any, fault *Fault, ended bool) { return s.output, s.fault, s.ended }

// Memory is about how many bytes the run's values take, at most.
func (s *State) Memory() (bytes int64) {
	seen := map[*frame]bool{}
	for _, step := range s.open {
		bytes += expression.Memory(step.context)
		if step.Request != nil {
			bytes += int64(len(step.Request.Body))
		}
		for f := step.frame; f != nil && !seen[f]; f = f.up {
			seen[f] = true
			bytes += expression.Memory(f.raw) + expression.Memory(f.input) + expression.Memory(f.scope) + expression.Memory(f.items)
		}
	}
	for _, j := range s.joins {
		bytes += expression.Memory(j.outputs)
	}
	return bytes + expression.Memory(s.run.input)
}

// Memory is about how many bytes the step's own values take, at most.
func (s *Step) Memory() int64 {
	bytes := expression.Memory(s.context) + expression.Memory(s.frame.input)
	if s.Request != nil {
		bytes += int64(len(s.Request.Body))
	}
	return bytes
}

// Deadline is when Elapse is to be called; zero: there is no such time.
func (s *State) Deadline() time.Time {
	var first time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, step := range s.open {
		sooner(step.Until)
		for f := step.frame; f != nil; f = f.up {
			sooner(f.deadline)
		}
	}
	return first
}

// Answer goes on with what has come of a call. One that the run no longer waits for changes nothing.
func (s *State) Answer(id uint64, a Answer, now time.Time) *State {
	at := slices.IndexFunc(s.open, func(step *Step) bool { return step.ID == id && step.Request != nil })
	if at < 0 {
		return s
	}
	return s.change(now, func(t *turn) {
		step := s.open[at]
		t.s.open = slices.Delete(t.s.open, at, at+1)
		value, fault := a.output(step)
		if fault != nil {
			t.fail(step.frame, step.context, fault)
			return
		}
		t.complete(step.frame, value, step.context, step.frame.task.then)
	})
}

// Elapse goes on with what was to happen until now: waits are over, and timeouts.
func (s *State) Elapse(now time.Time) *State {
	return s.change(now, func(t *turn) {
		for t.expire() {
			t.work()
		}
		for {
			at := slices.IndexFunc(t.s.open, func(step *Step) bool { return step.Request == nil && !now.Before(step.Until) })
			if at < 0 {
				return
			}
			step := t.s.open[at]
			t.s.open = slices.Delete(t.s.open, at, at+1)
			t.waited(step)
			t.work()
		}
	})
}

// change makes another state.
func (s *State) change(now time.Time, do func(*turn)) *State {
	next := *s
	next.open, next.joins = slices.Clone(s.open), maps.Clone(s.joins)
	t := &turn{s: &next, now: now, until: time.Now().Add(turnLimit), most: TasksLimit}
	do(t)
	t.work()
	if next.ended {
		next.open, next.joins = nil, nil
	}
	return &next
}

const (
	// TasksLimit bounds how many tasks a run begins: one can go in circles without waiting for anything.
	TasksLimit = 20_000
	// OpenLimit bounds how many calls and waits are open at the same time.
	OpenLimit = 64
	// choicesLimit bounds how many choices are kept: what a loop chooses is soon known.
	choicesLimit = 256
	// turnLimit bounds how long a run computes between two steps.
	turnLimit = 5 * time.Second
)
