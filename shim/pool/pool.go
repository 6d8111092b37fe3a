// Package pool keeps connections that nobody uses yet: a program that starts gets one that is there already. Each is for
// one function, and used once.
package pool

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// ttl and ttlJitter bound the age of an unused connection: load balancers forget idle ones after 4 minutes at the
	// earliest (Azure's; AWS' after 350 s), and those that were opened together are not to end together.
	ttl       = 3 * time.Minute
	ttlJitter = 30 * time.Second
	// shortLived is the age of an unused connection below which its end counts as a failure to open it: a driver's parameters
	// can have the server end idle sessions at once.
	shortLived = 10 * time.Second
	// openTimeout bounds the opening of one.
	openTimeout = 10 * time.Second
	// backoff is the pause after the first failure to open one, which doubles until backoffMost.
	backoff     = time.Second
	backoffMost = time.Minute
	// linesMost is how many keys one function has with a destination: a driver's parameters are the program's to choose.
	linesMost = 4
)

// Key is whose a connection is: nobody else gets it.
type Key struct {
	// Function is namespace/name.
	Namespace, Function, Destination string
	// Start is what the function's driver asks for when it starts.
	Start string
}

// Config is what a pool is made of.
type Config[C Conn] struct {
	// Open opens a connection.
	Open func(ctx context.Context, k Key) (C, error)
	// Lost hears of each unused connection that is given up, and why.
	Lost func(k Key, why string)
	// Failed hears of each that could not be opened. The next try comes later.
	Failed func(k Key, err error)
}

// Why an unused connection is given up.
const (
	LostEnded   = "ended"   // something came, or its end
	LostAge     = "age"     // it has waited for long
	LostExcess  = "excess"  // fewer are wanted, or allowed
	LostRenewed = "renewed" // its address or its credentials are no more
)

// Pool has the unused connections of a node. Its methods may be called at the same time.
type Pool[C Conn] struct {
	config Config[C]

	ctx    context.Context // ends what the pool does by itself
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	lines   map[Key]*line[C]
	allowed map[string]allowance
	// held is how many are being opened, wait, or are being closed, by their destination.
	held map[string]int
}

// allowance is how many unused connections the node may have with a destination, until when.
type allowance struct {
	unused int
	until  time.Time
}

// line has the unused connections of one key.
type line[C Conn] struct {
	key     Key
	waits   []*unused[C] // the oldest first
	demand  demand
	opening int           // 1 while one is being opened, which counts as one that waits
	claim   chan C        // gets the one that is being opened; nil: nobody waits for it
	era     int           // it changes when what is being opened is of no use any more
	again   time.Time     // after a failure, when the next one may be opened
	delay   time.Duration // the pause after the last failure
	short   time.Time     // since when fewer wait than are wanted; zero: as many do
	changed chan struct{} // holds 1
}

// unused is a connection of a line.
type unused[C Conn] struct {
	*Held[C]
	era     int
	opened  time.Time
	expires time.Time
}

// New returns an empty pool, which may hold nothing before Allow.
func New[C Conn](c Config[C]) *Pool[C] {
	p := &Pool[C]{config: c, lines: map[Key]*line[C]{}, allowed: map[string]allowance{}, held: map[string]int{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close closes all unused connections.
func (p *Pool[C]) Close() {
	p.mu.Lock()
	p.cancel() // no line begins any more
	p.mu.Unlock()
	p.wg.Wait()
}

// Take returns a connection that waits for the key, or the one that is being opened for it; false: there is none. It notes
// that one was wanted.
func (p *Pool[C]) Take(ctx context.Context, k Key) (c C, ok bool) {
	p.want(k)
	for {
		u, soon := p.first(k)
		switch {
		case soon != nil:
			return p.await(ctx, k, soon)
		case u == nil:
			return c, false
		}
		c, err := u.Take()
		p.left(k)
		if err == nil {
			return c, true
		}
		p.config.Lost(k, LostEnded)
	}
}

// Correct notes that the program which was the last to take something of the key wanted it of another start: some drivers
// say bit by bit what they want.
func (p *Pool[C]) Correct(k Key, start string) {
	p.Forget(k)
	k.Start = start
	p.want(k)
}

// Forget takes back that a program wanted something of the key: it cannot be had.
func (p *Pool[C]) Forget(k Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[k]; l != nil {
		l.demand.forgetLast()
		p.tell(k.Destination)
	}
}

// await returns the connection that is being opened; false: it could not be.
func (p *Pool[C]) await(ctx context.Context, k Key, soon chan C) (c C, ok bool) {
	select {
	case c, ok = <-soon:
		return c, ok
	case <-ctx.Done():
	}
	p.mu.Lock()
	if l := p.lines[k]; l != nil && l.claim == soon {
		l.claim = nil // it waits for somebody else
		p.mu.Unlock()
		return c, false
	}
	p.mu.Unlock()
	c, ok = <-soon
	return c, ok
}

// want notes that one is wanted of the key.
func (p *Pool[C]) want(k Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	l := p.lines[k]
	if l == nil {
		p.forget(k)
		l = &line[C]{key: k, changed: make(chan struct{}, 1)}
		p.lines[k] = l
		p.wg.Go(func() { p.keep(l) })
	}
	l.demand.started(time.Now())
	p.tell(k.Destination)
}

// forget makes room for one more key of a function: of too many, nothing is wanted any more of that which was asked for
// longest ago. The caller holds mu.
func (p *Pool[C]) forget(k Key) {
	var same []*line[C]
	for of, l := range p.lines {
		if of.Start = k.Start; of == k {
			same = append(same, l)
		}
	}
	if len(same) >= linesMost {
		slices.MinFunc(same, func(a, b *line[C]) int { return a.demand.last().Compare(b.demand.last()) }).demand.starts = nil
	}
}

// first takes the connection out that waits the longest, or else claims the one that is being opened.
func (p *Pool[C]) first(k Key) (u *unused[C], soon chan C) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[k]
	switch {
	case l == nil:
	case len(l.waits) > 0:
		u = l.waits[0]
		l.waits = l.waits[1:]
	case l.opening > 0 && l.claim == nil:
		l.claim = make(chan C, 1)
		soon = l.claim
	}
	return u, soon
}

// left notes that an unused connection is used, or closed.
func (p *Pool[C]) left(k Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[k.Destination]--
	p.tell(k.Destination)
}

// Allow says how many unused connections the node may have with a destination, until when. It may have none before.
func (p *Pool[C]) Allow(destination string, unused int, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allowed[destination] = allowance{unused, until}
	p.tell(destination)
}

// Renew gives up all unused connections with a destination: its address is another one, or its credentials are.
func (p *Pool[C]) Renew(destination string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, l := range p.lines {
		if k.Destination == destination {
			l.again, l.delay = time.Time{}, 0
			l.era++
		}
	}
	p.tell(destination)
}

// tell has the lines of a destination look again; the caller holds mu.
func (p *Pool[C]) tell(destination string) {
	for k, l := range p.lines {
		if k.Destination != destination {
			continue
		}
		select {
		case l.changed <- struct{}{}:
		default: // it is about to look
		}
	}
}

// Usage is what a pool has, and would have.
type Usage struct {
	Key
	// Held counts those that are being opened, too. Wanted is what would be held without a limit.
	Held, Wanted int
	// Setup is how long it takes to open one.
	Setup time.Duration
	// Since is when the oldest was opened; zero: none waits.
	Since time.Time
}

// Usage returns it for each key, in order.
func (p *Pool[C]) Usage() []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []Usage
	for k, l := range p.lines {
		u := Usage{Key: k, Held: l.holds(), Wanted: l.demand.want(time.Now()), Setup: l.demand.setup}
		if len(l.waits) > 0 {
			u.Since = l.waits[0].opened
		}
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b Usage) int { return a.compare(b.Key) })
	return all
}

// Held is how many unused connections there are with a destination, with those that are being opened or closed, and how
// many there may be.
func (p *Pool[C]) Held(destination string) (held, allowed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.allowed[destination]; time.Now().Before(a.until) {
		allowed = a.unused
	}
	return p.held[destination], allowed
}

func (l *line[C]) holds() int { return len(l.waits) + l.opening }

// keep has as many connections wait as the line wants and may have, until nothing is wanted of it any more.
func (p *Pool[C]) keep(l *line[C]) {
	for {
		s := p.step(l)
		for _, g := range s.give {
			g.Drop()
			p.left(l.key)
			p.config.Lost(l.key, g.why)
		}
		switch {
		case s.ends:
			return
		case s.open:
			p.open(l, s.era)
			continue
		case len(s.give) > 0:
			continue
		}
		wake := time.NewTimer(time.Until(s.next))
		select {
		case <-wake.C:
		case <-l.changed:
		case <-p.ctx.Done():
		}
		wake.Stop()
	}
}

// step is what a line does next.
type step[C Conn] struct {
	give []given[C]
	open bool
	era  int
	ends bool
	next time.Time // when to look again, at the latest
}

type given[C Conn] struct {
	*unused[C]
	why string
}

func (p *Pool[C]) step(l *line[C]) (s step[C]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s.next = now.Add(remembered)
	sooner := func(t time.Time) {
		if t.Before(s.next) {
			s.next = t
		}
	}
	may, allowed := 0, p.allowed[l.key.Destination]
	if now.Before(allowed.until) && p.ctx.Err() == nil {
		may = p.deal(l.key.Destination, allowed.unused, now)[l.key]
		sooner(allowed.until)
	}
	var stay []*unused[C]
	for i, u := range l.waits {
		switch left := len(l.waits) - i; {
		case u.Ended():
			if s.give = append(s.give, given[C]{u, LostEnded}); now.Sub(u.opened) < shortLived {
				l.failed(now)
			}
		case u.era != l.era:
			s.give = append(s.give, given[C]{u, LostRenewed})
		case !now.Before(u.expires):
			s.give = append(s.give, given[C]{u, LostAge})
		case len(stay)+left > may:
			s.give = append(s.give, given[C]{u, LostExcess})
		default:
			stay = append(stay, u)
			if sooner(u.expires); now.Sub(u.opened) >= shortLived {
				l.delay = 0
			}
		}
	}
	l.waits = stay
	want := l.demand.want(now)
	if len(l.demand.starts) > 0 {
		sooner(l.demand.starts[0].Add(remembered))
	}
	if p.ctx.Err() != nil || want == 0 && len(stay) == 0 {
		delete(p.lines, l.key)
		s.ends = true
		return s
	}
	if len(stay) >= may {
		l.short = time.Time{}
		return s
	}
	if l.short.IsZero() {
		l.short = now
	}
	if p.held[l.key.Destination] >= allowed.unused {
		return s // another line has them still, and tells when it has let go
	}
	at := l.demand.last().Add(pause)
	if latest := l.short.Add(pauseMost); latest.Before(at) {
		at = latest
	}
	if l.again.After(at) {
		at = l.again
	}
	if sooner(at); now.Before(at) {
		return s
	}
	s.open, s.era, l.opening = true, l.era, 1
	p.held[l.key.Destination]++
	return s
}

// open opens a connection for a line.
func (p *Pool[C]) open(l *line[C], era int) {
	began := time.Now()
	until := began.Add(openTimeout)
	p.mu.Lock()
	if a := p.allowed[l.key.Destination]; a.until.Before(until) {
		until = a.until // what is being opened counts
	}
	p.mu.Unlock()
	ctx, cancel := context.WithDeadline(p.ctx, until)
	c, err := p.config.Open(ctx, l.key)
	cancel()
	now := time.Now()
	p.mu.Lock()
	claim := l.claim
	l.opening, l.claim = 0, nil
	if err != nil {
		if claim != nil {
			close(claim)
		}
		p.held[l.key.Destination]--
		if l.era == era {
			l.failed(now)
		}
		p.tell(l.key.Destination)
		ended := p.ctx.Err() != nil
		p.mu.Unlock()
		if !ended {
			p.config.Failed(l.key, err)
		}
		return
	}
	defer p.mu.Unlock()
	l.demand.opened(now.Sub(began))
	if claim != nil && era == l.era {
		p.held[l.key.Destination]--
		p.tell(l.key.Destination)
		claim <- c
		return
	}
	if claim != nil {
		close(claim)
	}
	l.waits = append(l.waits, &unused[C]{era: era, opened: now, expires: now.Add(ttl + rand.N(ttlJitter)), Held: Hold(c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tell(l.key.Destination)
	})})
}

// failed has the next connection be opened later; the caller holds the pool's mu.
func (l *line[C]) failed(now time.Time) {
	l.delay = min(max(backoff, 2*l.delay), backoffMost)
	l.again = now.Add(l.delay/2 + rand.N(l.delay/2))
}

// deal shares n unused connections of a destination among the lines that want some: one after the other, to the namespace
// that has the fewest, and there to the line that has the fewest. The caller holds mu.
func (p *Pool[C]) deal(destination string, n int, now time.Time) map[Key]int {
	wants, dealt, namespaces := map[Key]int{}, map[Key]int{}, map[string]int{}
	var keys []Key
	for k, l := range p.lines {
		if k.Destination == destination {
			wants[k] = l.demand.want(now)
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, Key.compare)
	for range n {
		var next *Key
		for i, k := range keys {
			if dealt[k] < wants[k] && (next == nil ||
				cmp.Or(cmp.Compare(namespaces[k.Namespace], namespaces[next.Namespace]), cmp.Compare(dealt[k], dealt[*next])) < 0) {
				next = &keys[i]
			}
		}
		if next == nil {
			break
		}
		dealt[*next]++
		namespaces[next.Namespace]++
	}
	return dealt
}

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Destination, other.Destination), cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Function, other.Function), cmp.Compare(k.Start, other.Start))
}
