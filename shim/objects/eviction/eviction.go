// Package eviction says which object goes first from a cache of bytes: S3-FIFO (Yang et al., "FIFO queues are all
// you need for cache eviction", SOSP 2023, section 4, algorithm 1), with sizes, and with objects that are in use.
// It keeps no content, reads no clock, starts no goroutine and draws no random numbers.
package eviction

import "container/list"

const (
	// smallShare is the divisor for the small queue's part of the bytes: a tenth (section 4.1 of the paper).
	smallShare = 10
	// hitsMost is how many hits are counted, in two bits as the paper does (section 4.1).
	hitsMost = 3
	// hitsToStay is how many hits bring an object from the small queue to the main one. With two, as in algorithm 1,
	// one to two points fewer of the requests are hits in `make bench-cache`.
	hitsToStay = 1
	// ghostsLeast is how many evicted keys are remembered even if fewer objects are held, for instance after
	// inputs have taken all the room.
	ghostsLeast = 1024
)

// Policy is an order of objects. Its user locks it, and decides when something has to go:
//
//	for room() < need {
//		key, _, ok := policy.Evict()
//		if !ok {
//			break // what is left is in use
//		}
//		remove(key)
//	}
//
// So the policy has no capacity. The small queue's part is that of the bytes which can be evicted: while inputs
// take the room the cache shrinks, and both queues with it.
type Policy[K comparable] struct {
	known             map[K]*object[K] // the objects of the queues, and ghosts
	small, main, gone queue            // gone is the ghost queue
	pinned            int              // objects
}

// object is one that is held, or the ghost of one.
type object[K comparable] struct {
	key  K
	size int64
	hits int
	pins int
	in   *queue
	// at is the place in the queue: nil for a pinned object whose turn to go has come.
	at *list.Element
}

// queue has the oldest object at its front.
type queue struct {
	list  list.List
	bytes int64 // of those objects that are not pinned
}

// New returns a policy without objects.
func New[K comparable]() *Policy[K] { return &Policy[K]{known: map[K]*object[K]{}} }

// Len is the number of objects that are held.
func (p *Policy[K]) Len() int { return len(p.known) - p.gone.list.Len() }

// Candidates is the number of objects that Evict can give.
func (p *Policy[K]) Candidates() int { return p.Len() - p.pinned }

// Bytes is how many bytes Evict can give: those of the objects that are not pinned.
func (p *Policy[K]) Bytes() int64 { return p.small.bytes + p.main.bytes }

// Add has an object held from now on. An object that was evicted not long ago comes to the main queue, any other one
// to the small queue. The size is the room that the object takes, and may be 0. If the object is held already, Add
// gives it another size, and changes nothing else.
func (p *Policy[K]) Add(key K, size int64) {
	o := p.known[key]
	switch {
	case o == nil:
		o = &object[K]{key: key}
		p.known[key] = o
		o.push(&p.small)
	case o.in == &p.gone:
		o.move(&p.main)
	}
	if o.pins == 0 {
		o.in.bytes += size - o.size
	}
	o.size = size
}

// Hit says that an object that is held was asked for. Other keys are ignored.
func (p *Policy[K]) Hit(key K) {
	if o := p.held(key); o != nil {
		o.hits = min(o.hits+1, hitsMost)
	}
}

// Pin says that an object that is held is in use: Evict does not return it. Each Pin needs an Unpin. Other keys are
// ignored, by both.
func (p *Policy[K]) Pin(key K) {
	o := p.held(key)
	if o == nil {
		return
	}
	if o.pins++; o.pins == 1 {
		o.in.bytes -= o.size
		p.pinned++
	}
}

// Unpin takes back a Pin. An object whose turn to go came meanwhile is the newest of its queue.
func (p *Policy[K]) Unpin(key K) {
	o := p.held(key)
	if o == nil || o.pins == 0 {
		return
	}
	if o.pins--; o.pins > 0 {
		return
	}
	o.in.bytes += o.size
	p.pinned--
	if o.at == nil {
		o.push(o.in)
	}
}

// Remove forgets an object, pinned or not: it was deleted, or is another one now.
func (p *Policy[K]) Remove(key K) {
	if o := p.held(key); o != nil {
		p.forget(o)
	}
}

// Evict returns the object that goes first, with its size, and holds it no longer. There is none if all are pinned.
func (p *Policy[K]) Evict() (key K, size int64, ok bool) {
	for {
		// Each turn evicts an object, takes it out of its queue, or uses up one of its hits.
		from := &p.main
		if p.small.bytes > p.Bytes()/smallShare || from.list.Len() == 0 {
			from = &p.small
		}
		front := from.list.Front()
		if front == nil {
			return key, 0, false
		}
		o := front.Value.(*object[K])
		switch {
		case o.pins > 0:
			o.leave() // until Unpin
		case from == &p.small && o.hits >= hitsToStay:
			o.hits = 0
			o.move(&p.main)
		case from == &p.main && o.hits > 0:
			o.hits--
			o.move(&p.main)
		default:
			p.evicted(o)
			return o.key, o.size, true
		}
	}
}

// evicted makes a ghost of what comes from the small queue, and forgets ghosts beyond the number of objects that are
// held (section 4.1: there are as many as the main queue has objects).
func (p *Policy[K]) evicted(o *object[K]) {
	if o.in == &p.main {
		p.forget(o)
		return
	}
	o.move(&p.gone)
	for p.gone.list.Len() > max(p.Len(), ghostsLeast) {
		p.forget(p.gone.list.Front().Value.(*object[K]))
	}
}

func (p *Policy[K]) forget(o *object[K]) {
	if o.pins > 0 {
		p.pinned--
	} else {
		o.in.bytes -= o.size
	}
	o.leave()
	delete(p.known, o.key)
}

func (p *Policy[K]) held(key K) *object[K] {
	if o := p.known[key]; o != nil && o.in != &p.gone {
		return o
	}
	return nil
}

// move takes an object that is not pinned to another queue, or to the back of its own.
func (o *object[K]) move(to *queue) {
	o.leave()
	o.in.bytes -= o.size
	to.bytes += o.size
	o.push(to)
}

func (o *object[K]) push(to *queue) { o.in, o.at = to, to.list.PushBack(o) }

func (o *object[K]) leave() {
	if o.at != nil {
		o.in.list.Remove(o.at)
		o.at = nil
	}
}
