package objects

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
	"github.com/headstart-mesh/headstart/shim/objects/record"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

const (
	// noteRest is the rest before each block of which a digest is computed for the first time: 200 MB/s take a tenth
	// of a core, and what is kept has come from the network more slowly.
	noteRest = 10 * time.Millisecond
	// scrubRest is that of the scrub, which reads 16 MB/s: little beside what disks have, and 100 GB in two hours.
	scrubRest = 125 * time.Millisecond
	// scrubAge is how long after a look at an object the scrub looks again.
	scrubAge = 24 * time.Hour
	// checksMost is how many places there are for checks that requests wait for, of which one stays free: a core hashes
	// faster than most disks read, and many large files at a time keep requests waiting for all of them.
	checksMost = 4
	// inheritEvery is how often the node looks whether its other daemon has ended.
	inheritEvery = time.Second
)

// identity names the server that a source reads from. An object that was kept of another server does not count as this
// one's. Empty: its objects are forgotten when the process ends.
func identity(from source.Source) string {
	if known, ok := from.(interface{ Identity() string }); ok {
		return known.Identity()
	}
	return ""
}

// revive keeps the objects that earlier daemons have left.
func (c *Cache) revive() {
	type left struct {
		buffer.Found
		record.Record
	}
	var all []left
	for _, found := range c.Buffer.Found() {
		r, err := record.Parse(found.Note)
		switch {
		case err != nil, time.Since(r.Used) >= c.Age, r.Sums == nil && (!found.Clean || r.Unchecked):
			c.Buffer.Discard(found)
		default:
			all = append(all, left{found, r})
		}
	}
	slices.SortFunc(all, func(a, b left) int { return a.Asked.Compare(b.Asked) })
	for _, l := range all {
		if !c.reviveOne(l.Found, l.Record) {
			c.Buffer.Discard(l.Found)
		}
	}
	// Two daemons may have kept more than one may, or one with other flags.
	c.mu.Lock()
	defer c.unlock()
	c.fit()
}

func (c *Cache) reviveOne(found buffer.Found, r record.Record) bool {
	c.mu.Lock()
	defer c.unlock()
	k := Key{r.Namespace, r.Store, r.Reference}
	if before := c.held(k); before != nil && before.from == nil && before.asked.Before(r.Asked) {
		c.superseded(before)
	}
	if c.slots[k] != nil { // this daemon has it or a newer one, or asks for it
		return false
	}
	entry, tier, err := c.Buffer.Adopt(found, r.Outside)
	if err != nil {
		return false
	}
	o := &object{cache: c, key: k, origin: r.Source, entry: entry, sums: r.Sums, checked: found.Clean && !r.Unchecked, alone: true, measured: true,
		about: source.Object{Size: r.Size, ContentType: r.ContentType, Version: r.Version, Header: r.Header},
		asked: r.Asked, said: r.Said, since: r.Used, answered: make(chan struct{}), done: make(chan struct{})}
	now := time.Now()
	if o.asked.After(now) { // the clock was another: nobody knows how old the answer is
		o.asked = time.Time{}
	}
	if o.since.After(now) {
		o.since = now
	}
	o.received.Store(r.Size)
	close(o.done)
	c.slot(k).held = o
	if size, _ := entry.Size(); size != r.Size {
		c.damaged(o)
		return true
	}
	c.shelve(o, tier)
	return true
}

// known tells whether what is held can be looked at. What an earlier daemon has left is to be of the store as it is
// configured now, and to be checked, unless that daemon ended in order: o.answered is closed then. The function is the one
// that asks. The caller holds the lock.
func (c *Cache) known(o *object, from source.Source, function string) bool {
	switch {
	case o == nil || o.from != nil:
	case o.origin != identity(from):
		c.drop(o)
	case o.checked:
		o.from = from
	default:
		if !o.checking && !c.closed {
			o.checking = true
			c.fetches.Go(func() {
				leave, err := c.checks.Wait(fair.For(c.ctx, function))
				if err != nil {
					return // those who wait end by themselves
				}
				defer leave()
				c.verify(c.ctx, o, 0)
				if c.ctx.Err() == nil {
					close(o.answered)
				}
			})
		}
		return false
	}
	return true
}

// digest computes the digests of what an object has in the buffer.
func (o *object) digest(ctx context.Context, rest time.Duration) ([]byte, error) {
	return digest.Of(ctx, o.size(), rest, func(from int64) io.ReadCloser { return o.entry.NewReaderFrom(ctx, from) })
}

// verify compares an object with its digests, if it has any, and lets go of it if they differ or it cannot be read. It
// says whether it has let go.
func (c *Cache) verify(ctx context.Context, o *object, rest time.Duration) (damaged bool) {
	sums, err := o.digest(ctx, rest)
	c.mu.Lock()
	defer c.unlock()
	if o.gone || ctx.Err() != nil || c.ctx.Err() != nil {
		return false
	}
	o.looked = time.Now()
	same := err == nil && (o.sums == nil || bytes.Equal(sums, o.sums)) // none: they are not computed yet
	if !same {
		c.damaged(o)
	}
	o.checked = same && (o.checked || o.sums != nil)
	return !same
}

// damaged lets go of an object that is not what it was: the next request has it fetched. The caller holds the lock.
func (c *Cache) damaged(o *object) {
	c.Metrics.Evicted(EvictedDamage)
	o.damaged = true
	if file := o.entry.Named(); file != nil && c.Damaged != nil {
		c.broken = append(c.broken, file)
	}
	c.damages, c.lastDamage = c.damages+1, time.Now()
	if c.held(o.key) == o {
		c.superseded(o)
	}
}

// unreadable lets go of an object that has arrived and cannot be read any more: its disk may fail.
func (c *Cache) unreadable(o *object) {
	c.mu.Lock()
	defer c.unlock()
	if !c.closed && o.complete() && o.err == nil && c.held(o.key) == o {
		c.damaged(o)
	}
}

// note has an object outlive the daemon. ended: nothing changes any more.
func (c *Cache) note(o *object, ended bool) error {
	c.mu.Lock()
	outside, _ := o.entry.Outside()
	r := record.Record{Namespace: o.key.Namespace, Store: o.key.Store, Reference: o.key.Reference, Source: o.origin, Size: o.size(),
		Version: o.about.Version, ContentType: o.about.ContentType, Header: o.headerNow(), Asked: o.asked, Used: time.Now(), Said: o.said,
		Outside: outside, Sums: o.sums, Unchecked: ended && o.from == nil && !o.checked}
	if o.kept {
		r.Used = o.since
	}
	c.mu.Unlock()
	b, err := r.Bytes()
	if err != nil {
		return nil // it goes with the daemon
	}
	return c.Buffer.Note(o.entry, b)
}

// notes computes the digests of objects that are kept for the first time, and notes these.
func (c *Cache) notes() {
	for {
		select {
		case o := <-c.fresh:
			c.mu.Lock()
			due := !o.gone && o.sums == nil
			c.mu.Unlock()
			if !due {
				continue
			}
			sums, err := o.digest(c.ctx, noteRest)
			if err != nil {
				continue // it has gone, or is asked for again as long as nobody can read it
			}
			c.mu.Lock()
			o.sums, o.looked = sums, time.Now()
			c.mu.Unlock()
			_ = c.note(o, false) // without a note it goes with the daemon
		case <-c.ctx.Done():
			return
		}
	}
}

// scrub verifies kept objects, first the one that was verified longest ago.
func (c *Cache) scrub() {
	for {
		o := c.stalest()
		if o != nil {
			c.verify(c.ctx, o, scrubRest)
			continue
		}
		select {
		case <-time.After(sweepEvery):
		case <-c.ctx.Done():
			return
		}
	}
}

// stalest is what the scrub has to look at, nil for nothing.
func (c *Cache) stalest() (oldest *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slots {
		if o := s.held; o != nil && o.sums != nil && o.complete() && (oldest == nil || o.looked.Before(oldest.looked)) {
			oldest = o
		}
	}
	if oldest == nil || c.ctx.Err() != nil || time.Since(oldest.looked) < scrubAge {
		return nil
	}
	return oldest
}

// inherit takes over what the node's other daemon keeps, once that one has ended.
func (c *Cache) inherit() {
	for again := true; again; {
		select {
		case <-time.After(inheritEvery):
			again = c.Inherit()
			c.revive()
		case <-c.ctx.Done():
			return
		}
	}
}

// bequeath notes all that is kept, as it is now, for the next daemon.
func (c *Cache) bequeath() error {
	c.mu.Lock()
	var all []*object
	for _, s := range c.slots {
		if o := s.held; o != nil && o.order != nil && o.origin != "" {
			all = append(all, o)
		}
	}
	c.mu.Unlock()
	for _, o := range all {
		if err := c.note(o, true); err != nil && !errors.Is(err, fs.ErrClosed) { // it has gone meanwhile
			return err
		}
	}
	return c.Buffer.Clean()
}
