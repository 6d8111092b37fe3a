// Package site has a node's objects take part in its site: what it holds is for the other nodes, and what they hold is
// asked for before a store is.
package site

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/peers"
)

// Own are the node's own objects, for the others. It implements peers.Objects.
type Own struct {
	// Sources and Rule are those of the cache.
	Sources func(function, store string) (source.Source, error)
	Rule    func(store, bucket string) objects.Rule
	// Cache is set before anybody asks.
	Cache *objects.Cache
}

// functionOf stands for what the nodes of a site bring each other of a namespace. No function can be called so.
func functionOf(namespace string) string { return namespace + "/(site)" }

// Name implements peers.Objects.
func (o *Own) Name(namespace, store, reference string) (peers.Key, error) {
	ref, err := source.ParseReference(reference)
	if err != nil {
		return peers.Key{}, err
	}
	if _, err := o.Sources(functionOf(namespace), store); err != nil {
		return peers.Key{}, err
	}
	k := peers.Key{Namespace: namespace, Store: store, Reference: reference}
	if o.Rule(store, ref.Bucket).Shared {
		k.Namespace = ""
	}
	return k, nil
}

// Get implements peers.Objects.
func (o *Own) Get(ctx context.Context, namespace string, k peers.Key, _ string) (peers.Copy, error) {
	i := o.Cache.Fetch(ctx, objects.Request{ID: "site:" + rand.Text(), Function: functionOf(namespace), Store: k.Store,
		Reference: k.Reference, Limit: math.MaxInt64, Alone: true})
	about, err := i.Object(ctx)
	if err != nil {
		i.Release()
		return nil, err
	}
	return newCopied(i, about), nil
}

// Held implements peers.Objects.
func (o *Own) Held(ctx context.Context, namespace string, k peers.Key, version string) (peers.Copy, bool) {
	i, err := o.Cache.Held(ctx, objects.Key(k), version, functionOf(namespace))
	if err != nil {
		return nil, false
	}
	about, err := i.Object(ctx)
	if err != nil {
		i.Release()
		return nil, false
	}
	return newCopied(i, about), true
}

// Others are the other nodes of the site. It implements objects.Neighbours.
type Others struct{ Peers *peers.Peers }

// Fetch implements objects.Neighbours.
func (o Others) Fetch(ctx context.Context, k objects.Key, held string, begin source.Begin,
	store func(context.Context, source.Begin) error,
) error {
	err := o.Peers.Fetch(ctx, fair.Of(ctx), peers.Key(k), held,
		func(about peers.Object) (io.WriterAt, error) { return begin(source.Object(about)) },
		func(ctx context.Context, begin func(peers.Object) (io.WriterAt, error)) error {
			err := store(ctx, func(about source.Object) (io.WriterAt, error) { return begin(peers.Object(about)) })
			if same, is := errors.AsType[*source.Unchanged](err); is {
				unchanged := peers.Unchanged(*same)
				return &unchanged
			}
			return err
		})
	if same, is := errors.AsType[*peers.Unchanged](err); is {
		unchanged := source.Unchanged(*same)
		return &unchanged
	}
	if errors.Is(err, peers.ErrChanged) {
		ref, _ := source.ParseReference(k.Reference) // by which it has been fetched
		return source.Because(source.Changed(k.Store, ref), err)
	}
	return err
}
