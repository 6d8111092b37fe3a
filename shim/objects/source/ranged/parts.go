package ranged

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// slower is how many times slower than a free connection the one is that loses the oldest part to it. Connections that
// share a full link differ by as much at any time.
const slower = 2

// errTaken ends the reading of a part with which another connection goes on.
var errTaken = errors.New("another connection goes on with the part")

// part is what one connection reads of an object.
type part struct {
	ctx   context.Context // ends when another connection takes the part over
	take  context.CancelCauseFunc
	left  chan struct{} // closed when the connection has done with it
	began time.Time
	// before is the part that this one is the rest of, and resumed is closed when the store has answered for the rest.
	// Until then the one that lost it asks for nothing: net/http would give it the faster connection.
	before  *part
	resumed chan struct{}
	once    sync.Once

	at   atomic.Int64 // what was written ends here
	from int64
	end  int64
}

// parts hands an object's parts out, in order, so that the prefix grows early.
type parts struct {
	size  int64 // of one
	until int64 // where the object ends, 0 before that is known

	mu    sync.Mutex
	next  int64 // where the next one begins
	under map[*part]bool
}

func (s *parts) add(ctx context.Context, from, end int64) *part {
	p := &part{left: make(chan struct{}), resumed: make(chan struct{}), began: time.Now(), from: from, end: end}
	p.ctx, p.take = context.WithCancelCause(ctx)
	p.at.Store(from)
	s.under[p] = true
	return p
}

// first is the part by which the object's size becomes known.
func (s *parts) first(ctx context.Context) *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under, s.next = map[*part]bool{}, s.size
	return s.add(ctx, 0, s.size)
}

// claim returns what a connection reads next that has read so many bytes in a second, 0 if that is not known; nil if
// nothing is left. It is the next part, or what is left of the oldest one if its connection is slower: one that a full
// link starves would hold up the prefix for seconds.
func (s *parts) claim(ctx context.Context, rate float64) *part {
	for {
		s.mu.Lock()
		old := s.oldest()
		if old == nil || !old.slow(rate, s.size) {
			defer s.mu.Unlock()
			if s.next >= s.until {
				return nil
			}
			s.next += s.size
			return s.add(ctx, s.next-s.size, min(s.next, s.until))
		}
		delete(s.under, old)
		s.mu.Unlock()
		old.take(errTaken)
		<-old.left
		if at := old.at.Load(); at < min(old.end, s.until) { // else it was there just then
			s.mu.Lock()
			defer s.mu.Unlock()
			p := s.add(ctx, at, old.end)
			p.before = old
			return p
		}
		close(old.resumed)
	}
}

// answered says that the store has answered for the part, or will not.
func (p *part) answered() {
	p.once.Do(func() {
		if p.before != nil {
			close(p.before.resumed)
		}
	})
}

// leave says that a connection has done with a part, and tells whether it was the last one.
func (s *parts) leave(p *part) (last bool) {
	p.take(nil)
	p.answered()
	close(p.left)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, p)
	return s.next >= s.until && len(s.under) == 0
}

func (s *parts) oldest() (old *part) {
	for p := range s.under {
		if old == nil || p.from < old.from {
			old = p
		}
	}
	return old
}

// slow tells whether a connection with a rate would have read a whole part since this one began, and so many times what
// has come of it.
func (p *part) slow(rate float64, size int64) bool {
	came := p.at.Load() - p.from
	return time.Since(p.began).Seconds()*rate > float64(size+slower*came)
}

// rate is how many bytes of the part have come in a second.
func (p *part) rate() float64 {
	return float64(p.at.Load()-p.from) / max(time.Since(p.began).Seconds(), time.Microsecond.Seconds())
}
