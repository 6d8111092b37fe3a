// Package staging has the directories in which the inputs of sandboxes appear. A hard link
// cannot leave its file system, so a sandbox has one beside the buffer's disk and, if the
// node buffers in memory, one beside that.
package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// Mount is where a sandbox sees its inputs, one file per request.
	Mount = "/headstart/input"
	// NamedMount is where it sees the inputs that have names, in a directory for each name.
	NamedMount = "/headstart/inputs"
	// MemoryMount is where it sees those that are in memory. Their names in Mount lead here.
	MemoryMount = "/headstart/memory"

	// namedMemory is the directory below MemoryMount of those that have names. No request is
	// called so.
	namedMemory = "inputs"
)

// Path is where a sandbox sees the input of a request, by the input's name.
func Path(name, request string) string {
	if name == "" {
		return Mount + "/" + request
	}
	return NamedMount + "/" + name + "/" + request
}

// Dir is where the inputs of one sandbox appear.
type Dir struct {
	// Input is what the sandbox sees as Mount.
	Input *os.Root
	// Named is what it sees as NamedMount; nil: it was started without.
	Named *os.Root
	// Memory is what it sees as MemoryMount; nil: it was started without.
	Memory *os.Root

	mu    sync.Mutex
	named map[string]*Dir // by the inputs' names
	below string          // what Memory is below MemoryMount: empty, or a directory and a slash
}

// For is where the inputs of one name appear, which is d itself for the input without one. It is
// nil where the sandbox sees none with names, and belongs to d.
func (d *Dir) For(name string) (*Dir, error) {
	if name == "" {
		return d, nil
	}
	if d.Named == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if of := d.named[name]; of != nil {
		return of, nil
	}
	of := &Dir{below: namedMemory + "/" + name + "/"}
	var err error
	if of.Input, err = openBelow(d.Named, name); err != nil {
		return nil, err
	}
	if d.Memory != nil {
		if of.Memory, err = openBelow(d.Memory, namedMemory, name); err != nil {
			return nil, errors.Join(err, of.Input.Close())
		}
	}
	if d.named == nil {
		d.named = map[string]*Dir{}
	}
	d.named[name] = of
	return of, nil
}

// openBelow opens a directory below root, which it makes for the function's own user to see.
func openBelow(root *os.Root, names ...string) (*os.Root, error) {
	path := filepath.Join(names...)
	if err := root.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of a named input: %w", err)
	}
	below, err := root.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory of a named input: %w", err)
	}
	return below, nil
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
	if err := d.Input.Symlink(MemoryMount+"/"+d.below+name, name); err != nil {
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
	if d.Named == nil {
		return nil
	}
	return Clear(d.Named, ".")
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
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for _, of := range d.named {
		err = errors.Join(err, of.Close())
	}
	for _, root := range []*os.Root{d.Input, d.Named, d.Memory} {
		if root != nil {
			err = errors.Join(err, root.Close())
		}
	}
	return err
}
