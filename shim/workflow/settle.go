package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// settlement is what is about to count in one step: what calls have answered, one after the other, and have done elsewhere. Until it does, or
// does not, the run goes on with nothing else.
type settlement struct {
	works   []*work
	entries []journal.Entry  // with which the answers are noted, if the run is
	states  []*program.State // that the run comes to with each answer

	counts int   // so many
	lost   error // why what was done elsewhere does not count, and so nothing does
	noted  bool  // it was to count together with the notes
	err    error // why nothing is noted
}

// commit has what an attempt has done elsewhere count, in its turn. If it has answered, so do those that come next, as long as nothing else
// goes on in the run.
func (r *run) commit(ctx context.Context, w *work) {
	w.committing = true
	switch {
	case w.answer != nil && r.notes != nil:
		r.waiting = append(r.waiting, w)
	case w.answer != nil && len(r.state.Open()) == 1:
		_ = r.settle(ctx, w, time.Now()) // nothing is noted that may have no room
	default:
		r.report(ctx, func() came {
			_, noted, err := attempt.Commit(ctx, []*attempt.Attempt{w.attempt}, []*attempt.Note{r.notes.beside(journal.Entry{})})
			return came{work: w, of: committed, noted: noted, err: err}
		})
	}
}

// committed goes on with an attempt at work whose effect counts, or with none. Its answer may have come meanwhile.
func (r *run) committed(c came) *program.State {
	w := c.work
	w.committing = false
	switch {
	case r.under[w.step.ID] != w: // nobody waits for it any more
		return r.state
	case c.err != nil:
		return r.lost(w, c.noted, c.err)
	}
	r.owner.config.Metrics.attempted(r.request.Workflow.GetName(), adopted)
	if w.answer != nil {
		return r.count(w)
	}
	return r.state
}

// lost goes on without an effect that does not count, or perhaps does.
func (r *run) lost(w *work, noted bool, err error) *program.State {
	switch {
	case errors.Is(err, attempt.ErrFenced):
		r.err = journal.ErrTakenOver
	case errors.Is(err, attempt.ErrUnclear) && noted: // a request with the same key finds out
		r.err = journal.Unavailable(err)
	case errors.Is(err, attempt.ErrUnclear): // to do it again could have it done twice
		w.answer, w.answered = &program.Answer{Err: attempt.ErrUnclear}, time.Now()
		return r.count(w)
	default:
		delete(r.under, w.step.ID)
		delete(r.guesses, w.step.ID) // it may answer otherwise now
		r.looked = false
		r.squash(w, squashedState)
	}
	return r.state
}

// noteNext has the next answer noted, or goes on with what is due before.
func (r *run) noteNext(ctx context.Context) *program.State {
	at := r.notes.clock()
	if due := r.state.Deadline(); !due.IsZero() && !due.After(at) {
		return r.elapse()
	}
	w := r.waiting[0]
	r.waiting = r.waiting[1:]
	if r.under[w.step.ID] != w || !r.awaits(w.step.ID) {
		w.squash()
		return r.state
	}
	if r.err = r.settle(ctx, w, at); r.err != nil {
		w.squash()
	}
	return r.state
}

// settle has a call's answer count, before anything else does.
func (r *run) settle(ctx context.Context, w *work, at time.Time) error {
	s, err := r.settlement(w, at)
	if err != nil {
		return err
	}
	r.settling = s
	r.report(ctx, func() came {
		s.count(ctx, r.notes)
		return came{work: w, of: settled, settled: s}
	})
	return nil
}

// settlement is of a call's answer. If that counts with what the call has done elsewhere, so do those of the calls that come next, as far as
// they have answered before their turns, and have done something, too. Answers that wait come first.
func (r *run) settlement(w *work, at time.Time) (*settlement, error) {
	s := &settlement{}
	for state := r.state; w != nil; {
		entry, err := r.notes.entry(w, s.entries)
		if err != nil && len(s.works) == 0 {
			return nil, err
		}
		if err != nil { // it says so in its turn
			break
		}
		w.committing = w.committing || len(s.works) > 0
		state = state.Answer(w.step.ID, *w.answer, at)
		s.works, s.entries, s.states = append(s.works, w), append(s.entries, entry), append(s.states, state)
		if w = nil; s.works[0].committing && len(r.waiting) == 0 && !r.apart {
			w = r.next(state, at)
		}
	}
	return s, nil
}

// next is a call that a state comes to at once, which has answered before its turn, and has done something elsewhere; nil: there is none.
func (r *run) next(state *program.State, at time.Time) *work {
	if due := state.Deadline(); !due.IsZero() && !due.After(at) {
		return nil
	}
	for _, step := range state.Open() {
		w := r.early[step.ID]
		if w != nil && step.Request != nil && same(w.step, step) && w.answer != nil && w.attempt.HasEffect() {
			return w
		}
	}
	return nil
}

// count has it count.
func (s *settlement) count(ctx context.Context, n *notes) {
	s.counts = 1
	if s.works[0].committing {
		attempts, notes := make([]*attempt.Attempt, len(s.works)), make([]*attempt.Note, len(s.works))
		for i, w := range s.works {
			attempts[i], notes[i] = w.attempt, n.beside(s.entries[i])
		}
		s.counts, s.noted, s.lost = attempt.Commit(ctx, attempts, notes)
	}
	if n != nil && !s.noted && s.lost == nil {
		s.err = n.Note(ctx, s.entries[0])
	}
}

// settled goes on with what counts.
func (r *run) settled(s *settlement) *program.State {
	r.settling = nil
	first, effects := s.works[0], s.works[0].committing
	for _, w := range s.works {
		w.committing = false
	}
	switch {
	case len(s.works) > 1 && r.notes == nil && errors.Is(s.lost, attempt.ErrUnclear): // the run cannot go on: what comes next may count
		p := *problem.Of(s.lost)
		p.Detail = told(first.step.Task) + ": " + p.Detail
		r.err = &p
		return r.state
	case s.lost != nil:
		return r.lost(first, s.noted, s.lost)
	case s.err != nil:
		r.err = s.err
		return r.state
	}
	if effects {
		r.apart = r.notes != nil && !s.noted
	}
	for i, w := range s.works[:s.counts] {
		if i > 0 {
			r.inTurn(w)
		}
		if effects {
			r.owner.config.Metrics.attempted(r.request.Workflow.GetName(), adopted)
		}
		if r.notes != nil {
			r.notes.Wrote(s.entries[i])
		}
		r.counted(w)
		r.state = s.states[i]
	}
	return r.state
}
