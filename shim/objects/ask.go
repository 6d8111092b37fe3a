package objects

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// patience is how long a question waits for the answer to the one before: a store that does not answer that one may
// answer another one.
const patience = 5 * time.Second

// neighbourMost is how long a neighbour's answer holds at most: so long a node that was taken over can mislead others.
const neighbourMost = time.Hour

// slot is what the node has of a Key.
type slot struct {
	held  *object // the newest that has begun: it is under way, or complete; nil: none
	next  *object // is going to ask the store: inputs that come before it does wait for the answer as well; nil: none
	asked *object // the last one that was to ask, until its fetch has ended

	under   int // how many are to ask, or have asked and are not fetched yet
	changes int // how often the node has changed the object since the first of them
}

// slot returns what the node has of a Key. The caller holds the lock.
func (c *Cache) slot(k Key) *slot {
	s := c.slots[k]
	if s == nil {
		s = &slot{}
		c.slots[k] = s
	}
	return s
}

// held is the newest object of a Key, nil if the node has none. The caller holds the lock.
func (c *Cache) held(k Key) *object {
	if s := c.slots[k]; s != nil {
		return s.held
	}
	return nil
}

// find gives the input a pin on its object: at once if what the node has is fresh, or else by the store's answer to a
// question that is asked after the input has come. So a client that stores an object and then sends a request gets that
// object, whatever is under way.
func (c *Cache) find(ctx context.Context, i *Input, ref source.Reference) error {
	for {
		o, err := c.look(ctx, i, ref)
		if o == nil {
			return err
		}
		select {
		case <-o.answered:
		case <-ctx.Done():
			if c.gaveUp(i) {
				return source.Ended(ctx, i.request.Store, ref)
			}
		}
		if found, err := c.verdict(i); found || err != nil {
			return err
		}
	}
}

// gaveUp ends an input's wait for an answer. It is false if the input has an object by now.
func (c *Cache) gaveUp(i *Input) bool {
	c.mu.Lock()
	defer c.unlock()
	c.unwait(i)
	return i.object == nil
}

// look returns the object whose answer the input has to wait for, nil if it has a pin, or an error.
func (c *Cache) look(ctx context.Context, i *Input, ref source.Reference) (*object, error) {
	c.mu.Lock()
	defer c.unlock()
	if i.owners == 0 {
		return nil, errReleased
	}
	if o := c.held(i.key); !c.known(o, i.from, i.request.Function) {
		return o, nil
	}
	s := c.slot(i.key)
	if o := s.held; !i.lone && o.fits(i.from) && o.open(i.request.Alone) && o.suits(i) && time.Since(o.asked) < i.rule.holds(o.said) && o.prolong() {
		if err := c.pin(i, o, false); !buffer.IsFull(err) {
			return nil, err
		}
		i.lone = true // where it is fetched to there may be room
	}
	o := s.next
	if o == nil || i.lone || o.from != i.from || o.namespace != fair.Namespace(i.request.Function) || !o.open(i.request.Alone) || !o.prolong() {
		o = c.question(ctx, i, ref, s)
	}
	o.waiting, i.waits = append(o.waiting, i), o
	return o, nil
}

// question begins another one. The caller holds the lock.
func (c *Cache) question(ctx context.Context, i *Input, ref source.Reference, s *slot) *object {
	o := c.newObject(i)
	ctx, cancel := context.WithCancelCause(fair.For(context.WithoutCancel(ctx), i.request.Function))
	o.cancel = func() { cancel(nil) }
	o.late = time.AfterFunc(longest, func() { cancel(context.DeadlineExceeded) })
	before, lone := s.asked, i.lone
	s.asked = o
	s.under++
	if !lone {
		s.next = o
	}
	closing := context.AfterFunc(c.ctx, o.cancel)
	c.fetches.Go(func() {
		defer o.cancel()
		defer closing()
		if before != nil {
			o.turn(ctx, before)
		}
		err := o.fetch(ctx, ref, c.ask(o, lone))
		c.ended(o, err)
		o.end(err)
	})
	return o
}

// turn waits until the question before is answered: one at a time is enough, as an answer is good for all who came
// before its question.
func (o *object) turn(ctx context.Context, before *object) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-before.answered:
	case <-late.C:
	case <-ctx.Done():
	}
}

// ask notes that o asks now: later inputs wait for another answer. It returns the object whose version is asked about;
// nil: none.
func (c *Cache) ask(o *object, lone bool) (held *object) {
	c.mu.Lock()
	defer c.unlock()
	o.asked = time.Now()
	s := c.slot(o.key)
	o.changes = s.changes
	if s.next == o {
		s.next = nil
	}
	if lone || !s.held.fits(o.from) || !s.held.open(o.alone) || s.held.about.Version == "" {
		return nil
	}
	return s.held
}

// fetch asks the store and runs the fetch, if one comes of it, to its end.
func (o *object) fetch(ctx context.Context, ref source.Reference, held *object) error {
	var unchanged *source.Unchanged
	err := errRace
	if held != nil {
		err = o.bring(ctx, ref, held.about.Version, func(about source.Object) (io.WriterAt, error) {
			if about.Version == held.about.Version { // the store does not know the question
				return nil, &source.Unchanged{Fresh: about.Fresh, From: about.From}
			}
			return o.begin(about)
		})
		if errors.As(err, &unchanged) {
			err = o.cache.adopt(o, held, unchanged)
		}
	}
	if err == errRace {
		err = o.bring(ctx, ref, "", o.begin)
	}
	if err != nil || unchanged != nil && o.entry == nil {
		return err
	}
	if o.entry == nil {
		return errNoObject
	}
	err = o.entry.Complete()
	o.measured = err == nil
	return err
}

// bring fetches the object from a neighbour, or from the store.
func (o *object) bring(ctx context.Context, ref source.Reference, held string, begin source.Begin) error {
	store := func(ctx context.Context, begin source.Begin) error {
		o.cache.mu.Lock()
		o.alone = true
		o.cache.mu.Unlock()
		return o.from.Fetch(ctx, ref, held, begin)
	}
	if o.cache.Neighbours == nil || o.alone || holds(o.from, ref) {
		return store(ctx, begin)
	}
	return o.cache.Neighbours.Fetch(ctx, o.key, held, begin, store)
}

// holds tells whether a source has an object on this node already, so that neighbours are not asked for it.
func holds(from source.Source, ref source.Reference) bool {
	h, can := from.(interface{ Holds(source.Reference) bool })
	return can && h.Holds(ref)
}

// open tells whether an input may have the object; alone: it is a neighbour's question. An object that is arriving from
// one neighbour is not for another one: two could wait for each other. The caller holds the lock.
func (o *object) open(alone bool) bool { return !alone || o.alone || o.complete() }

// says notes how long the answer holds. A neighbour's answer may be older than the question: its age is what is missing
// of the time for which the operator lets it hold. The caller holds the lock.
func (o *object) says(fresh time.Duration, from string) {
	if from != "" {
		fresh = min(fresh, neighbourMost)
	}
	o.said = fresh
	if from != "" && o.rule.Fresh > 0 {
		o.asked = o.asked.Add(min(0, fresh-o.rule.Fresh))
	}
}

var (
	errNoObject = errors.New("the source ended without an object")
	// errRace: what the store was asked about has gone meanwhile. Nobody sees it.
	errRace = errors.New("the object is not held any more")
)

// adopt gives pins on held to the inputs that wait for o's answer, which is that held has not changed.
func (c *Cache) adopt(o, held *object, answer *source.Unchanged) error {
	c.mu.Lock()
	defer c.unlock()
	if !held.fits(o.from) || !held.prolong() {
		return errRace
	}
	o.says(answer.Fresh, answer.From)
	if o.asked.After(held.asked) {
		held.asked = o.asked
		if held.said >= 0 || o.said > 0 { // what a 304 does not say stays (RFC 9111, section 4.3.4)
			held.said = o.said
		}
	}
	for _, i := range o.waiting {
		i.waits = nil
		if i.lone = !held.suits(i); !i.lone {
			err := c.pin(i, held, true)
			if i.lone = buffer.IsFull(err); !i.lone {
				i.refused = err
			}
		}
	}
	o.answer()
	return nil
}

// begun gives pins to those inputs that have waited for o, and still do. It is false if nobody does.
func (c *Cache) begun(o *object, inputs []*Input) bool {
	c.mu.Lock()
	defer c.unlock()
	for _, i := range inputs {
		if i.waits != o {
			continue
		}
		i.waits = nil
		i.way = WayShared
		if o.pins == 0 {
			i.way = o.way()
		}
		o.hold(i)
	}
	if o.pins == 0 {
		return false
	}
	o.says(o.about.Fresh, o.about.From)
	if o.from != nil {
		s := c.slot(o.key)
		if before := s.held; o.changes == s.changes && (before == nil || !o.asked.Before(before.asked)) {
			s.held = o
			c.superseded(before)
		}
	}
	o.answer()
	return true
}

// ended tells those who still wait for an answer why there will be none.
func (c *Cache) ended(o *object, err error) {
	c.mu.Lock()
	defer c.unlock()
	for _, i := range o.waiting {
		if i.waits == o { // others have an answer of their own
			i.waits, i.refused = nil, err
		}
	}
	o.answer()
	if o.from == nil {
		return
	}
	s := c.slot(o.key)
	if s.under--; s.under == 0 {
		s.changes = 0
	}
	if s.asked == o {
		s.asked = nil
	}
	if s.next == o {
		s.next = nil
	}
	if before := s.held; before == o && err != nil {
		s.held = nil
	} else if problem.ReasonOf(err) == problem.ReasonInputNotFound && before != nil && !o.asked.Before(before.asked) {
		c.superseded(before) // a client that deletes an object expects that nobody gets it
	}
	c.tidy(o.key)
}

// answer wakes the inputs that waited for o. The caller holds the lock.
func (o *object) answer() {
	o.waiting = nil
	if !isClosed(o.answered) {
		close(o.answered)
	}
}

// tidy forgets a Key of which the node has nothing. The caller holds the lock.
func (c *Cache) tidy(k Key) {
	if s := c.slots[k]; s != nil && *s == (slot{}) {
		delete(c.slots, k)
	}
}

// refuse gives an input that waits for o an error of its own. With nil the input asks the store for itself.
func (c *Cache) refuse(o *object, i *Input, err error) {
	c.mu.Lock()
	defer c.unlock()
	if i.waits == o {
		i.waits, i.refused, i.lone = nil, err, err == nil
	}
}

// verdict is the outcome of an input's wait: an object, or an error. With neither, the input looks again.
func (c *Cache) verdict(i *Input) (found bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return i.object != nil, i.refused
}
