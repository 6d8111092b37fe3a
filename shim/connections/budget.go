package connections

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// tellEvery is how often the control plane hears what the node has and wants, at most: if that is another number, or if
	// nobody has answered, since another control plane takes charge.
	tellEvery = 2 * time.Second
	// tellLatest is how often it hears that in any case. An allowance holds for 30 s, and until another control plane has
	// taken over and answers, up to 20 s pass.
	tellLatest = 8 * time.Second
	// wordsRemembered is how many messages an answer may be late by: two minutes at least.
	wordsRemembered = 64
	// functionsTold is how many functions of a destination it hears of: as many as a screen shows.
	functionsTold = 64
)

// budget is what the node may hold of unused connections, which the control plane says for a while only: a node that it
// does not reach has none after that.
type budget struct {
	mu    sync.Mutex
	id    int64               // of the last message
	sent  map[int64]time.Time // when those before were, by their ids
	obeys int64
	until time.Time
	// answered is the id of the newest message that allowances have answered.
	answered int64
}

// word returns a message about all, and notes when it was made.
func (b *budget) word(all []*nodeapi.UnusedConnections, now time.Time) *nodeapi.Unused {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sent == nil {
		b.sent = map[int64]time.Time{}
	}
	b.id++
	b.sent[b.id] = now
	delete(b.sent, b.id-wordsRemembered)
	if !now.Before(b.until) {
		b.obeys = 0
	}
	return &nodeapi.Unused{Id: b.id, Allowances: b.obeys, Destinations: all}
}

// heard returns until when allowances hold; false: they answer nothing that was said lately.
func (b *budget) heard(m *nodeapi.Allowances, now time.Time) (until time.Time, known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sent, known := b.sent[m.GetAnswers()]
	if !known {
		return until, false
	}
	b.answered = max(b.answered, m.GetAnswers())
	if until = sent.Add(m.GetExpiresIn().AsDuration()); !now.Before(until) {
		return until, false
	}
	b.obeys, b.until = m.GetId(), until
	return until, true
}

// open tells whether the last message has no answer yet.
func (b *budget) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.answered < b.id
}

// Allow takes the control plane's word of how many unused connections the node may hold.
func (s *Server) Allow(m *nodeapi.Allowances) {
	until, known := s.budget.heard(m, time.Now())
	if !known {
		return
	}
	may := map[string]int{}
	for _, a := range m.GetDestinations() {
		n := int(a.GetUnused())
		if held, _ := s.pool.Held(a.GetDestination()); m.GetKeep() {
			n = min(n, held)
		}
		may[a.GetDestination()] = n
	}
	for _, name := range s.list.names() {
		s.pool.Allow(name, may[name], until)
	}
}

// TellUnused tells the control plane what the node has and wants of unused connections, until ctx ends.
func (s *Server) TellUnused(ctx context.Context, tell func(*nodeapi.Unused)) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var told []*nodeapi.UnusedConnections
	var last time.Time
	for {
		now := s.unused()
		due := s.budget.open() || time.Since(last)+tellEvery > tellLatest || !slices.EqualFunc(now, told, alike)
		if due && len(now)+len(told) > 0 {
			last = time.Now()
			tell(s.budget.word(now, last))
			told = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// alike tells whether two words about a destination have the same numbers. Ages and times differ always.
func alike(a, b *nodeapi.UnusedConnections) bool {
	return a.GetDestination() == b.GetDestination() && a.GetHeld() == b.GetHeld() && a.GetWanted() == b.GetWanted() &&
		a.GetAllowed() == b.GetAllowed() &&
		slices.EqualFunc(a.GetFunctions(), b.GetFunctions(), func(a, b *nodeapi.PooledFunction) bool {
			return a.GetName() == b.GetName() && a.GetHeld() == b.GetHeld() && a.GetWanted() == b.GetWanted()
		})
}

// unused are what the node has and wants, by destination.
func (s *Server) unused() (all []*nodeapi.UnusedConnections) {
	for _, u := range s.pool.Usage() {
		if n := len(all); n == 0 || all[n-1].GetDestination() != u.Destination {
			all = append(all, &nodeapi.UnusedConnections{Destination: u.Destination})
		}
		of := all[len(all)-1]
		of.Wanted += int32(u.Wanted)
		f := &nodeapi.PooledFunction{Name: u.Function, Held: int32(u.Held), Wanted: int32(u.Wanted), Setup: durationpb.New(u.Setup)}
		if !u.Since.IsZero() {
			f.Oldest = durationpb.New(time.Since(u.Since))
		}
		of.Functions = append(of.Functions, f)
	}
	for _, of := range all {
		slices.SortStableFunc(of.Functions, func(a, b *nodeapi.PooledFunction) int { return cmp.Compare(b.GetHeld(), a.GetHeld()) })
		of.Functions = of.Functions[:min(len(of.Functions), functionsTold)]
	}
	for _, name := range s.list.names() {
		held, allowed := s.pool.Held(name)
		at := slices.IndexFunc(all, func(u *nodeapi.UnusedConnections) bool { return u.GetDestination() == name })
		switch {
		case at >= 0:
			all[at].Held, all[at].Allowed = int32(held), int32(allowed)
		case held > 0:
			all = append(all, &nodeapi.UnusedConnections{Destination: name, Held: int32(held), Allowed: int32(allowed)})
		}
	}
	return all
}
