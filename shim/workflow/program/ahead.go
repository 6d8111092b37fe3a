package program

import (
	"slices"
	"time"
)

// Guesses say what a run will come to.
type Guesses interface {
	// Answer is what will come of a call; false: nobody knows.
	Answer(s *Step) (Answer, bool)
	// Case is the case that a switch will choose, as in Choice; false: nobody knows.
	Case(task string, route uint64) (chosen int, known bool)
}

const (
	// aheadTasks bounds how many tasks are looked at: they may go in circles.
	aheadTasks = 256
	// aheadLimit bounds how long: somebody waits for the run itself meanwhile.
	aheadLimit = 20 * time.Millisecond
)

// Ahead are the calls that the run will come to, if it finds what is guessed: most of them at most, in their order, without those
// that it has come to. A call has no request if that depends on what nobody knows.
func (s *State) Ahead(g Guesses, most int, now time.Time) (ahead []*Step) {
	if s.ended || len(s.open) == 0 {
		return nil
	}
	seen := map[*Step]bool{}
	for _, step := range s.open {
		seen[step] = true
	}
	s.change(now, func(t *turn) {
		t.guesses, t.most = g, min(t.most, s.tasks+aheadTasks)
		t.until = time.Now().Add(aheadLimit)
		for len(ahead) < most && len(t.s.open) > 0 {
			t.guess()
			for _, step := range t.s.open {
				if step.isCall() && !seen[step] && len(ahead) < most {
					ahead = append(ahead, step)
				}
				seen[step] = true
			}
		}
	})
	return ahead
}

// isCall tells whether the step is a call, perhaps of something unknown.
func (s *Step) isCall() bool { return s.frame.task.call != nil }

// guess goes on behind a step. Waits come last.
func (t *turn) guess() {
	at := max(0, slices.IndexFunc(t.s.open, (*Step).isCall))
	s := t.s.open[at]
	t.s.open = slices.Delete(t.s.open, at, at+1)
	defer t.work()
	if !s.isCall() {
		t.late = true
		t.waited(s)
		return
	}
	var value any = unknown{}
	if s.Request != nil {
		if a, known := t.guesses.Answer(s); known {
			v, fault := a.output(s)
			if fault != nil {
				t.fail(s.frame, s.context, fault)
				return
			}
			value = v
		}
	}
	t.complete(s.frame, value, s.context, s.frame.task.then)
}
