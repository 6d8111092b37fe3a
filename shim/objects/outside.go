package objects

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// outside returns an entry for a file that gets names outside of the buffer. Others go for its room: first those that
// are given up, then what is kept of such files.
func (c *Cache) outside(size int64) (*buffer.Entry, error) {
	c.making.Lock() // one at a time looks for room
	defer c.making.Unlock()
	for spared := true; ; {
		if c.Buffer.DiskLacks(spared)+size <= 0 {
			if entry, err := c.Buffer.CreateOutside(buffer.NewID(), size); !buffer.IsFull(err) {
				return entry, err
			}
		}
		gave, err := c.giveUp()
		switch {
		case err != nil:
			return nil, err
		case gave:
		case spared && !c.Spared:
			spared = false
		default:
			return nil, problem.New(http.StatusInsufficientStorage, "VolumeNoRoom",
				filterapi.AnnotationVolumes,
				"the node's disk has no room beside its --cache-spare, and no volume is unused")
		}
	}
}

// giveUp makes room on the disk, if there is any to be made.
func (c *Cache) giveUp() (bool, error) {
	if c.Drop != nil {
		if dropped, err := c.Drop(); err != nil || dropped {
			c.mu.Lock()
			c.unnamed()
			c.unlock()
			return dropped, err
		}
	}
	c.mu.Lock()
	defer c.unlock()
	return c.evict(buffer.OutsideTier, 1, EvictedDisk) == 0, nil
}

// unnamed has those objects go in their turn whose files have no names outside of the buffer any more. The caller
// holds the lock.
func (c *Cache) unnamed() {
	for _, s := range c.slots {
		o := s.held
		if o == nil || !o.named {
			continue
		}
		if _, named := o.entry.Outside(); !named {
			o.named, o.since = false, time.Now()
			o.order.Unpin(o.key)
		}
	}
}

// Place waits for the input, and has it appear below root, which is on the buffer's disk, for everybody to read: as
// another name of its file, or of a copy where that cannot be, such as of one in memory.
func (i *Input) Place(ctx context.Context, root *os.Root, name string) error {
	if err := i.place(ctx, root, name); err != nil {
		return err
	}
	i.cache.mu.Lock()
	defer i.cache.mu.Unlock()
	if !i.object.damaged { // else Damaged may not have seen the name
		return nil
	}
	ref, _ := source.ParseReference(i.request.Reference) // it has an object
	return source.Changed(i.request.Store, ref)
}

func (i *Input) place(ctx context.Context, root *os.Root, name string) error {
	if err := i.Wait(ctx); err != nil {
		return err
	}
	if placed, err := i.object.entry.Place(root, name); placed || err != nil {
		return err
	}
	other, err := i.cache.outside(i.object.size())
	if err != nil {
		return err
	}
	defer other.Release()
	from, err := i.NewReader(ctx)
	if err != nil {
		return err
	}
	defer from.Close() // it is only read from
	if _, err := io.Copy(io.NewOffsetWriter(other, 0), from); err != nil {
		return fmt.Errorf("copying an object for a volume: %w", err)
	}
	if err := other.Complete(); err != nil {
		return err
	}
	if placed, err := other.Place(root, name); placed || err != nil {
		return err
	}
	return fmt.Errorf("%s is not on the file system of the buffer's disk", root.Name())
}
