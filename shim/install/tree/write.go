package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// Write makes the file at p, or replaces it in one step: whoever has the old one open
// keeps it, and whoever opens p sees either of them, never a part.
func (t *Tree) Write(p string, f File) error {
	resolved, err := t.Resolve(p)
	if err != nil {
		return err
	}
	if err := t.write(resolved, f); err != nil {
		return fmt.Errorf("writing %s: %w", p, bare(err))
	}
	return nil
}

func (t *Tree) write(p string, f File) error {
	temp := tempOf(p)
	t.Step("create", temp)
	if err := t.root.Remove(rel(temp)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Nobody but root reads it before it has its owner and mode.
	to, err := t.root.OpenFile(rel(temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(f.Data)
	if err == nil {
		err = to.Chown(f.UID, f.GID)
	}
	if err == nil {
		err = to.Chmod(f.Mode.Perm())
	}
	if err == nil {
		t.keepLabel(p, to)
		err = to.Sync()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, t.root.Remove(rel(temp)))
	}
	t.Step("rename", p)
	if err := t.root.Rename(rel(temp), rel(p)); err != nil {
		return errors.Join(err, t.root.Remove(rel(temp)))
	}
	return t.sync(path.Dir(p))
}

// keepLabel gives to the SELinux label of the file that it replaces. Where there is no
// SELinux there is none, and a label that cannot be kept is the policy's to set.
func (t *Tree) keepLabel(p string, to *os.File) {
	old, err := t.root.Open(rel(p))
	if err != nil {
		return
	}
	defer old.Close()
	value := make([]byte, maxLabel)
	if n, err := unix.Fgetxattr(int(old.Fd()), label, value); err == nil {
		_ = unix.Fsetxattr(int(to.Fd()), label, value[:n], 0)
	}
}

// Discard removes what an interrupted Write of p has left.
func (t *Tree) Discard(p string) error {
	resolved, err := t.Resolve(p)
	if err != nil {
		return err
	}
	return t.remove(tempOf(resolved))
}

// Remove removes the file or the empty directory at p; nothing there is no error. A link
// at p's end is removed itself.
func (t *Tree) Remove(p string) error {
	p, err := t.entry(p)
	if err != nil {
		return err
	}
	return t.remove(p)
}

func (t *Tree) remove(p string) error {
	if _, err := t.root.Lstat(rel(p)); errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	t.Step("remove", p)
	if err := t.root.Remove(rel(p)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", p, bare(err))
	}
	return t.sync(path.Dir(p))
}

// RemoveAll removes all at and below p, and follows no link at its end or below.
func (t *Tree) RemoveAll(p string) error {
	p, err := t.entry(p)
	if err != nil {
		return err
	}
	if _, err := t.root.Lstat(rel(p)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	t.Step("remove all", p)
	if err := t.root.RemoveAll(rel(p)); err != nil {
		return fmt.Errorf("removing %s: %w", p, bare(err))
	}
	return t.sync(path.Dir(p))
}

// entry is p with the links on the way to its last name followed.
func (t *Tree) entry(p string) (string, error) {
	dir, err := t.Resolve(path.Dir(p))
	return path.Join(dir, path.Base(p)), err
}

// Mkdir makes the directory p, whose parent exists, for all to read. One that is there is
// no error.
func (t *Tree) Mkdir(p string, mode fs.FileMode) error {
	resolved, err := t.Resolve(p)
	if err != nil {
		return err
	}
	t.Step("mkdir", p)
	if err := t.root.Mkdir(rel(resolved), mode); errors.Is(err, fs.ErrExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("making %s: %w", p, bare(err))
	}
	// The process's umask is the container's.
	if err := t.root.Chmod(rel(resolved), mode); err != nil {
		return fmt.Errorf("making %s: %w", p, bare(err))
	}
	return t.sync(path.Dir(resolved))
}

// Rename moves from to to, which must not be there, or be an empty directory.
func (t *Tree) Rename(from, to string) error {
	from, err := t.entry(from)
	if err != nil {
		return err
	}
	if to, err = t.entry(to); err != nil {
		return err
	}
	t.Step("rename", to)
	if err := t.root.Rename(rel(from), rel(to)); err != nil {
		return fmt.Errorf("renaming %s to %s: %w", from, to, bare(err))
	}
	return errors.Join(t.sync(path.Dir(from)), t.sync(path.Dir(to)))
}

// sync makes the names in a directory durable.
func (t *Tree) sync(dir string) error {
	d, err := t.root.Open(rel(dir))
	if err != nil {
		return bare(err)
	}
	err = d.Sync()
	// Some file systems know no fsync of directories; their order of things is their own.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}

func tempOf(p string) string {
	return path.Join(path.Dir(p), "."+path.Base(p)+tempSuffix)
}
