package objects

import (
	"context"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/eviction"
)

const (
	// keptMost is how many objects are kept: each costs a descriptor and some memory.
	keptMost = 4096
	// sweepEvery is how often kept objects are checked for their age, and the disk for its free space.
	sweepEvery = time.Minute
)

// Reasons for which a kept object goes.
const (
	EvictedInput = "input" // an input needs its room
	EvictedDisk  = "disk"  // the disk would have less free than its spare
	EvictedCount = "count" // there are too many
	EvictedAge   = "age"   // nobody has used it for too long
	// EvictedDamage: its content is not what it was.
	EvictedDamage = "damage"
)

// order says which object of a place goes first.
type order = eviction.Policy[Key]

// use is an object after so many uses.
type use struct {
	object *object
	uses   int
}

// place is where objects of one namespace are kept, in a tier. The namespace that keeps the most loses first, so none
// loses objects to another one that keeps more. In a place's order, objects in use are pinned.
type place struct{ tier, namespace string }

// blockSize is what file systems give a file at a time: a small object takes this much of the disk.
const blockSize = 4096

// onDisk is the room that the object takes there.
func (o *object) onDisk() int64 { return (o.size()/blockSize + 1) * blockSize }

// keep keeps an object that nobody uses any more, nor has open; or lets go of it, if it cannot be kept.
func (c *Cache) keep(u use, can bool) {
	c.mu.Lock()
	defer c.unlock()
	o := u.object
	switch {
	case o.gone, o.pins > 0, o.kept:
		return // it is in use again
	case o.uses != u.uses: // it was
		c.idle = append(c.idle, use{o, o.uses})
		return
	}
	tier, kept := "", false
	if can && c.held(o.key) == o {
		tier, kept = c.Buffer.Keep(o.entry)
	}
	if !kept {
		c.drop(o)
		return
	}
	o.since = time.Now()
	c.shelve(o, tier)
	if o.sums == nil && o.origin != "" {
		select {
		case c.fresh <- o:
		default: // it has its turn when it is used again
		}
	}
	c.evict(tier, c.Buffer.Lacks(tier), EvictedDisk)
	if c.kept > keptMost && !c.evictMany() {
		c.drop(o) // all others have names outside
	}
}

// shelve has an object in the order of those that are kept in a tier. The caller holds the lock.
func (c *Cache) shelve(o *object, tier string) {
	o.kept = true
	c.kept++
	if o.order != nil {
		o.order.Unpin(o.key)
	} else {
		o.order = c.order(place{tier, o.key.Namespace})
		o.order.Add(o.key, o.onDisk())
	}
	if _, named := o.entry.Outside(); named {
		o.named = true
		o.order.Pin(o.key)
	}
	c.pinKept(o)
}

// order is that of a place. The caller holds the lock.
func (c *Cache) order(p place) *order {
	of := c.orders[p]
	if of == nil {
		of = eviction.New[Key]()
		c.orders[p] = of
	}
	return of
}

// take has an object count for a function, if it was kept. The caller holds the lock.
func (c *Cache) take(o *object, function string) error {
	if err := c.Buffer.Use(o.entry, function); err != nil || !o.kept {
		return err
	}
	o.order.Hit(o.key)
	if !o.named {
		o.order.Pin(o.key)
	}
	o.named = false
	o.kept = false
	c.kept--
	return nil
}

// leave takes an object out of the order. The caller holds the lock.
func (c *Cache) leave(o *object) {
	if o.kept {
		o.kept = false
		c.kept--
	}
	if o.order != nil {
		o.order.Remove(o.key)
		o.order, o.pinned = nil, false
	}
}

// evictFor is what the buffer asks for: inputs need so much of a tier.
func (c *Cache) evictFor(tier string, need int64) (unpaid int64) {
	c.mu.Lock()
	defer c.unlock()
	return c.evict(tier, need, EvictedInput)
}

// evict lets go of so many bytes of what is kept in a tier, or of all, and returns how many are missing. The caller
// holds the lock.
func (c *Cache) evict(tier string, need int64, why string) (missing int64) {
	for need > 0 {
		owed := need
		if why != EvictedInput {
			owed = 0
		}
		o := c.evictOne(func(p place, of *order) int64 {
			if p.tier != tier {
				return 0
			}
			return of.Bytes()
		}, why, owed)
		if o == nil {
			return need
		}
		need -= o.size()
	}
	return 0
}

// evictMany lets go of one object of the place that has the most of them. The caller holds the lock.
func (c *Cache) evictMany() bool {
	return c.evictOne(func(_ place, of *order) int64 { return int64(of.Candidates()) }, EvictedCount, 0) != nil
}

// evictOne lets go of one object of the place that has most, and returns it; nil: of none. Inputs are owed so much.
func (c *Cache) evictOne(has func(place, *order) int64, why string, owed int64) *object {
	var from *order
	var most int64
	for p, of := range c.orders {
		if of.Len() == 0 {
			delete(c.orders, p)
		} else if n := has(p, of); n > most {
			from, most = of, n
		}
	}
	if from == nil {
		return nil
	}
	k, _, ok := from.Evict()
	if !ok {
		return nil
	}
	o := c.held(k)
	o.order = nil // which has forgotten it
	c.Buffer.Forget(o.entry, min(owed, o.size()))
	c.drop(o)
	c.Metrics.Evicted(why)
	return o
}

// sweep looks over what is kept until ctx ends.
func (c *Cache) sweep(ctx context.Context) {
	look := time.NewTicker(sweepEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			c.sweepOnce()
		case <-ctx.Done():
			return
		}
	}
}

func (c *Cache) sweepOnce() {
	c.mu.Lock()
	defer c.unlock()
	c.unnamed()
	for _, s := range c.slots {
		if o := s.held; o != nil && o.kept && !o.named && !o.pinned && time.Since(o.since) >= c.Age {
			c.drop(o)
			c.Metrics.Evicted(EvictedAge)
		}
	}
	c.fit()
}

// fit lets go of what is kept beyond what the node takes, in objects and in bytes. The caller holds the lock.
func (c *Cache) fit() {
	for c.kept > keptMost && c.evictMany() {
	}
	for _, t := range c.Buffer.Tiers() {
		if t.Kept > 0 {
			c.evict(t.Name, c.Buffer.Lacks(t.Name), EvictedDisk)
		}
	}
	c.evict(buffer.OutsideTier, c.Buffer.DiskLacks(true), EvictedDisk)
}
