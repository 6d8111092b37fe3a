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

	mu           sync.Mutex
	lines        map[Key]*line[C]
	destinations map[string]*destination[C]
}

// destination is what the lines of one destination share.
type destination[C Conn] struct {
	lines []*line[C] // in the order of their keys
	// allowed is how many unused connections the node may have, until when.
	allowed int
	until   time.Time
	held    int // those that are being opened, wait, or are being closed
	// blocked are lines that have less than their share while others hold more than theirs.
	blocked map[*line[C]]bool
	silent  bool // nothing is to wait, until Renew
}

// line has the unused connections of one key.
type line[C Conn] struct {
	key     Key
	of      *destination[C]
	wants   int          // how many are to wait
	share   int          // how many of them may
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
	p := &Pool[C]{config: c, lines: map[Key]*line[C]{}, destinations: map[string]*destination[C]{}}
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

// Waits tells whether a connection waits for the key.
func (p *Pool[C]) Waits(k Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[k]
	return l != nil && len(l.waits) > 0
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
		l.count(time.Now())
		l.look()
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
	d := p.of(k.Destination)
	if p.ctx.Err() != nil || d.silent {
		return
	}
	now := time.Now()
	l := p.lines[k]
	if l == nil {
		d.forget(k, now)
		l = &line[C]{key: k, of: d, changed: make(chan struct{}, 1)}
		p.lines[k] = l
		at, _ := slices.BinarySearchFunc(d.lines, k, (*line[C]).compare)
		d.lines = slices.Insert(d.lines, at, l)
		p.wg.Go(func() { p.keep(l) })
	}
	l.demand.started(now)
	l.count(now)
	l.look()
}

// of returns what the lines of a destination share. The caller holds mu.
func (p *Pool[C]) of(name string) *destination[C] {
	d := p.destinations[name]
	if d == nil {
		d = &destination[C]{blocked: map[*line[C]]bool{}}
		p.destinations[name] = d
	}
	return d
}

// forget makes room for one more key of a function: of too many, nothing is wanted any more of that which was asked for
// longest ago. The caller holds the pool's mu, as do those of all methods of a destination, and of a line's that follow.
func (d *destination[C]) forget(k Key, now time.Time) {
	var same []*line[C]
	for _, l := range d.lines {
		if l.key.Namespace == k.Namespace && l.key.Function == k.Function {
			same = append(same, l)
		}
	}
	if len(same) >= linesMost {
		oldest := slices.MinFunc(same, func(a, b *line[C]) int { return a.demand.last().Compare(b.demand.last()) })
		oldest.demand.starts = nil
		oldest.count(now)
		oldest.look()
	}
}

// count has the shares dealt again if the line wants another number than before.
func (l *line[C]) count(now time.Time) {
	if n := l.demand.want(now); n != l.wants {
		l.wants = n
		l.of.deal()
	}
}

// look has a line look again.
func (l *line[C]) look() {
	select {
	case l.changed <- struct{}{}:
	default: // it is about to look
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
	p.of(k.Destination).left()
	if l := p.lines[k]; l != nil {
		l.look()
	}
}

// left notes that the destination has one unused connection less.
func (d *destination[C]) left() {
	d.held--
	d.unblock()
}

// unblock has the lines look again that wait for others to let go.
func (d *destination[C]) unblock() {
	for l := range d.blocked {
		l.look()
	}
	clear(d.blocked)
}

// Allow says how many unused connections the node may have with a destination, until when. It may have none before.
func (p *Pool[C]) Allow(destination string, unused int, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.of(destination)
	if until.Before(d.until) {
		d.look()
	}
	d.allowed, d.until = unused, until
	d.deal()
	d.unblock()
}

// Renew gives up all unused connections with a destination: its address is another one, or its credentials are.
func (p *Pool[C]) Renew(destination string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.of(destination)
	d.silent = false
	for _, l := range d.lines {
		l.again, l.delay = time.Time{}, 0
		l.era++
	}
	d.look()
}

// Silence gives up all unused connections with a destination, and has none wait before Renew: none could be used.
func (p *Pool[C]) Silence(destination string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.of(destination)
	d.silent = true
	for _, l := range d.lines {
		l.demand.starts, l.wants = nil, 0
	}
	d.deal()
	d.look()
}

// look has all lines look again.
func (d *destination[C]) look() {
	for _, l := range d.lines {
		l.look()
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
	d := p.of(destination)
	if time.Now().Before(d.until) {
		allowed = d.allowed
	}
	return d.held, allowed
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
	d := l.of
	if !now.Before(d.until) && d.allowed > 0 {
		d.allowed = 0
		d.deal()
	}
	l.count(now)
	may := l.share
	if p.ctx.Err() != nil {
		may = 0
	}
	if may > 0 {
		sooner(d.until)
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
	if len(l.demand.starts) > 0 {
		sooner(l.demand.starts[0].Add(remembered))
	}
	if p.ctx.Err() != nil || l.wants == 0 && len(stay) == 0 {
		delete(p.lines, l.key)
		delete(d.blocked, l)
		d.lines = slices.DeleteFunc(d.lines, func(other *line[C]) bool { return other == l })
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
	if d.held >= d.allowed {
		d.blocked[l] = true // another line has them still
		return s
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
	d.held++
	return s
}

// open opens a connection for a line.
func (p *Pool[C]) open(l *line[C], era int) {
	began := time.Now()
	until := began.Add(openTimeout)
	p.mu.Lock()
	if l.of.until.Before(until) {
		until = l.of.until // what is being opened counts
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
		l.of.left()
		if l.era == era {
			l.failed(now)
		}
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
		l.of.left()
		claim <- c
		return
	}
	if claim != nil {
		close(claim)
	}
	l.waits = append(l.waits, &unused[C]{era: era, opened: now, expires: now.Add(ttl + rand.N(ttlJitter)), Held: Hold(c, l.look)})
}

// failed has the next connection be opened later; the caller holds the pool's mu.
func (l *line[C]) failed(now time.Time) {
	l.delay = min(max(backoff, 2*l.delay), backoffMost)
	l.again = now.Add(l.delay/2 + rand.N(l.delay/2))
}

// deal shares what is allowed among the lines that want some: one after the other, to the namespace that has the fewest,
// and there to the line that has the fewest. Lines that get another share than before look again.
func (d *destination[C]) deal() {
	// one is an unused connection: its number in the namespace, and in the line.
	type one struct {
		ofNamespace, ofLine int
		line                *line[C]
	}
	var all []one
	for from := 0; from < len(d.lines); {
		to := from // where the lines of the next namespace begin
		for to < len(d.lines) && d.lines[to].key.Namespace == d.lines[from].key.Namespace {
			to++
		}
		first := len(all)
		for n := range keptMost {
			for _, l := range d.lines[from:to] {
				if n < l.wants {
					all = append(all, one{len(all) - first, n, l})
				}
			}
		}
		from = to
	}
	slices.SortStableFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(a.ofNamespace, b.ofNamespace), cmp.Compare(a.ofLine, b.ofLine))
	})
	shares := map[*line[C]]int{}
	for _, o := range all[:min(len(all), max(d.allowed, 0))] {
		shares[o.line]++
	}
	for _, l := range d.lines {
		if l.share != shares[l] {
			l.share = shares[l]
			l.look()
		}
	}
}

func (l *line[C]) compare(k Key) int { return l.key.compare(k) }

func (k Key) compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Destination, other.Destination), cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Function, other.Function), cmp.Compare(k.Start, other.Start))
}
