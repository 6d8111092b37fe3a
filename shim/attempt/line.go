package attempt

import (
	"hash/maphash"
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
	wrote map[uint64]writer // by hashes of what was written
}

// hashes are those of what was written: its names may be long.
var hashes = maphash.MakeSeed()

// wroteMost is how much of what was written is known: of what came before, nobody is told that it was read too early.
const wroteMost = 1000

// writer is who has written something last, and when that has counted.
type writer struct {
	task string
	at   time.Time
}

// NewLine returns a line without attempts, of a run whose workflow has these stalls.
func NewLine(s *Stalls) *Line { return &Line{stalls: s, wrote: map[uint64]writer{}} }

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

// End forgets all of them: the run is over.
func (l *Line) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = nil
	clear(l.wrote)
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

// Stalls are those of the attempts before whose tasks have written several times what this one had read too early.
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
		if len(l.wrote) == wroteMost {
			clear(l.wrote)
		}
		l.wrote[maphash.String(hashes, what)] = writer{a.task, time.Now()}
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
		if w, is := l.wrote[maphash.String(hashes, what)]; is && w.at.After(since) && !slices.Contains(by, w.task) {
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
	known map[pair]*times
}

// times are how often a pair's reader has read too early in a row, and how often it has not since it waits.
type times struct{ early, held int }

type pair struct{ writer, reader string }

const (
	stallAfter = 3
	// tryAfter is how often a reader waits until it is tried once more without.
	tryAfter = 256
	// pairsMost is how many pairs are known.
	pairsMost = 1024
)

// NewStalls returns none.
func NewStalls() *Stalls { return &Stalls{known: map[pair]*times{}} }

func (s *Stalls) is(writer, reader string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.known[pair{writer, reader}]
	return t != nil && t.early >= stallAfter
}

func (s *Stalls) note(writer, reader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := pair{writer, reader}
	if s.known[p] == nil {
		if len(s.known) == pairsMost {
			return
		}
		s.known[p] = &times{}
	}
	s.known[p].early++
}

// held forgets pairs that are not known for certain, and is less certain of others.
func (s *Stalls) held(reader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, t := range s.known {
		switch {
		case p.reader != reader:
		case t.early < stallAfter:
			delete(s.known, p)
		default:
			if t.held++; t.held == tryAfter {
				*t = times{early: stallAfter - 1}
			}
		}
	}
}
