package objects

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// checkTime is how long a store may take to say whether an object is still the one that is
// being fetched. Who has not heard by then fetches for himself.
const checkTime = 5 * time.Second

// object names an object on this node, for one namespace: others could see by the time that their own
// requests take that it is being fetched. Of buckets that namespaces share it is for all, and namespace
// is empty.
type object struct{ namespace, store, reference string }

// checks are questions about one object, asked one at a time: an answer is good for all who
// came before its question.
type checks struct {
	turn chan struct{} // holds the one that is under way

	mu   sync.Mutex
	next *check // not asked yet
}

type check struct {
	done    chan struct{}
	version string
	err     error
}

// version returns the object's version as it is at some moment after the call, from ask.
func (c *checks) version(ctx context.Context, run func(func()), ask func() (source.Object, error)) (string, error) {
	c.mu.Lock()
	mine := c.next
	if mine == nil {
		mine = &check{done: make(chan struct{})}
		c.next = mine
		run(func() {
			c.turn <- struct{}{} // Each question has its time.
			c.mu.Lock()
			c.next = nil
			c.mu.Unlock()
			var object source.Object
			object, mine.err = ask()
			mine.version = object.Version
			<-c.turn
			close(mine.done)
		})
	}
	c.mu.Unlock()
	select {
	case <-mine.done:
		return mine.version, mine.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// lead makes an input the one whose fetch of the object others may share, unless there is such a
// one: then that is returned.
func (c *Cache) lead(i *Input, of object, instead *Input) *Input {
	c.mu.Lock()
	defer c.mu.Unlock()
	i.object = of
	if leader := c.leaders[of]; leader != nil && leader != instead {
		return leader
	}
	if i.owners > 0 {
		c.leaders[of] = i
	}
	return nil
}

// share makes i an owner of a fetch that another input has begun, if that is of the object
// as it was when i came, or later: then that fetch's end is i's. Otherwise i fetches for
// itself, and leads those who come from now on.
//
// Whoever stores an object and sends a request for it gets the object that he has stored,
// whatever is under way: the store is asked after the request has come.
func (c *Cache) share(ctx context.Context, i *Input, from source.Source, ref source.Reference) (shared bool, err error) {
	of := object{fair.Namespace(i.request.Function), i.request.Store, i.request.Reference}
	if c.shared(i.request.Store, ref.Bucket) {
		of.namespace = ""
	}
	for leader := c.lead(i, of, nil); leader != nil; leader = c.lead(i, of, leader) {
		version, err := leader.checks.version(ctx, c.fetches.Go, func() (source.Object, error) {
			ctx, cancel := context.WithTimeout(fair.For(c.ctx, leader.request.Function), checkTime)
			defer cancel()
			return from.Stat(ctx, ref)
		})
		if err != nil || version == "" {
			continue // What is wrong shows when it is fetched.
		}
		select {
		case <-leader.ready:
		case <-ctx.Done():
			return true, source.Ended(ctx, i.request.Store, ref)
		}
		if !c.join(i, leader, version) {
			continue
		}
		if leader.about.Size > i.request.Limit {
			return true, i.tooLarge(leader.about.Size)
		}
		close(i.ready)
		select {
		case <-leader.done:
			i.measured = leader.measured
			return true, leader.err
		case <-ctx.Done():
			return true, source.Ended(ctx, i.request.Store, ref)
		}
	}
	return false, nil
}

// join makes i an owner of leader's entry, if that is of the version and can still be had.
func (c *Cache) join(i, leader *Input, version string) bool {
	if leader.entry == nil || leader.about.Version != version || leader.failed() {
		return false
	}
	// How much there will be of it shows late, and may be too much for the leader's limit, or
	// for its function's quota of the buffer: that must be i's, too.
	if leader.about.Size < 0 && (leader.request.Limit != i.request.Limit || leader.request.Function != i.request.Function) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.owners == 0 || leader.owners+leader.sharers == 0 || !leader.prolong() {
		return false
	}
	leader.sharers++
	i.leader, i.about, i.entry = leader, leader.about, leader.entry
	return true
}

// prolong gives a fetch that is under way its whole time again: who joins late has as long as who
// began it. It is false for one whose time is over. The caller holds the cache's lock.
func (i *Input) prolong() bool {
	select {
	case <-i.done:
		return true
	default:
	}
	if !i.late.Stop() {
		return false
	}
	i.late.Reset(longest)
	return true
}

// failed tells whether the fetch has ended without the object.
func (i *Input) failed() bool {
	select {
	case <-i.done:
		return i.err != nil
	default:
		return false
	}
}

var errNoObject = errors.New("the source ended without an object")
