// Package attempt is one request that a function works on before its turn: on an input that was guessed. Until its turn has come,
// nothing of it counts (SpecFaaS, section IV).
package attempt

import (
	"net/http"
	"sync"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// ErrSquashed is why an attempt has no answer.
var ErrSquashed = problem.New(http.StatusServiceUnavailable, "Squashed", "", "nobody wants the answer to the request any more")

// Attempt is one. Its methods may be called at the same time.
type Attempt struct {
	mu     sync.Mutex
	phase  phase
	stop   func()
	then   []func() // what is done when its turn comes
	turn   chan struct{}
	fenced chan struct{}
}

type phase int

const (
	waiting  phase = iota // for an instance
	working               // or done with that
	adopted               // its turn has come
	squashed              // nothing of it counts
)

// New returns an attempt that has not begun.
func New() *Attempt { return &Attempt{turn: make(chan struct{}), fenced: make(chan struct{})} }

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

// Adopt says that the turn has come, of the very request that the attempt is of: from now on it is a request like others. An attempt
// that has not begun, or was squashed, is not adopted: it is squashed.
func (a *Attempt) Adopt() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch a.phase {
	case working:
		a.phase = adopted
		close(a.turn)
		for _, do := range a.then {
			do()
		}
		a.then = nil
	case waiting:
		a.end()
	}
	return a.phase == adopted
}

// Squash says that nothing of the attempt counts. It is false if the attempt was adopted before: then all of it does.
func (a *Attempt) Squash() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase == waiting || a.phase == working {
		a.end()
	}
	return a.phase == squashed
}

// end squashes it; the caller holds mu.
func (a *Attempt) end() {
	a.phase = squashed
	close(a.fenced)
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
	case waiting, working:
		a.then = append(a.then, do)
	}
}

// IsSquashed tells whether nothing of it counts.
func (a *Attempt) IsSquashed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.phase == squashed
}

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
