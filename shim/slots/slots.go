// Package slots has functions of which each instance takes one request at a time: it says which instance of the node takes which
// request, and who waits.
package slots

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// Instances are those of the node.
type Instances interface {
	// Serving are the instances of a function that take requests. Changed is closed when they may be others.
	Serving(function string) (ids []string, changed <-chan struct{})
	// IsClosed tells whether nothing leaves the instance's sandbox but answers.
	IsClosed(id string) bool
}

// ErrNone is that the node has no instance of the function.
var ErrNone = errors.New("the node has no instance of the function that takes requests")

// Slots are those of a node. Its methods may be called at the same time.
type Slots struct {
	instances Instances

	mu      sync.Mutex
	busy    map[string]*claim // by instance
	waiting map[string]*queue // by function
}

// queue are those who wait for an instance of a function: requests in their turn first.
type queue struct{ turns, ahead []*claim }

// claim is a request that has an instance, or waits for one.
type claim struct {
	function string
	bound    string           // the instance that it is for besides those that take any request; empty: none
	attempt  *attempt.Attempt // nil: of a request in its turn
	instance string           // once it has one
	got      chan struct{}
}

// New returns the slots of a node's instances.
func New(i Instances) *Slots {
	return &Slots{instances: i, busy: map[string]*claim{}, waiting: map[string]*queue{}}
}

// Load tells how many instances of a function the node has for any request, how many of them work on requests in their turn, and how
// many have none.
func (s *Slots) Load(function string) (all, turns, free int) {
	ids, _ := s.instances.Serving(function)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		switch c := s.busy[id]; {
		case c == nil:
			free++
		case c.attempt == nil || c.attempt.InTurn():
			turns++
		}
	}
	return len(ids), turns, free
}

// Take waits for an instance of a function on this node that has no request, and has it until free is called: one of those that take
// any, or the one that the request is bound to. With an attempt it is for that: requests in their turn go first, and squash one to have
// its instance. A request in its turn that is bound to none does not wait for one to be made: ErrNone says that there is none.
func (s *Slots) Take(ctx context.Context, function, bound string, a *attempt.Attempt) (instance string, free func(), err error) {
	c := &claim{function: function, bound: bound, attempt: a, got: make(chan struct{})}
	s.mu.Lock()
	q := s.waiting[function]
	if q == nil {
		q = &queue{}
		s.waiting[function] = q
	}
	if a == nil {
		q.turns = append(q.turns, c)
	} else {
		q.ahead = append(q.ahead, c)
	}
	s.mu.Unlock()
	for {
		all, changed := s.deal(function)
		if all == 0 && bound == "" && a == nil {
			s.leave(c)
			return "", nil, ErrNone
		}
		select {
		case <-c.got:
			return c.instance, func() { s.free(c) }, nil
		case <-changed:
		case <-ctx.Done():
			s.leave(c)
			return "", nil, context.Cause(ctx)
		}
	}
}

// leave has a claim wait no more.
func (s *Slots) leave(c *claim) {
	s.mu.Lock()
	q := s.waiting[c.function]
	if q != nil {
		is := func(other *claim) bool { return other == c }
		q.turns, q.ahead = slices.DeleteFunc(q.turns, is), slices.DeleteFunc(q.ahead, is)
		s.forget(c.function, q)
	}
	has := c.instance != ""
	s.mu.Unlock()
	if has {
		s.free(c)
	}
}

// forget drops a queue in which nobody waits; the caller holds mu.
func (s *Slots) forget(function string, q *queue) {
	if len(q.turns)+len(q.ahead) == 0 {
		delete(s.waiting, function)
	}
}

// free gives an instance back.
func (s *Slots) free(c *claim) {
	s.mu.Lock()
	if s.busy[c.instance] == c {
		delete(s.busy, c.instance)
	}
	s.mu.Unlock()
	s.deal(c.function)
}

// deal gives the function's free instances to those who wait.
func (s *Slots) deal(function string) (all int, changed <-chan struct{}) {
	ids, changed := s.instances.Serving(function)
	s.mu.Lock()
	q := s.waiting[function]
	if q == nil {
		s.mu.Unlock()
		return len(ids), changed
	}
	for _, list := range []*[]*claim{&q.turns, &q.ahead} {
		*list = slices.DeleteFunc(*list, func(c *claim) bool { return s.give(c, ids) })
	}
	squashed := s.claimed(ids, len(q.turns))
	s.forget(function, q)
	s.mu.Unlock()
	for _, a := range squashed {
		a.Squash()
	}
	return len(ids), changed
}

// claimed are the attempts whose instances so many requests in their turn are to have; the caller holds mu. They become free when
// their programs have ended.
func (s *Slots) claimed(ids []string, wanted int) (squash []*attempt.Attempt) {
	for _, id := range ids {
		c := s.busy[id]
		if c == nil || c.attempt == nil || c.attempt.InTurn() {
			continue
		}
		if wanted--; wanted < 0 {
			break
		}
		if !c.attempt.IsSquashed() {
			squash = append(squash, c.attempt)
		}
	}
	return squash
}

// give gives a claim an instance that is free; the caller holds mu.
func (s *Slots) give(c *claim, ids []string) bool {
	free := func(id string) bool { return s.busy[id] == nil && (c.attempt == nil || s.instances.IsClosed(id)) }
	id := c.bound
	if id == "" || !free(id) {
		at := slices.IndexFunc(ids, free)
		if at < 0 {
			return false
		}
		id = ids[at]
	}
	c.instance, s.busy[id] = id, c
	close(c.got)
	return true
}
