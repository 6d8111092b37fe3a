package fair

import (
	"context"
	"slices"
	"sync"
)

// caller is the key of whom a context's work is for.
type caller struct{}

// For says that what is done with the context is done for a function.
func For(ctx context.Context, function string) context.Context {
	return context.WithValue(ctx, caller{}, Namespace(function))
}

// Of is the namespace for which something is done; empty if nobody has said it.
func Of(ctx context.Context) string {
	namespace, _ := ctx.Value(caller{}).(string)
	return namespace
}

// Places are a Share for those that do not have a lock of their own, or wait. Its methods may be called
// at the same time.
type Places struct {
	mu      sync.Mutex
	share   *Share
	waiting map[string][]waiter
	// next are the namespaces that wait: the one that was served longest ago is first.
	next []string
	// beside is how many places a namespace gets while others attend; 0: as many as its share is.
	beside    int64
	attending map[string]int
	// extra are those of the places that somebody has besides a first one.
	extra *Share
}

// waiter is one that waits for a place.
type waiter struct {
	served chan struct{}
	extra  bool
}

// NewPlaces returns limit places, which are all free.
func NewPlaces(limit int64) *Places {
	return &Places{share: NewShare(limit), extra: NewShare(0),
		waiting: map[string][]waiter{}, attending: map[string]int{}}
}

// NewEqualPlaces returns limit places, of which a namespace gets no more than beside while another one attends: so
// they have as many each, and not as many as they want. At most extra of them, shared by namespaces, are for those
// that have one already.
func NewEqualPlaces(limit, beside, extra int64) *Places {
	p := NewPlaces(limit)
	p.beside, p.extra = beside, NewShare(extra)
	return p
}

// Attend says that the namespace of ctx may want places from now on, until leave is called.
func (p *Places) Attend(ctx context.Context) (leave func()) {
	namespace := Of(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attending[namespace]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.attending[namespace]--; p.attending[namespace] == 0 {
			delete(p.attending, namespace)
		}
		p.serve()
	}
}

// Try takes a place for a function's namespace, which has it until leave is called. If it may have none,
// leave is nil, and why is what Share.Full says.
func (p *Places) Try(function, what string) (leave func(), why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.share.Take(function, 1) {
		return nil, p.share.Full(function, what)
	}
	return func() { p.leave(function, false) }, ""
}

// Wait waits for a place for the namespace of ctx, which has it until leave is called. Of those that
// wait, the one is served next whose namespace has the fewest places.
func (p *Places) Wait(ctx context.Context) (leave func(), err error) { return p.wait(ctx, false) }

// WaitExtra is Wait for somebody who has a place already: those of the same namespace that have none come first.
func (p *Places) WaitExtra(ctx context.Context) (leave func(), err error) { return p.wait(ctx, true) }

func (p *Places) wait(ctx context.Context, extra bool) (leave func(), err error) {
	namespace, w := Of(ctx), waiter{served: make(chan struct{}), extra: extra}
	leave = func() { p.leave(namespace, extra) }
	p.mu.Lock()
	p.push(namespace, w)
	p.serve()
	p.mu.Unlock()
	select {
	case <-w.served:
		return leave, nil
	case <-ctx.Done():
	}
	if !p.forget(namespace, w) { // it was served just now
		leave()
	}
	return nil, context.Cause(ctx)
}

func (p *Places) leave(function string, extra bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.share.Return(function, 1)
	if extra {
		p.extra.Return(function, 1)
	}
	p.serve()
}

// push puts one that waits into its namespace's queue; the caller holds mu.
func (p *Places) push(namespace string, w waiter) {
	queue := p.waiting[namespace]
	if len(queue) == 0 {
		p.next = append(p.next, namespace)
	}
	at := len(queue)
	if first := slices.IndexFunc(queue, func(w waiter) bool { return w.extra }); first >= 0 && !w.extra {
		at = first
	}
	p.waiting[namespace] = slices.Insert(queue, at, w)
}

// forget takes out one that waits. It is false for one that was served.
func (p *Places) forget(namespace string, w waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting[namespace], w)
	if i >= 0 {
		p.pop(namespace, i)
	}
	return i >= 0
}

// pop takes the one at i out of a namespace's queue; the caller holds mu.
func (p *Places) pop(namespace string, i int) {
	p.waiting[namespace] = slices.Delete(p.waiting[namespace], i, i+1)
	if len(p.waiting[namespace]) == 0 {
		delete(p.waiting, namespace)
		p.next = slices.DeleteFunc(p.next, func(n string) bool { return n == namespace })
	}
}

// left is how many more places the namespace of one that waits may have; the caller holds mu.
func (p *Places) left(namespace string, w waiter) int64 {
	left := p.share.Left(namespace)
	if w.extra {
		left = min(left, p.extra.Left(namespace))
	}
	others := len(p.attending)
	if p.attending[namespace] > 0 {
		others--
	}
	if p.beside > 0 && others > 0 {
		left = min(left, p.beside-p.share.Has(namespace))
	}
	return left
}

// serve gives away what is free; the caller holds mu.
func (p *Places) serve() {
	for {
		first := -1
		for i, namespace := range p.next {
			if p.left(namespace, p.waiting[namespace][0]) > 0 &&
				(first < 0 || p.share.Has(namespace) < p.share.Has(p.next[first])) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		namespace := p.next[first]
		w := p.waiting[namespace][0]
		p.share.Take(namespace, 1)
		if w.extra {
			p.extra.Take(namespace, 1)
		}
		p.next = append(slices.Delete(p.next, first, first+1), namespace)
		close(w.served)
		p.pop(namespace, 0)
	}
}
