package objects

import (
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// Ways by which an input comes to its object.
const (
	WayStore       = "store"       // it was fetched
	WayPeer        = "peer"        // another node had it, or was about to
	WayShared      = "shared"      // another request had it fetched at the time
	WayHit         = "hit"         // the node had it, and knew that it is fresh
	WayRevalidated = "revalidated" // the node had it, and the store said that it has not changed
	WayStored      = "stored"      // a function of the node stores it
)

// way is that of who has the object fetched.
func (o *object) way() string {
	if o.about.From != "" {
		return WayPeer
	}
	return WayStore
}

// fits tells whether what is held can still be had, and is of the store as it is configured. The caller holds the
// cache's lock.
func (o *object) fits(from source.Source) bool {
	return o != nil && !o.gone && o.err == nil && o.from == from
}

// suits tells whether what shows late is for the input as it is for those who have a pin: how much there will be of
// an object of unknown size may be too much for one's limit, or for its function's quota of the buffer.
func (o *object) suits(i *Input) bool {
	return o.size() >= 0 || o.limit == i.request.Limit && o.function == i.request.Function
}

// prolong gives a fetch that is under way its whole time again: who joins late has as long as who
// began it. It is false for one whose time is over. The caller holds the cache's lock.
func (o *object) prolong() bool {
	if o.complete() {
		return true
	}
	if !o.late.Stop() {
		return false
	}
	o.late.Reset(longest)
	return true
}

func (o *object) complete() bool { return isClosed(o.done) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pin gives an input what is held. The caller holds the lock.
func (c *Cache) pin(i *Input, o *object, asked bool) error {
	if err := i.admits(o.size()); err != nil {
		return err
	}
	// What somebody uses counts for the one whose request had it brought, for as long as anybody has it.
	if err := c.take(o, i.request.Function); err != nil {
		return err
	}
	switch {
	case !o.complete():
		i.way = WayShared
	case asked:
		i.way = WayRevalidated
	default:
		i.way = WayHit
	}
	o.hold(i)
	return nil
}

// hold notes a pin. The caller holds the lock.
func (o *object) hold(i *Input) {
	i.object = o
	o.pins++
	o.uses++
	o.noticing.Add(1)
}

// unpin takes an input that has no owners any more off what it has, or waits for. The caller holds the lock.
func (c *Cache) unpin(i *Input) {
	c.unwait(i)
	o := i.object
	if o == nil {
		return
	}
	if o.pins--; o.pins > 0 {
		return
	}
	if !o.complete() {
		o.cancel()
	}
	if o.complete() && c.keeps(i, o) {
		c.idle = append(c.idle, use{o, o.uses})
		return
	}
	c.drop(o)
}

// unwait takes an input off the answer that it waits for, if it does. The caller holds the lock.
func (c *Cache) unwait(i *Input) {
	o := i.waits
	if o == nil {
		return
	}
	i.waits = nil
	o.waiting = slices.DeleteFunc(slices.Clone(o.waiting), func(other *Input) bool { return other == i })
	if len(o.waiting) == 0 {
		o.cancel()
		if s := c.slots[o.key]; s != nil && s.next == o {
			s.next = nil // the next one asks anew
		}
	}
}

// keeps tells whether what an input leaves is of use to those who come. The caller holds the lock.
func (c *Cache) keeps(i *Input, o *object) bool {
	if c.Age <= 0 || o.err != nil || c.held(o.key) != o {
		return false
	}
	holds := i.rule.holds(o.said)
	return holds >= 0 && (o.about.Version != "" || time.Since(o.asked) < holds)
}

// unheld has nobody find an object any more. The caller holds the lock.
func (c *Cache) unheld(o *object) {
	if c.held(o.key) == o {
		c.slots[o.key].held = nil
		c.tidy(o.key)
	}
}

// superseded has nobody find an object any more, and lets go of it if nobody uses it. The caller holds the lock.
func (c *Cache) superseded(o *object) {
	if o == nil {
		return
	}
	c.leave(o)
	c.unheld(o)
	if o.pins == 0 {
		c.drop(o)
	} else {
		c.past = append(c.past, o.entry)
	}
}

// drop has the entry of an object released that nobody uses, when the lock is. The caller holds it.
func (c *Cache) drop(o *object) {
	if o.gone {
		return
	}
	c.leave(o)
	o.gone = true
	c.unheld(o)
	if o.entry != nil {
		c.Buffer.Forget(o.entry, 0)
		c.dead = append(c.dead, o.entry)
	}
}

// unlock gives back the lock, and does what must not be done with it: an entry's own lock comes first.
func (c *Cache) unlock() {
	broken, dead, past, idle := c.broken, c.dead, c.past, c.idle
	c.broken, c.dead, c.past, c.idle = nil, nil, nil, nil
	c.mu.Unlock()
	for _, file := range broken { // as long as its entry has it, no other file is taken for it
		c.Damaged(file)
	}
	for _, entry := range past {
		entry.Forgo()
	}
	for _, entry := range dead {
		entry.Fail(errReleased)
		entry.Release()
	}
	for _, u := range idle {
		u.object.entry.Idle(func(can bool) { c.keep(u, can) })
	}
}
