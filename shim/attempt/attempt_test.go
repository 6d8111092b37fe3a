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

// effect is one that counts, or does not, after do.
type effect struct {
	do  func()
	err error
}

func (e effect) Commit(context.Context, *attempt.Note) (bool, error) {
	e.do()
	return true, e.err
}

// An attempt with an effect is adopted when that counts, and is squashed when it does not. Nothing that happens meanwhile changes that.
func TestEffects(t *testing.T) {
	lost := errors.New("somebody else has written")
	for _, err := range []error{nil, lost} {
		for name, meanwhile := range map[string]func(a *attempt.Attempt){
			"nothing":         func(*attempt.Attempt) {},
			"it is squashed":  func(a *attempt.Attempt) { a.Squash() },
			"its turn comes":  func(a *attempt.Attempt) { _ = a.Adopt(); _, _ = a.Commit(t.Context(), nil) },
			"another effect":  func(a *attempt.Attempt) { a.Affect(effect{}) },
			"somebody waits":  func(a *attempt.Attempt) { a.Then(func() {}) },
			"it begins again": func(a *attempt.Attempt) { a.Begin(func() { t.Error("it was stopped") }) },
		} {
			a, stopped := attempt.New(), 0
			a.Begin(func() { stopped++ })
			if !a.Affect(effect{func() { meanwhile(a) }, err}) {
				t.Fatal("it has no effect while it works")
			}
			if got := a.Adopt(); !errors.Is(got, attempt.ErrEffect) || a.InTurn() || a.IsSquashed() {
				t.Errorf("%s: it is adopted without its effect: %v", name, got)
			}
			if noted, got := a.Commit(t.Context(), nil); !errors.Is(got, err) || !noted {
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
