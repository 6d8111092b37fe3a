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
	from, err := c.Sources(function, k.Store)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	if o := c.held(k); !c.known(o, from) || !o.is(version, from) {
		c.unlock()
		return nil, ErrNotHeld
	}
	if err := c.room(function); err != nil {
		c.mu.Unlock()
		return nil, err
	}
	i := c.start(ctx, r, func(ctx context.Context, i *Input) error {
		ref, err := source.ParseReference(k.Reference)
		if err == nil {
			i.from = from
			err = c.join(i, k, ref.Bucket, version)
		}
		if err != nil {
			return err
		}
		return i.follow(ctx, ref)
	})
	c.mu.Unlock()
	return i.found()
}

// join gives an input a pin on what is held, if that is of the version.
func (c *Cache) join(i *Input, k Key, bucket, version string) error {
	i.key, i.rule = k, c.Rule(k.Store, bucket)
	c.mu.Lock()
	defer c.unlock()
	o := c.held(k)
	if !c.known(o, i.from) || !o.is(version, i.from) || !o.suits(i) || !o.prolong() {
		return ErrNotHeld
	}
	err := c.pin(i, o, false)
	if buffer.IsFull(err) { // where it is fetched to there may be room
		return ErrNotHeld
	}
	return err
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
