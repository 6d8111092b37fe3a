// Package tree is a node's file system, seen from a container that has it mounted: it
// reads and replaces files below one directory, and no link leads out of it.
package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// maxLinks is how many symbolic links one path may have, as in the kernel.
	maxLinks = 40
	// tempSuffix marks files that are being written. The name begins with a dot and does
	// not end in .toml, so no program takes it for a configuration.
	tempSuffix = ".headstart.tmp"
	// label is where SELinux keeps what a file is.
	label = "security.selinux"
	// maxLabel bounds such a label, in bytes.
	maxLabel = 4 << 10
)

// ErrTooLarge is returned for a file that has more bytes than the caller allows.
var ErrTooLarge = errors.New("file is too large")

// File is a regular file's content and what belongs to it.
type File struct {
	Data     []byte
	Mode     fs.FileMode // permissions only
	UID, GID int
}

// Tree is all below one directory. Paths are absolute, and those of the node.
type Tree struct {
	root *os.Root
	path string
	// Step is called before each single change, with what it is. Tests stop here, as a
	// kill would.
	Step func(what, path string)
}

// Open returns the tree whose root is the directory dir. The caller closes it.
func Open(dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the node's file system: %w", err)
	}
	return &Tree{root: root, path: dir, Step: func(string, string) {}}, nil
}

// Close gives the directory back.
func (t *Tree) Close() error { return t.root.Close() }

// Lock keeps other installers from this tree until unlock is called. It leaves nothing
// behind. It fails with unix.EWOULDBLOCK while another one holds it.
func (t *Tree) Lock() (unlock func() error, err error) {
	dir, err := t.root.Open(".")
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir.Close, nil
}

// Resolve returns p without symbolic links, which are followed as the node would follow
// them: absolute ones begin at the tree's root. What does not exist stays as it is.
func (t *Tree) Resolve(p string) (string, error) {
	todo, done := strings.Split(path.Clean("/"+p), "/"), "/"
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		target, err := t.root.Readlink(rel(next))
		switch {
		case errors.Is(err, syscall.EINVAL), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			done = next // no link
			continue
		case err != nil:
			return "", fmt.Errorf("following %s: %w", p, err)
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("following %s: more than %d symbolic links", p, maxLinks)
		}
		if path.IsAbs(target) {
			done = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// Outside is the path by which this process reaches the node's p, for a socket.
func (t *Tree) Outside(p string) (string, error) {
	p, err := t.Resolve(p)
	return path.Join(t.path, p), err
}

// Exists tells whether there is anything at p.
func (t *Tree) Exists(p string) bool {
	p, err := t.Resolve(p)
	if err != nil {
		return false
	}
	_, err = t.root.Lstat(rel(p))
	return err == nil
}

// List returns the names in directory p, in order; none if it is not there.
func (t *Tree) List(p string) ([]string, error) {
	p, err := t.Resolve(p)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(t.root.FS(), rel(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

// Read returns the regular file at p, which may have limit bytes.
func (t *Tree) Read(p string, limit int64) (File, error) {
	resolved, err := t.Resolve(p)
	if err != nil {
		return File{}, err
	}
	// A FIFO in place of the file must not hold the installer up.
	f, err := t.root.OpenFile(rel(resolved), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", p, bare(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", p, bare(err))
	}
	if !info.Mode().IsRegular() {
		return File{}, fmt.Errorf("reading %s: it is not a regular file", p)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w", p, bare(err))
	}
	if int64(len(data)) > limit {
		return File{}, fmt.Errorf("reading %s: %w: over %d bytes", p, ErrTooLarge, limit)
	}
	owner := info.Sys().(*syscall.Stat_t)
	return File{Data: data, Mode: info.Mode().Perm(), UID: int(owner.Uid), GID: int(owner.Gid)}, nil
}

// Optional is Read's file, nil if there is none.
func (t *Tree) Optional(p string, limit int64) (*File, error) {
	f, err := t.Read(p, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &f, nil
}

// rel is p as os.Root wants it.
func rel(p string) string {
	if p = strings.TrimPrefix(path.Clean("/"+p), "/"); p == "" {
		return "."
	}
	return p
}

// bare is err without the path, which the caller names as the node does.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
