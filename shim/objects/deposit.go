package objects

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// errDeposits has what is stored go to the store alone.
var errDeposits = errors.New("what is being stored has its part of the buffer already")

// errAborted ends a deposit that does not become an object.
var errAborted = errors.New("what was to be stored is not")

// depositsPart is which part of the buffer deposits may have until they end: one of so many. They only save a later
// transfer, and must not take the room of inputs that requests wait for.
const depositsPart = 4

// Deposit is an object that a function stores: the node has its content before anybody asks for it. One of Commit and
// Abort ends it.
type Deposit struct {
	input  *Input
	object *object
	size   int64 // that counts
	over   chan error
}

// Deposit makes room for an object that the store is being given. size may be buffer.Unknown. Nobody finds it before
// Commit. Those of known sizes have a part of the buffer together, and beyond that it is an error.
func (c *Cache) Deposit(ctx context.Context, r Request, size int64) (*Deposit, error) {
	ref, err := source.ParseReference(r.Reference)
	if err != nil || c.Age <= 0 {
		return nil, cmp.Or(err, errAborted)
	}
	from, err := c.Sources(r.Function, r.Store)
	if err != nil {
		return nil, err
	}
	d := &Deposit{size: max(size, 0), over: make(chan error, 1)}
	if !c.depositing(d.size) {
		return nil, errDeposits
	}
	entry, err := c.Buffer.Create(buffer.NewID(), r.Function, size)
	if err != nil {
		c.depositing(-d.size)
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.room(r.Function); err != nil {
		entry.Release()
		c.deposited -= d.size
		return nil, err
	}
	i := c.start(ctx, r, d.follow)
	i.from, i.way = from, WayStored
	i.key, i.rule = c.Key(fair.Namespace(r.Function), r.Store, ref.Bucket, r.Reference)
	o := c.newObject(i)
	o.about, o.entry, o.function, o.limit, o.cancel = source.Object{Size: size}, entry, r.Function, r.Limit, i.cancel
	o.answer()
	o.hold(i)
	d.input, d.object = i, o
	close(i.ready)
	return d, nil
}

// depositing counts bytes of deposits, unless they are too many.
func (c *Cache) depositing(bytes int64) bool {
	var most int64
	for _, t := range c.Buffer.Tiers() {
		most += t.Limit / depositsPart
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes > most-c.deposited && bytes > 0 {
		return false
	}
	c.deposited += bytes
	return true
}

// follow waits for the end of a deposit.
func (d *Deposit) follow(ctx context.Context, i *Input) error {
	<-i.ready
	select {
	case err := <-d.over:
		return err
	case <-ctx.Done():
		return errReleased
	}
}

// WriteAt takes bytes of the content, each once.
func (d *Deposit) WriteAt(p []byte, at int64) (int, error) { return d.object.WriteAt(p, at) }

// NewReader reads bytes that were written, and waits for those that were not.
func (d *Deposit) NewReader(ctx context.Context) io.ReadCloser { return d.object.entry.NewReader(ctx) }

// Commit has the node hold the object as the store has it now. All bytes are there. What the store was asked before
// counts for those alone who have waited for it.
func (d *Deposit) Commit(about source.Object) error {
	o, c := d.object, d.object.cache
	err := o.entry.Complete()
	if err != nil {
		d.end(err)
		return err
	}
	o.about, o.measured = about, true
	o.about.Size = o.received.Load()
	o.end(nil)
	c.mu.Lock()
	o.asked = time.Now()
	s := c.slot(o.key)
	before := s.held
	s.held = o
	s.outdate()
	c.superseded(before)
	c.unlock()
	d.end(nil)
	return nil
}

// Abort lets go of the content.
func (d *Deposit) Abort() { d.end(errAborted) }

func (d *Deposit) end(err error) {
	if err != nil {
		d.object.end(err)
	}
	d.over <- err
	<-d.input.done
	d.input.Release()
	d.object.cache.depositing(-d.size)
}

// Changed says that the object has been changed or removed in the store: nobody finds what the node has of it.
func (c *Cache) Changed(function, store, bucket, reference string) {
	k, _ := c.Key(fair.Namespace(function), store, bucket, reference)
	c.mu.Lock()
	defer c.unlock()
	if s := c.slots[k]; s != nil {
		s.outdate()
		c.superseded(s.held)
	}
}

// outdate has later inputs not find what was asked for before now. The caller holds the lock.
func (s *slot) outdate() {
	if s.under > 0 {
		s.changes++
	}
}

// Has tells whether the node has an object, or is getting it: in any version.
func (c *Cache) Has(function, store, bucket, reference string) bool {
	k, _ := c.Key(fair.Namespace(function), store, bucket, reference)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slots[k] != nil
}

// Present returns what the node knows of an object that it has whole, whether the store's answer still holds or not.
func (c *Cache) Present(function, store, bucket, reference string) (source.Object, bool) {
	about, _, known := c.present(function, store, bucket, reference)
	return about, known
}

// Known is Present, as long as the store's last answer holds.
func (c *Cache) Known(function, store, bucket, reference string) (source.Object, bool) {
	about, holds, known := c.present(function, store, bucket, reference)
	return about, known && holds
}

func (c *Cache) present(function, store, bucket, reference string) (about source.Object, holds, known bool) {
	from, err := c.Sources(function, store)
	if err != nil {
		return about, false, false
	}
	k, rule := c.Key(fair.Namespace(function), store, bucket, reference)
	c.mu.Lock()
	defer c.unlock()
	o := c.held(k)
	if o == nil || !c.known(o, from, function) || !o.fits(from) || !o.complete() {
		return about, false, false
	}
	about = o.about
	about.Size, about.Header = o.size(), o.headerNow()
	return about, time.Since(o.asked) < rule.holds(o.said), true
}

// Describe notes the header of an object, if the node still has that version of it.
func (c *Cache) Describe(function, store, bucket, reference, version string, header http.Header) {
	k, _ := c.Key(fair.Namespace(function), store, bucket, reference)
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.held(k); o != nil && o.about.Version == version {
		o.header.Store(&header)
	}
}
