package attempt

import (
	"slices"
	"sync"
	"time"
)

// Line has the attempts of a run in the order of their turns. What one has done elsewhere, a later one may see when the program has answered
// (SpecFaaS, section V-C, forwards what is written at once: a program would see half of it).
type Line struct {
	stalls *Stalls

	mu    sync.Mutex
	of    []*Attempt
	born  int
	wrote map[string]writer // by what was written
}

// writer is who has written something last, and when that has counted.
type writer struct {
	task string
	at   time.Time
}

// NewLine returns a line without attempts, of a run whose workflow has these stalls.
func NewLine(s *Stalls) *Line { return &Line{stalls: s, wrote: map[string]writer{}} }

// New returns an attempt of a task that has not begun. It is in no order yet.
func (l *Line) New(task string) *Attempt {
	a := New()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.born++
	a.line, a.task, a.rank = l, task, l.born
	return a
}

// Order says in which order the turns of attempts will come.
func (l *Line) Order(of []*Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = of
}

// Before are the attempts whose turns come before, the last one first.
func (a *Attempt) Before() []*Attempt {
	if a.line == nil {
		return nil
	}
	a.line.mu.Lock()
	defer a.line.mu.Unlock()
	all := slices.Clone(a.line.of[:max(0, slices.Index(a.line.of, a))])
	slices.Reverse(all)
	return all
}

// Older tells whether the attempt was made before another one of its run.
func (a *Attempt) Older(than *Attempt) bool { return a.rank < than.rank }

// Stalls are those of the attempts before that have not answered, and have written several times what this one had read too early.
func (a *Attempt) Stalls() (all []*Attempt) {
	for _, b := range a.Before() {
		if a.line.stalls.is(b.task, a.task) {
			all = append(all, b)
		}
	}
	return all
}

// Counts says that what the attempt has read held, and that what it has written is there.
func (a *Attempt) Counts(wrote []string) {
	l := a.line
	if l == nil {
		return
	}
	l.stalls.held(a.task)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range wrote {
		l.wrote[what] = writer{a.task, time.Now()}
	}
}

// Conflicts says that something of what the attempt has read did not hold. Its first look was at a time.
func (a *Attempt) Conflicts(read []string, since time.Time) {
	l := a.line
	if l == nil {
		return
	}
	l.mu.Lock()
	var by []string
	for _, what := range read {
		if w, is := l.wrote[what]; is && w.at.After(since) && !slices.Contains(by, w.task) {
			by = append(by, w.task)
		}
	}
	l.mu.Unlock()
	for _, task := range by {
		l.stalls.note(task, a.task)
	}
}

// Stalls are pairs of a workflow's tasks, of which the second one has read too early what the first one wrote. It waits for the first one's answer
// when that has happened stallAfter times in a row (SpecFaaS, section V-C, "Minimizing the frequency of squashes", and VII).
type Stalls struct {
	mu    sync.Mutex
	times map[pair]int
}

type pair struct{ writer, reader string }

const (
	stallAfter = 3
	// pairsMost is how many pairs are known.
	pairsMost = 1024
)

// NewStalls returns none.
func NewStalls() *Stalls { return &Stalls{times: map[pair]int{}} }

func (s *Stalls) is(writer, reader string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[pair{writer, reader}] >= stallAfter
}

func (s *Stalls) note(writer, reader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := (pair{writer, reader}); s.times[p] > 0 || len(s.times) < pairsMost {
		s.times[p]++
	}
}

// held forgets pairs that are not known for certain.
func (s *Stalls) held(reader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, n := range s.times {
		if p.reader == reader && n < stallAfter {
			delete(s.times, p)
		}
	}
}
