package objects

import (
	"context"
	"crypto/rand"
	"errors"
	"math"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// ErrNotHeld says that the node does not have this version of the object.
var ErrNotHeld = errors.New("the node does not have this version of the object")

// Held returns a version of an object that the node has, or is getting, without asking anybody whether it is the
// newest. The caller is its one owner, and has it in the name of a function, for which it counts if it counts for
// nobody else.
func (c *Cache) Held(ctx context.Context, k Key, version, function string) (*Input, error) {
	r := Request{ID: "held:" + rand.Text(), Function: function, Store: k.Store, Reference: k.Reference, Limit: math.MaxInt64}
	ref, err := source.ParseReference(k.Reference)
	if err != nil {
		return nil, err
	}
	from, err := c.Sources(function, k.Store)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	o := c.held(k)
	if !c.known(o, from, function) || !o.is(version, from) || !o.prolong() {
		c.unlock()
		return nil, ErrNotHeld
	}
	if err := c.room(function); err != nil {
		c.unlock()
		return nil, err
	}
	i := c.start(ctx, r, func(ctx context.Context, i *Input) error {
		if _, err := c.verdict(i); err != nil {
			return err
		}
		return i.follow(ctx, ref)
	})
	i.key, i.from, i.rule = k, from, c.Rule(k.Store, ref.Bucket)
	i.refused = ErrNotHeld
	if o.suits(i) {
		if err := c.pin(i, o, false); !buffer.IsFull(err) { // else where it is fetched to there may be room
			i.refused = err
		}
	}
	c.unlock()
	return i.found()
}

// is tells whether an object can be had, and is of a version. The caller holds the cache's lock.
func (o *object) is(version string, from source.Source) bool {
	return o.fits(from) && version != "" && o.about.Version == version
}

// follow waits for the end of the fetch of the object that the input has a pin on.
func (i *Input) follow(ctx context.Context, ref source.Reference) error {
	close(i.ready)
	select {
	case <-i.object.done:
		return i.object.err
	case <-ctx.Done():
		return source.Ended(ctx, i.request.Store, ref)
	}
}
