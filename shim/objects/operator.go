package objects

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// pinnedMost is how many objects an operator can pin: half of those that are kept.
const pinnedMost = keptMost / 2

// ErrTooManyPinned says that no more objects can be pinned.
var ErrTooManyPinned = errors.New("the node has as many pinned objects as it takes")

// Held is an object that the node has, for its operator.
type Held struct {
	Key
	Version string
	// Bytes are those that have arrived.
	Bytes int64
	// Tier is where it is kept, empty until it was kept for the first time.
	Tier string
	// Users are inputs.
	Users  int
	Pinned bool
	// Damaged: it is not what has arrived, and is forgotten.
	Damaged bool
}

// List returns the objects that fit, in the order of their keys.
func (c *Cache) List(fits func(Key) bool) []Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.those(fits, func(*object) {})
}

// Pin keeps objects that the node has, in this version and in those that replace it, until Unpin, Remove, or the end of
// the process.
func (c *Cache) Pin(fits func(Key) bool) (all []Held, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.those(fits, func(o *object) {
		if len(c.pinned) >= pinnedMost && !c.pinned[o.key] {
			err = ErrTooManyPinned
			return
		}
		c.pinned[o.key] = true
		c.pinKept(o)
	}), err
}

// Unpin takes back Pin: the objects go in their turn.
func (c *Cache) Unpin(fits func(Key) bool) []Held {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.pinned {
		if fits(k) {
			delete(c.pinned, k)
		}
	}
	return c.those(fits, func(o *object) {
		if o.pinned {
			o.pinned = false
			o.order.Unpin(o.key)
		}
	})
}

// Remove forgets objects, and returns which. Inputs that use one keep it.
func (c *Cache) Remove(fits func(Key) bool) []Held {
	c.mu.Lock()
	defer c.unlock()
	var found []*object
	all := c.those(fits, func(o *object) { found = append(found, o) })
	for _, o := range found {
		delete(c.pinned, o.key)
		c.superseded(o)
	}
	return all
}

// Verify reads objects that are complete, and forgets those that cannot be read or are not what has arrived. Its error is
// that of ctx.
func (c *Cache) Verify(ctx context.Context, fits func(Key) bool) (all []Held, err error) {
	c.mu.Lock()
	var found []*object
	c.those(fits, func(o *object) {
		if o.complete() && o.err == nil {
			found = append(found, o)
		}
	})
	c.mu.Unlock()
	for _, o := range found {
		damaged := c.verify(ctx, o, 0)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
		if !o.gone || damaged { // else it has gone meanwhile, which ends a reading as well
			h := c.describe(o)
			h.Damaged = damaged
			all = append(all, h)
		}
		c.mu.Unlock()
	}
	return all, nil
}

// those calls do for each object that fits, and returns how they are then. The caller holds the lock.
func (c *Cache) those(fits func(Key) bool, do func(*object)) (all []Held) {
	for k, s := range c.slots {
		if s.held != nil && !s.held.gone && fits(k) {
			do(s.held)
			all = append(all, c.describe(s.held))
		}
	}
	slices.SortFunc(all, func(a, b Held) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Store, b.Store), cmp.Compare(a.Reference, b.Reference))
	})
	return all
}

// describe is an object as it is now. The caller holds the lock.
func (c *Cache) describe(o *object) Held {
	h := Held{Key: o.key, Version: o.about.Version, Bytes: o.received.Load(), Users: o.pins, Pinned: c.pinned[o.key]}
	for p, of := range c.orders {
		if of == o.order {
			h.Tier = p.tier
		}
	}
	return h
}

// pinKept pins an object in its order, if it has one and is to stay. The caller holds the lock.
func (c *Cache) pinKept(o *object) {
	if c.pinned[o.key] && !o.pinned && o.order != nil {
		o.pinned = true
		o.order.Pin(o.key)
	}
}
