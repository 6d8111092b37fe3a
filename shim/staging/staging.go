// Package staging has the directories in which the inputs of sandboxes appear. A hard link
// cannot leave its file system, so a sandbox has one beside the buffer's disk and, if the
// node buffers in memory, one beside that.
package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// Mount is where a sandbox sees its inputs, one file per request.
	Mount = "/headstart/input"
	// MemoryMount is where it sees those that are in memory. Their names in Mount lead here.
	MemoryMount = "/headstart/memory"
)

// Dir is where the inputs of one sandbox appear.
type Dir struct {
	// Input is what the sandbox sees as Mount.
	Input *os.Root
	// Memory is what it sees as MemoryMount; nil: it was started without.
	Memory *os.Root
}

// Place has link put the file name into the directory that is on the file's own file
// system. Where none is, the error is unix.EXDEV.
func (d *Dir) Place(name string, link func(dir *os.Root) error) error {
	err := link(d.Input)
	if !errors.Is(err, unix.EXDEV) || d.Memory == nil {
		return err
	}
	if err := link(d.Memory); err != nil {
		return err
	}
	// Last: who finds the name finds the file.
	if err := d.Input.Symlink(MemoryMount+"/"+name, name); err != nil {
		return errors.Join(err, d.Memory.Remove(name))
	}
	return nil
}

// Remove takes a file out again.
func (d *Dir) Remove(name string) error {
	err := d.Input.Remove(name)
	if d.Memory != nil {
		if inMemory := d.Memory.Remove(name); !errors.Is(inMemory, fs.ErrNotExist) {
			err = errors.Join(err, inMemory)
		}
	}
	return err
}

// Clear takes all files out but those in keep: those whose requests ended with the daemon
// that had them.
func (d *Dir) Clear(keep ...string) error {
	for _, root := range []*os.Root{d.Input, d.Memory} {
		if root == nil {
			continue
		}
		if err := Clear(root, ".", keep...); err != nil {
			return err
		}
	}
	return nil
}

// Clear removes what is in a directory below root but for the names in keep, if there is one.
func Clear(root *os.Root, dir string, keep ...string) error {
	below, err := root.OpenRoot(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening a directory of inputs: %w", err)
	}
	defer below.Close() // It was only read from.
	left, err := fs.ReadDir(below.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading a directory of inputs: %w", err)
	}
	for _, e := range left {
		if slices.Contains(keep, e.Name()) {
			continue
		}
		if err := below.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("removing the input of a request that is gone: %w", err)
		}
	}
	return nil
}

// Close lets go of the directories, which stay.
func (d *Dir) Close() error {
	err := d.Input.Close()
	if d.Memory != nil {
		err = errors.Join(err, d.Memory.Close())
	}
	return err
}
