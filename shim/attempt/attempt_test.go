package attempt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// An attempt counts whole, or not at all, whatever comes first.
func TestAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		do               func(a *attempt.Attempt, stop func())
		adopted, stopped bool
	}{
		"its turn comes while it works": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); _ = a.Adopt() }, true, false},
		"its turn comes, and it is squashed then": {func(a *attempt.Attempt, stop func()) {
			a.Begin(stop)
			_ = a.Adopt()
			if a.Squash() {
				t.Error("an attempt is squashed that was adopted")
			}
		}, true, false},
		"it is squashed": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); a.Squash() }, false, true},
		"it is squashed, and its turn comes then": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); a.Squash(); a.Squash(); _ = a.Adopt() }, false, true},
		"its turn comes while it waits":           {func(a *attempt.Attempt, stop func()) { a.Wait(stop); _ = a.Adopt() }, false, true},
		"it is squashed while it waits": {func(a *attempt.Attempt, stop func()) {
			a.Wait(stop)
			a.Squash()
			if a.Begin(stop) || a.Wait(stop) {
				t.Error("a squashed attempt begins")
			}
		}, false, true},
		"it is squashed before it waits": {func(a *attempt.Attempt, stop func()) { a.Squash() }, false, false},
		"it waits, and is squashed once it works": {func(a *attempt.Attempt, stop func()) {
			a.Wait(func() { t.Error("the wait is ended of one that waits no more") })
			a.Begin(stop)
			a.Squash()
		}, false, true},
	} {
		a, stopped, counted := attempt.New(), 0, 0
		a.Then(func() { counted++ })
		c.do(a, func() { stopped++ })
		if a.Then(func() { counted++ }); counted != 0 && counted != 2 || (counted == 2) != c.adopted {
			t.Errorf("%s: counted %d times", name, counted)
		}
		closed := func(ch <-chan struct{}) bool {
			select {
			case <-ch:
				return true
			default:
				return false
			}
		}
		if a.InTurn() != c.adopted || closed(a.Turn()) != c.adopted || a.IsSquashed() == c.adopted || closed(a.Squashed()) == c.adopted {
			t.Errorf("%s: adopted %v, squashed %v", name, a.InTurn(), a.IsSquashed())
		}
		if stopped > 1 || (stopped == 1) != c.stopped {
			t.Errorf("%s: stopped %d times", name, stopped)
		}
	}
}

// effect is one that counts, or does not, after do, and so many with it that follow.
type effect struct {
	do   func()
	err  error
	with int
}

func (e effect) Commit(_ context.Context, _ []*attempt.Note, following []attempt.Effect) (int, bool, error) {
	e.do()
	if e.err != nil {
		return 0, true, e.err
	}
	return 1 + min(e.with, len(following)), true, nil
}

// commit has attempts count, without notes.
func commit(ctx context.Context, all ...*attempt.Attempt) (count int, noted bool, err error) {
	return attempt.Commit(ctx, all, make([]*attempt.Note, len(all)))
}

// An attempt with an effect is adopted when that counts, and is squashed when it does not. Nothing that happens meanwhile changes that.
func TestEffects(t *testing.T) {
	lost := errors.New("somebody else has written")
	for _, err := range []error{nil, lost} {
		for name, meanwhile := range map[string]func(a *attempt.Attempt){
			"nothing":         func(*attempt.Attempt) {},
			"it is squashed":  func(a *attempt.Attempt) { a.Squash() },
			"its turn comes":  func(a *attempt.Attempt) { _ = a.Adopt(); _, _, _ = commit(t.Context(), a) },
			"another effect":  func(a *attempt.Attempt) { a.Affect(effect{}) },
			"somebody waits":  func(a *attempt.Attempt) { a.Then(func() {}) },
			"it begins again": func(a *attempt.Attempt) { a.Begin(func() { t.Error("it was stopped") }) },
		} {
			a, stopped := attempt.New(), 0
			a.Begin(func() { stopped++ })
			if !a.Affect(effect{func() { meanwhile(a) }, err, 0}) {
				t.Fatal("it has no effect while it works")
			}
			if got := a.Adopt(); !errors.Is(got, attempt.ErrEffect) || a.InTurn() || a.IsSquashed() {
				t.Errorf("%s: it is adopted without its effect: %v", name, got)
			}
			if _, noted, got := commit(t.Context(), a); !errors.Is(got, err) || !noted {
				t.Errorf("%s: %v, want %v, noted %t", name, got, err, noted)
			}
			if a.InTurn() != (err == nil) || a.IsSquashed() != (err != nil) || (stopped == 1) != (err != nil) {
				t.Errorf("%s, %v: adopted %v, squashed %v, stopped %d times", name, err, a.InTurn(), a.IsSquashed(), stopped)
			}
			if a.Affect(effect{}) {
				t.Errorf("%s: it has another effect", name)
			}
		}
	}
}

// Attempts count together that have answered, in the order of their turns, as far as their effects do: the others are as before. If nobody
// knows which of them count, none is to go on.
func TestEffectsThatFollow(t *testing.T) {
	for name, c := range map[string]struct {
		with    int // so many count that follow
		err     error
		works   int // this one has not answered
		lost    int // that one was squashed before
		gone    int // and that one is while they are to count
		adopted int
		left    int // as they were
	}{
		"all of them":               {with: 3, works: -1, lost: -1, gone: -1, adopted: 4},
		"some of them":              {with: 1, works: -1, lost: -1, gone: -1, adopted: 2, left: 2},
		"one is at work":            {with: 3, works: 2, lost: -1, gone: -1, adopted: 2, left: 2},
		"the first is at work":      {with: 3, works: 0, lost: -1, gone: -1, adopted: 4},
		"one was squashed":          {with: 3, works: -1, lost: 1, gone: -1, adopted: 1, left: 2},
		"one is, and counts":        {with: 3, works: -1, lost: -1, gone: 2, adopted: 4},
		"one is, and does not":      {with: 1, works: -1, lost: -1, gone: 2, adopted: 2, left: 1},
		"the first does not":        {err: attempt.ErrSquashed, works: -1, lost: -1, gone: -1, left: 3},
		"nobody knows":              {err: attempt.ErrUnclear, works: -1, lost: -1, gone: -1},
		"the first was squashed":    {with: 3, works: -1, lost: 0, gone: -1, left: 3},
		"one is, the first did not": {err: attempt.ErrSquashed, works: -1, lost: -1, gone: 3, left: 2},
	} {
		var all []*attempt.Attempt
		for i := range 4 {
			a := attempt.New()
			a.Begin(func() {})
			a.Affect(effect{func() {
				if c.gone >= 0 && all[c.gone].Squash() {
					t.Errorf("%s: an attempt is squashed that may count", name)
				}
			}, c.err, c.with})
			if i != c.works {
				a.Answered()
			}
			all = append(all, a)
		}
		if c.lost >= 0 {
			all[c.lost].Squash()
		}
		count, _, err := commit(t.Context(), all...)
		if count != c.adopted || (err == nil) != (c.adopted > 0) {
			t.Errorf("%s: %d count, %v, want %d", name, count, err, c.adopted)
		}
		left := 0
		for i, a := range all {
			if a.InTurn() != (i < c.adopted) {
				t.Errorf("%s: attempt %d is adopted %t", name, i, a.InTurn())
			}
			if a.HasEffect() {
				left++
			}
			if a.HasEffect() == (a.InTurn() || a.IsSquashed()) {
				t.Errorf("%s: attempt %d neither counts nor does not", name, i)
			}
		}
		if left != c.left {
			t.Errorf("%s: %d are as before, want %d", name, left, c.left)
		}
	}
}
