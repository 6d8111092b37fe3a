package attempt_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// An attempt counts whole, or not at all, whatever comes first.
func TestAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		do               func(a *attempt.Attempt, stop func())
		adopted, stopped bool
	}{
		"its turn comes while it works": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); a.Adopt() }, true, false},
		"its turn comes, and it is squashed then": {func(a *attempt.Attempt, stop func()) {
			a.Begin(stop)
			a.Adopt()
			if a.Squash() {
				t.Error("an attempt is squashed that was adopted")
			}
		}, true, false},
		"it is squashed": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); a.Squash() }, false, true},
		"it is squashed, and its turn comes then": {func(a *attempt.Attempt, stop func()) { a.Begin(stop); a.Squash(); a.Squash(); a.Adopt() }, false, true},
		"its turn comes while it waits":           {func(a *attempt.Attempt, stop func()) { a.Wait(stop); a.Adopt() }, false, true},
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
