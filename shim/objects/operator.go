package objects

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// pinnedShare is the divisor for what an operator can pin of a tier's room: half. Inputs cannot use it.
	pinnedShare = 2
	// pinnedMost is how many objects that can be.
	pinnedMost = keptMost / pinnedShare
)

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

// Pin keeps objects that the node has, in this version and in those that replace it as long as these fit, until Unpin,
// Remove, or the end of the process. The error is CachePinsFull if one of them is too much; then none is pinned.
func (c *Cache) Pin(fits func(Key) bool) ([]Held, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*object
	c.those(fits, func(o *object) { found = append(found, o) })
	if err := c.mayPin(found...); err != nil {
		return nil, err
	}
	return c.those(fits, func(o *object) {
		c.pinned[o.key] = true
		c.pinKept(o)
	}), nil
}

// mayPin tells why objects cannot be pinned besides those that are. The caller holds the lock.
func (c *Cache) mayPin(more ...*object) error {
	count, has, wanted, rooms := len(c.pinned), map[string]int64{}, map[string]int64{}, map[string]int64{}
	for k := range c.pinned {
		if o := c.held(k); o != nil && o.pinned {
			tier, _ := c.Buffer.RoomOf(o.entry)
			has[tier] += o.size()
		}
	}
	for _, o := range more {
		if !c.pinned[o.key] {
			count++
		}
		if o.pinned || !o.complete() { // or it has its turn when it is kept
			continue
		}
		tier, room := c.Buffer.RoomOf(o.entry)
		wanted[tier] += o.size()
		rooms[tier] = room
	}
	for tier, bytes := range wanted {
		if most := rooms[tier] / pinnedShare; has[tier]+bytes > most && tier != "" {
			return pinsFull(fmt.Sprintf("%d bytes in the tier %s, half of its room: %d are pinned, and these are %d", most, tier, has[tier], bytes))
		}
	}
	if count > pinnedMost {
		return pinsFull(fmt.Sprintf("%d objects: %d are pinned, and these are %d others", pinnedMost, len(c.pinned), count-len(c.pinned)))
	}
	return nil
}

func pinsFull(most string) error {
	return problem.New(http.StatusTooManyRequests, "CachePinsFull", "", "the node pins at most "+most+"; unpin some, or name less")
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
	h := Held{Key: o.key, Version: o.about.Version, Bytes: o.received.Load(), Users: o.pins,
		Pinned: c.pinned[o.key] && (o.pinned || o.order == nil)}
	for p, of := range c.orders {
		if of == o.order {
			h.Tier = p.tier
		}
	}
	return h
}

// pinKept pins an object in its order, if it has one and is to stay. The caller holds the lock.
func (c *Cache) pinKept(o *object) {
	if c.pinned[o.key] && !o.pinned && o.order != nil && c.mayPin(o) == nil {
		o.pinned = true
		o.order.Pin(o.key)
	}
}
