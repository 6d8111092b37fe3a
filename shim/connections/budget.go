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
	// tellEvery is how often the control plane hears what the node has and wants, if that is different or is to be allowed
	// again.
	tellEvery = 2 * time.Second
	// wordsRemembered is how many messages an answer may be late by: two minutes.
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
	if until = sent.Add(m.GetExpiresIn().AsDuration()); !now.Before(until) {
		return until, false
	}
	b.obeys, b.until = m.GetId(), until
	return until, true
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
	for {
		now := s.unused()
		if len(now) > 0 || len(told) > 0 {
			tell(s.budget.word(now, time.Now()))
			told = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
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
