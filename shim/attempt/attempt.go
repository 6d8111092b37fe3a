// Package attempt is one request that a function works on before its turn: on an input that was guessed. Until its turn has come,
// nothing of it counts (SpecFaaS, section IV).
package attempt

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// ErrSquashed is why an attempt has no answer.
var ErrSquashed = problem.New(http.StatusServiceUnavailable, "Squashed", "", "nobody wants the answer to the request any more")

// ErrEffect is why an attempt is not adopted at once.
var ErrEffect = errors.New("the attempt has an effect elsewhere")

// ErrUnclear is why nobody knows whether what an attempt has done elsewhere counts.
var ErrUnclear = problem.New(http.StatusBadGateway, "StateUnclear", filterapi.AnnotationConnections,
	"the store was lost while a function's writes were made; whether all of them were, or none, is not known")

// Effect is what an attempt has done elsewhere, where nobody sees it.
type Effect interface {
	// Commit makes it count, all of it, and in the same step those that follow, one after the other, as far as that is possible now: so many count. An
	// error says why none does; ErrUnclear, that nobody knows which do, and ErrFenced, that somebody else has the run. Each has its note, or nil, which
	// is written with it if both are of one store; noted tells whether it was, or may be. One whose note is of another store counts alone.
	Commit(ctx context.Context, notes []*Note, following []Effect) (count int, noted bool, err error)
}

// ErrFenced is why an effect does not count: the run that it is for is somebody else's.
var ErrFenced = errors.New("the run is somebody else's")

// Note is what a run has come to by an attempt: a field of the run's record in a store, which has the run's owner in its field owner.
type Note struct{ Store, Record, Owner, Field, Value string }

// Attempt is one. Its methods may be called at the same time.
type Attempt struct {
	mu     sync.Mutex
	phase  phase
	effect Effect
	stop   func()
	then   []func() // what is done when its turn comes
	// answered: the program has answered by itself. unwanted: nobody waits for it any more, while it may be about to count.
	answered, unwanted bool
	turn               chan struct{}
	fenced             chan struct{}
	over               chan struct{}
	overOnce           sync.Once

	line *Line // nil: it is by itself
	task string
	rank int // how many of the line were made until it was
}

type phase int

const (
	waiting    phase = iota // for an instance
	working                 // or done with that
	committing              // likewise; what it has done elsewhere is about to count
	adopted                 // its turn has come
	squashed                // nothing of it counts
)

// New returns an attempt that has not begun.
func New() *Attempt {
	return &Attempt{turn: make(chan struct{}), fenced: make(chan struct{}), over: make(chan struct{})}
}

// Wait says that the request waits for an instance. Stop is called when the attempt is squashed before it has one, and may not wait.
// False: it was squashed before.
func (a *Attempt) Wait(stop func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stop = stop
	return a.phase == waiting
}

// Begin says that an instance gets the request. Stop is called, instead of Wait's, when the attempt is squashed. False: it was squashed
// before.
func (a *Attempt) Begin(stop func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != waiting {
		return false
	}
	a.phase, a.stop = working, stop
	return true
}

// Affect says that the attempt has an effect elsewhere. False: its turn has come, or never will.
func (a *Attempt) Affect(e Effect) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == working {
		a.effect = e
	}
	return a.phase == working
}

// Adopt says that the turn has come, of the very request that the attempt is of: from now on it is a request like others. ErrEffect:
// its effect is to be committed instead. An attempt that has not begun, or was squashed, is not adopted: it is squashed.
func (a *Attempt) Adopt() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.phase == waiting:
		a.end()
	case a.phase == working && a.effect != nil:
		return ErrEffect
	case a.phase == working:
		a.adopt()
	}
	if a.phase != adopted {
		return ErrSquashed
	}
	return nil
}

// Commit is Adopt for an attempt with an effect, which counts then, with its note. If it cannot, the attempt is squashed. So many of those whose
// turns come next, and which have answered, count in the same step; the others are as before.
func Commit(ctx context.Context, all []*Attempt, notes []*Note) (count int, noted bool, err error) {
	var effects []Effect
	for i, a := range all {
		e := a.commit(i > 0)
		if e == nil {
			break
		}
		effects = append(effects, e)
	}
	if len(effects) == 0 {
		return 0, false, ErrSquashed
	}
	count, noted, err = effects[0].Commit(ctx, notes[:len(effects)], effects[1:])
	for i, a := range all[:len(effects)] {
		a.committed(i < count, err != nil && i == 0 || errors.Is(err, ErrUnclear))
	}
	return count, noted, err
}

// commit says that the effect is about to count; nil: it is not.
func (a *Attempt) commit(follows bool) Effect {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != working || follows && !a.answered {
		return nil
	}
	if a.effect != nil {
		a.phase = committing
	}
	return a.effect
}

// committed says what has come of the effect.
func (a *Attempt) committed(counts, lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case counts:
		a.adopt()
	case lost, a.unwanted:
		a.end()
	default:
		a.phase = working
	}
}

// HasEffect tells whether something of it is elsewhere that does not count yet.
func (a *Attempt) HasEffect() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == working && a.effect != nil
}

// adopt has the turn come; the caller holds mu.
func (a *Attempt) adopt() {
	a.phase = adopted
	close(a.turn)
	for _, do := range a.then {
		do()
	}
	a.then = nil
}

// Squash says that nothing of the attempt counts. It is false if the attempt was adopted before, or is about to be: then all of it does,
// or it is squashed after that.
func (a *Attempt) Squash() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.phase {
	case waiting, working:
		a.end()
	case committing:
		a.unwanted = true
	}
	return a.phase == squashed
}

// end squashes it; the caller holds mu.
func (a *Attempt) end() {
	a.phase = squashed
	close(a.fenced)
	a.Ended()
	if a.stop != nil {
		a.stop()
	}
}

// Then does something when the turn comes, or at once if it has come. It may not wait, and is not done if the attempt is squashed.
func (a *Attempt) Then(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.phase {
	case adopted:
		do()
	case waiting, working, committing:
		a.then = append(a.then, do)
	}
}

// Answered says that the program has answered. It does not count if it was to stop before: it may have left things half done.
func (a *Attempt) Answered() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answered = a.phase != squashed
}

// IsAnswered tells whether the program has answered by itself.
func (a *Attempt) IsAnswered() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered
}

// IsSquashed tells whether nothing of it counts.
func (a *Attempt) IsSquashed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == squashed
}

// Ended says that the program works on it no more.
func (a *Attempt) Ended() { a.overOnce.Do(func() { close(a.over) }) }

// Over is closed when nothing more comes of the program: it works on it no more, or in vain.
func (a *Attempt) Over() <-chan struct{} { return a.over }

// InTurn tells whether it was adopted.
func (a *Attempt) InTurn() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == adopted
}

// Turn is closed when the attempt is adopted.
func (a *Attempt) Turn() <-chan struct{} { return a.turn }

// Squashed is closed when the attempt is squashed.
func (a *Attempt) Squashed() <-chan struct{} { return a.fenced }
