package volume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Spared is which part of a node's disk stays free on Kubernetes, a fifth: the kubelet removes pods when there is less
// than a tenth, and images when there is less than 15 %.
const Spared = 5

// Direct places objects as they come from their stores. It implements tree.Objects.
type Direct struct {
	// Source finds a store by its name, for a function.
	Source func(function, store string) (source.Source, error)
	// Path is on the disk of the versions.
	Path string
	// Spared is which part of the disk stays free; 0: none.
	Spared int64
	// Drop removes a version that no pod has, and tells whether there was one.
	Drop func() (bool, error)

	mu sync.Mutex // one at a time looks for room
}

// volumesOf stands for the functions of a namespace. No function can be called so.
func volumesOf(of tree.Prefix) string { return of.Namespace + "/(volumes)" }

// List implements tree.Objects.
func (d *Direct) List(ctx context.Context, of tree.Prefix, each func(tree.Object) error) error {
	from, err := d.Source(volumesOf(of), of.Store)
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

// Place implements tree.Objects.
func (d *Direct) Place(ctx context.Context, of tree.Prefix, o tree.Object, root *os.Root, name string) (err error) {
	from, err := d.Source(volumesOf(of), of.Store)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return fmt.Errorf("making a file of a volume: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	ref := of.Prefix
	ref.Key += o.Name
	err = from.Fetch(fair.For(ctx, volumesOf(of)), ref, "", func(now source.Object) (io.WriterAt, error) {
		if now.Version != o.Version || now.Size != o.Size {
			return nil, source.Because(source.Changed(of.Store, ref), tree.ErrChanged)
		}
		return f, d.reserve(f, o.Size)
	})
	switch problem.ReasonOf(err) {
	case problem.ReasonInputNotFound, problem.ReasonInputChanged:
		return fmt.Errorf("%w: %w", err, tree.ErrChanged)
	}
	return err
}

// reserve takes room for a file, for which versions go that no pod has.
func (d *Direct) reserve(f *os.File, size int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		var disk unix.Statfs_t
		if err := unix.Statfs(d.Path, &disk); err != nil {
			return fmt.Errorf("asking for the disk's room: %w", err)
		}
		err := unix.ENOSPC
		kept := int64(0)
		if d.Spared > 0 {
			kept = int64(disk.Blocks) * disk.Bsize / d.Spared
		}
		if int64(disk.Bavail)*disk.Bsize-kept >= size {
			reserved := unix.Fallocate(int(f.Fd()), 0, 0, size)
			if reserved == nil || errors.Is(reserved, unix.EOPNOTSUPP) {
				return nil
			}
			if !errors.Is(reserved, err) {
				return fmt.Errorf("reserving room for a volume: %w", reserved)
			}
		}
		dropped, failed := d.Drop()
		if failed != nil {
			return failed
		}
		if !dropped {
			return source.Because(problem.New(http.StatusInsufficientStorage, "VolumeNoRoom",
				filterapi.AnnotationVolumes, "the node's disk has no room for a volume, and no volume is unused"), err)
		}
	}
}
