package objects

import (
	"context"
	"time"
)

const (
	// keptMost is how many objects are kept: each costs a descriptor and some memory.
	keptMost = 4096
	// sweepEvery is how often what is kept is looked over for its age, and for what else is on the disk.
	sweepEvery = time.Minute
)

// Reasons for which what was kept goes.
const (
	EvictedInput = "input" // an input needs its room
	EvictedDisk  = "disk"  // the disk would have less than a fifth left
	EvictedCount = "count" // there are too many
	EvictedAge   = "age"   // nobody has used it for too long
)

// use is an object after so many uses.
type use struct {
	object *object
	uses   int
}

// place is where objects of one namespace are kept, in a tier. That of the namespace that has the most goes first: so
// none loses what it keeps to another one that has more.
type place struct{ tier, namespace string }

// shelf is what is kept in a place.
type shelf struct {
	order   Order
	bytes   int64
	objects int
}

// Order says what goes first of a shelf. Objects that are in use are pinned; Evict returns one that is not, and
// forgets it. It is called with the cache's lock.
type Order interface {
	Add(k Key, size int64)
	Hit(k Key)
	Pin(k Key)
	Unpin(k Key)
	Remove(k Key)
	Evict() (k Key, size int64, ok bool)
}

// keep keeps an object that nobody uses any more, nor has open; or lets go of it, if it cannot be kept.
func (c *Cache) keep(u use, can bool) {
	c.mu.Lock()
	defer c.unlock()
	o := u.object
	if o.gone || o.pins > 0 || o.uses != u.uses || o.shelf != nil {
		return // it is in use again, or was
	}
	tier, kept := "", false
	if can && c.held(o.key) == o {
		tier, kept = c.Buffer.Keep(o.entry)
	}
	if !kept {
		c.drop(o)
		return
	}
	o.shelf, o.since = c.shelf(place{tier, o.key.Namespace}), time.Now()
	o.shelf.bytes += o.size()
	o.shelf.objects++
	c.kept++
	if o.ordered {
		o.shelf.order.Unpin(o.key)
	} else {
		o.shelf.order.Add(o.key, o.size())
		o.ordered = true
	}
	c.evict(tier, c.Buffer.Lacks(tier), EvictedDisk)
	if c.kept > keptMost {
		c.evictOne(func(p place, s *shelf) int64 { return int64(s.objects) }, EvictedCount)
	}
}

func (c *Cache) shelf(p place) *shelf {
	s := c.shelves[p]
	if s == nil {
		s = &shelf{order: newLRU()}
		c.shelves[p] = s
	}
	return s
}

// take has an object count for a function, if it was kept. The caller holds the lock.
func (c *Cache) take(o *object, function string) error {
	if err := c.Buffer.Use(o.entry, function); err != nil || o.shelf == nil {
		return err
	}
	order := o.shelf.order
	c.offShelf(o)
	order.Hit(o.key)
	order.Pin(o.key)
	return nil
}

// offShelf: an object is not kept for now. The caller holds the lock.
func (c *Cache) offShelf(o *object) {
	o.shelf.bytes -= o.size()
	o.shelf.objects--
	o.last, o.shelf = o.shelf, nil
	c.kept--
}

// leave takes an object out of the order. The caller holds the lock.
func (c *Cache) leave(o *object) {
	if o.shelf != nil {
		c.offShelf(o)
	}
	if o.ordered {
		o.last.order.Remove(o.key)
		o.ordered = false
	}
}

// evictFor is what the buffer asks for: inputs need so much of a tier.
func (c *Cache) evictFor(tier string, need int64) {
	c.mu.Lock()
	defer c.unlock()
	c.evict(tier, need, EvictedInput)
}

// evict lets go of so many bytes of what is kept in a tier, or of all. The caller holds the lock.
func (c *Cache) evict(tier string, need int64, why string) {
	for need > 0 {
		size := c.evictOne(func(p place, s *shelf) int64 {
			if p.tier != tier {
				return 0
			}
			return s.bytes
		}, why)
		if size == 0 {
			return
		}
		need -= size
	}
}

// evictOne lets go of one object of the place that has most, and returns its size; 0: of none.
func (c *Cache) evictOne(has func(place, *shelf) int64, why string) int64 {
	var from *shelf
	var most int64
	for p, s := range c.shelves {
		if n := has(p, s); n > most {
			from, most = s, n
		}
	}
	if from == nil {
		return 0
	}
	k, size, ok := from.order.Evict()
	if !ok {
		return 0
	}
	o := c.held(k)
	o.ordered = false
	c.drop(o)
	c.Metrics.Evicted(why)
	return size
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
	for _, s := range c.slots {
		if o := s.held; o != nil && o.shelf != nil && time.Since(o.since) >= c.Age {
			c.drop(o)
			c.Metrics.Evicted(EvictedAge)
		}
	}
	for _, t := range c.Buffer.Tiers() {
		if t.Kept > 0 {
			c.evict(t.Name, c.Buffer.Lacks(t.Name), EvictedDisk)
		}
	}
}
