package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// pinsName is the directory in a bundle where runc finds the mounts' sources. runc knows sources by
// their paths alone, and the daemon may make anything else of its own paths until runc mounts them: so runc is told of
// paths that are not the daemon's.
const pinsName = "headstart"

// Binds makes bind mounts.
type Binds interface {
	// Bind shows an open directory, read-only and without what is mounted in it, at the path of an
	// empty one.
	Bind(dir *os.File, at string) error
	// Nest shows directories in those of their names in what Bind shows at a path, in the same way.
	Nest(at string, dirs map[string]*os.File) error
	// Memory shows a new file system in memory, which everybody may write to, at the path of an empty one. It takes size
	// bytes, 0 for half of the node's memory. Where one is shown already, that is resized.
	Memory(at string, size int64, again bool) error
	// Unbind undoes all of them. Of a directory that shows no other, nothing is undone.
	Unbind(at string) error
}

// Kernel makes them for everybody on the node to see.
type Kernel struct{}

// Bind implements Binds.
func (Kernel) Bind(dir *os.File, at string) error {
	if err := unix.Mount(descriptorPath(dir), at, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting a directory of the sandbox's own: %w", err)
	}
	return dataOnly(at)
}

func dataOnly(at string) error {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_BIND|flags, ""); err != nil {
		return fmt.Errorf("making the mount read-only: %w", err)
	}
	return nil
}

// Nest implements Binds. The daemon may write behind at, and mount there, or make a link of a name, at any moment: so a
// mount over the first one, which the daemon's do not come to, takes the place of that.
func (Kernel) Nest(at string, dirs map[string]*os.File) error {
	err := unix.Mount("", at, "", unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount(at, at, "", unix.MS_BIND, "")
	}
	for name, dir := range dirs {
		for _, do := range []func(at string) error{
			func(at string) error { return unix.Mount(descriptorPath(dir), at, "", unix.MS_BIND, "") },
			dataOnly, // the name leads to the mount now
		} {
			var within *os.File
			if err == nil {
				within, err = openWithin(at, []string{name})
			}
			if err == nil {
				err = errors.Join(do(descriptorPath(within)), within.Close())
			}
		}
	}
	if err != nil {
		return fmt.Errorf("mounting in a directory of the sandbox's own: %w", err)
	}
	return nil
}

// descriptorPath leads to an open file, whatever is at its path now.
func descriptorPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }

// Memory implements Binds.
func (Kernel) Memory(at string, size int64, again bool) error {
	flags, options := uintptr(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), "size=50%"
	if size > 0 {
		options = "size=" + strconv.FormatInt(size, 10)
	}
	if again {
		flags |= unix.MS_REMOUNT
	} else {
		options += ",mode=1777"
	}
	if err := unix.Mount("headstart", at, "tmpfs", flags, options); err != nil {
		return fmt.Errorf("mounting the directory of the outputs: %w", err)
	}
	return nil
}

// Unbind implements Binds.
func (Kernel) Unbind(at string) error {
	var err error
	for err == nil {
		err = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) { // it is no mount
		return fmt.Errorf("taking a mount back: %w", err)
	}
	return nil
}

// openWithin opens a directory below a root, by the names that lead there. The daemon may write from the root on:
// from there on no link is followed. (openat2 would do it at once, from Linux 5.6 on.)
func openWithin(root string, names []string) (*os.File, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Open(root, flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: root, Err: err}
	}
	for _, name := range names {
		next, err := unix.Openat(fd, name, flags|unix.O_NOFOLLOW, 0)
		_ = unix.Close(fd) // nothing was written by it
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: err}
		}
		fd = next
	}
	return os.NewFile(uintptr(fd), root), nil
}

// pin shows the mounts' sources to runc, all of them or, with the reason why, some, until unpin.
func (b *bundle) pin(binds Binds, sb spec.Sandbox, mounts []*nodeapi.Mount) *lapse {
	within := map[string]*os.File{}
	defer func() { descriptors.CloseAll(slices.Collect(maps.Values(within))) }()
	for _, m := range mounts {
		if missed := b.pinOne(binds, sb, m, within); missed != nil {
			missed.cause = fmt.Errorf("mount %q: %w", m.GetDestination(), missed.cause)
			return missed
		}
	}
	if len(within) == 0 {
		return nil
	}
	if err := binds.Nest(sb.Pin(&nodeapi.Mount{Destination: spec.Socket}), within); err != nil {
		return &lapse{descriptionInvalid, err}
	}
	return nil
}

// pinOne adds the directories that are to lie in that of the sockets to within, which the caller closes.
func (b *bundle) pinOne(binds Binds, sb spec.Sandbox, m *nodeapi.Mount, within map[string]*os.File) *lapse {
	root, names, _ := sb.Within(m.GetSource()) // it was checked
	dir, err := openWithin(root, names)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &lapse{sourceMissing, err}
	case err != nil: // a file, or a link, which would lead out of the sandbox's own directories
		return &lapse{descriptionInvalid, err}
	}
	if name := spec.InSocket(m); name != "" {
		within[name] = dir
		return nil
	}
	defer dir.Close()
	at := sb.Pin(m)
	if err := errors.Join(os.MkdirAll(at, 0o700), binds.Bind(dir, at)); err != nil {
		return &lapse{bundleUnwritable, err}
	}
	return nil
}

// Unpin takes back what the bundle at path dir shows to runc; what runc has mounted stays.
func Unpin(binds Binds, dir string) error {
	pins := filepath.Join(dir, pinsName)
	all, err := os.ReadDir(pins)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range all {
		at := filepath.Join(pins, e.Name())
		// Removed only when it shows nothing any more, and then it is empty.
		err = errors.Join(err, binds.Unbind(at), os.Remove(at))
	}
	return errors.Join(err, os.Remove(pins))
}
