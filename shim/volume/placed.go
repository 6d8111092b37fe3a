package volume

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Placed has the node's objects in versions of volumes. It implements tree.Objects.
type Placed struct{ Cache *objects.Cache } // set before anybody asks

// volumesOf stands for the functions of a namespace. No function can be called so.
func volumesOf(of tree.Prefix) string { return of.Namespace + "/(volumes)" }

// List implements tree.Objects.
func (p *Placed) List(ctx context.Context, of tree.Prefix, each func(tree.Object) error) error {
	from, err := p.Cache.Sources(volumesOf(of), of.Store)
	if err != nil {
		return err
	}
	lister, ok := from.(source.Lister)
	if !ok {
		return source.NoLists(of.Store)
	}
	return lister.List(fair.For(ctx, volumesOf(of)), of.Prefix, func(name string, o source.Object) error {
		return each(tree.Object{Name: name, Size: o.Size, Version: o.Version})
	})
}

// Place implements tree.Objects. Which version is the newest the list has just said: of one that the node has, the store
// is not asked.
func (p *Placed) Place(ctx context.Context, of tree.Prefix, o tree.Object, root *os.Root, name string) error {
	ref := of.Prefix
	ref.Key += o.Name
	k, _ := p.Cache.Key(of.Namespace, of.Store, ref.Bucket, ref.String())
	i, err := p.Cache.Held(ctx, k, o.Version, volumesOf(of))
	if errors.Is(err, objects.ErrNotHeld) {
		i, err = p.Cache.Fetch(ctx, objects.Request{ID: "volume:" + rand.Text(), Function: volumesOf(of), Store: of.Store,
			Reference: k.Reference, Limit: math.MaxInt64, Outside: true}), nil
	}
	if err != nil {
		return err
	}
	defer i.Release()
	about, err := i.Object(ctx)
	switch {
	case err == nil && (about.Version != o.Version || about.Size != o.Size):
		err = source.Changed(of.Store, ref)
	case err == nil:
		err = i.Place(ctx, root, name)
	}
	switch problem.ReasonOf(err) {
	case problem.ReasonInputNotFound, problem.ReasonInputChanged:
		return fmt.Errorf("%w: %w", err, tree.ErrChanged)
	}
	return err
}
