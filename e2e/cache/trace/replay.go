package trace

import (
	"container/list"

	"github.com/headstart-mesh/headstart/shim/objects/eviction"
)

// Order says what goes first from a cache, as shim/objects/eviction does.
type Order interface {
	Add(object int, size int64)
	Hit(object int)
	Evict() (object int, size int64, ok bool)
}

// Hits are the shares of a trace that a cache answers.
type Hits struct{ Requests, Bytes float64 }

// Replay has a cache of so many bytes see the trace. An object for which there is no room passes by.
func Replay(t Trace, capacity int64, order Order) Hits {
	c := cache{order: order, free: capacity, held: map[int]bool{}}
	var hits, hitBytes, bytes float64
	for _, r := range t.Requests {
		bytes += float64(r.Size)
		if c.held[r.Object] {
			order.Hit(r.Object)
			hits++
			hitBytes += float64(r.Size)
		} else if r.Size <= capacity {
			c.add(r)
		}
	}
	return Hits{Requests: hits / float64(max(len(t.Requests), 1)), Bytes: hitBytes / max(bytes, 1)}
}

type cache struct {
	order Order
	free  int64
	held  map[int]bool
}

func (c *cache) add(r Request) {
	for c.free < r.Size {
		gone, size, ok := c.order.Evict()
		if !ok {
			return
		}
		delete(c.held, gone)
		c.free += size
	}
	c.order.Add(r.Object, r.Size)
	c.held[r.Object] = true
	c.free -= r.Size
}

// inUse is how many requests an object is in use for after it was asked for: so many requests a node answers at a time.
const inUse = 16

// Ours is the product's order, with the objects of the last requests in use.
func Ours() Order { return &pinning{Policy: eviction.New[int]()} }

type pinning struct {
	*eviction.Policy[int]
	last [inUse]int
	next int
}

func (p *pinning) Add(object int, size int64) {
	p.Policy.Add(object, size)
	p.use(object)
}

func (p *pinning) Hit(object int) {
	p.Policy.Hit(object)
	p.use(object)
}

// use pins an object, and unpins the one of inUse requests ago. Objects are counted from 0.
func (p *pinning) use(object int) {
	p.Pin(object)
	at := &p.last[p.next%inUse]
	if p.next >= inUse {
		p.Unpin(*at)
	}
	*at = object
	p.next++
}

// LRU is the order of the last use, with which the paper's cache evicts (CacheFlow, section III).
func LRU() Order { return &lru{elements: map[int]*list.Element{}} }

type lru struct {
	list     list.List // the least recently used one is at the front
	elements map[int]*list.Element
}

func (l *lru) Add(object int, size int64) {
	l.elements[object] = l.list.PushBack(Request{object, size})
}
func (l *lru) Hit(object int) { l.list.MoveToBack(l.elements[object]) }

func (l *lru) Evict() (object int, size int64, ok bool) {
	front := l.list.Front()
	if front == nil {
		return 0, 0, false
	}
	r := l.list.Remove(front).(Request)
	delete(l.elements, r.Object)
	return r.Object, r.Size, true
}
