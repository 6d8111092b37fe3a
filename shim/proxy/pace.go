package proxy

import "sync"

// AheadMost is how far a body's way into the buffer may be ahead of its way into the socket to
// another node, in bytes: 8 ms of a link of 1 Gbit/s, so that the link never waits for the
// client. What is under way on the link, the socket itself holds.
const AheadMost = 1 << 20

// pace holds a body back that another node gets: taken as fast as a client of the same machine
// can send, it would have the cores for itself at the very time in which they start a sandbox,
// to lie in the buffer then for as long as its way takes. A body that nobody is sent yet comes
// as it can.
type pace struct {
	mu      sync.Mutex
	changed *sync.Cond
	// follower is whom it is sent to now; nil: nobody.
	follower *following
	// here and there are how many bytes came, and how many the follower has.
	here, there int64
	over        bool // nothing is to be waited for any more
}

// await returns when more may come.
func (p *pace) await() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = sync.NewCond(&p.mu)
	}
	for p.follower != nil && p.here-p.there >= AheadMost && !p.over {
		p.changed.Wait()
	}
}

// came says that so many bytes more came.
func (p *pace) came(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.here += int64(n)
}

// begin says that the follower is sent the body from its start.
func (p *pace) begin(f *following) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follower, p.there = f, 0
}

// passed says that the follower has so many bytes more.
func (p *pace) passed(f *following, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follower == f {
		p.there += int64(n)
		p.wake()
	}
}

// end says that the follower gets no more.
func (p *pace) end(f *following) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.follower == f {
		p.follower = nil
		p.wake()
	}
}

// stop ends all waiting.
func (p *pace) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.wake()
}

func (p *pace) wake() {
	if p.changed != nil {
		p.changed.Broadcast()
	}
}
