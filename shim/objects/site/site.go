// Package site has what a node holds be for the other nodes of its site.
package site

import (
	"context"
	"crypto/rand"
	"math"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// Own are the node's own objects, for the others. It implements peers.Objects.
type Own struct { // set before anybody asks
	Cache  *objects.Cache
	Writes Writes
}

// Writes are those of the node that stores do not have yet.
type Writes interface {
	// HeldWrite finds the one of an object that has an id; nil: the node has not acknowledged it, or the store has it.
	HeldWrite(k writeback.Key, id string) (*writeback.Held, error)
}

// functionOf stands for what the nodes of a site bring each other of a namespace. No function can be called so.
func functionOf(namespace string) string { return namespace + "/(site)" }

// Name implements peers.Objects.
func (o *Own) Name(namespace, store, reference string) (objects.Key, error) {
	ref, err := source.ParseReference(reference)
	if err != nil {
		return objects.Key{}, err
	}
	if _, err := o.Cache.Sources(functionOf(namespace), store); err != nil {
		return objects.Key{}, err
	}
	k, rule := o.Cache.Key(namespace, store, ref.Bucket, reference)
	if rule.Unlisted { // what an earlier daemon has kept knows no list
		return objects.Key{}, source.NotAllowed(store, ref)
	}
	return k, nil
}

// Get implements peers.Objects.
func (o *Own) Get(ctx context.Context, namespace string, k objects.Key) (peers.Copy, error) {
	return newCopied(ctx, o.Cache.Fetch(ctx, objects.Request{ID: "site:" + rand.Text(), Function: functionOf(namespace),
		Store: k.Store, Reference: k.Reference, Limit: math.MaxInt64, Alone: true}))
}

// Held implements peers.Objects.
func (o *Own) Held(ctx context.Context, namespace string, k objects.Key, version string) (peers.Copy, bool) {
	i, err := o.Cache.Held(ctx, k, version, functionOf(namespace))
	if err != nil {
		return nil, false
	}
	c, err := newCopied(ctx, i)
	return c, err == nil
}
