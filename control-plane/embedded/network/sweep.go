package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// dumpTries: the kernel says that a listing may have holes when devices change
// meanwhile; then it is asked again.
const dumpTries = 10

// Sweep removes all that any instance of this name has made on this machine, running or
// killed: the processes in its namespaces, the namespaces, devices, packet filter rules,
// and the host's ip_forward. With nothing to remove it does nothing.
func Sweep(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	return errors.Join(
		sweepNamespaces(ctx, name),
		sweepDevices(name),
		removeRules(ctx, name),
	)
}

// identity is a namespace's, the same for every file that shows it (namespaces(7)).
type identity struct{ dev, ino uint64 }

func identify(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, err
	}
	return identity{st.Dev, st.Ino}, nil
}

func sweepNamespaces(ctx context.Context, name string) error {
	paths, err := filepath.Glob(filepath.Join(namespaceDir, name+"-*"))
	if err != nil {
		return fmt.Errorf("listing network namespaces: %w", err)
	}
	ids := make(map[identity]bool, len(paths))
	for _, path := range paths {
		id, err := identify(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading network namespace %s: %w", path, err)
		}
		ids[id] = true
	}
	// Should one of the files show the host's own namespace, it is only unmounted.
	host, err := identify("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("reading the host's network namespace: %w", err)
	}
	delete(ids, host)
	// Processes first: as long as their namespace has a name, a next try finds them.
	if err := process.Kill(ctx, inside(ids)); err != nil {
		return fmt.Errorf("emptying network namespaces: %w", err)
	}
	for _, path := range paths {
		if err := removeNamespace(path); err != nil {
			return err
		}
	}
	return nil
}

// inside selects the processes whose network namespace is one of ids.
func inside(ids map[identity]bool) func([]process.Entry) []int {
	return func(table []process.Entry) (found []int) {
		for _, e := range table {
			// A process that has just ended has no namespace, and an error here.
			id, err := identify("/proc/" + strconv.Itoa(e.PID) + "/ns/net")
			if err == nil && ids[id] {
				found = append(found, e.PID)
			}
		}
		return found
	}
}

func removeNamespace(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not a mount any more, or never was
		}
		if err != nil {
			return fmt.Errorf("unmounting network namespace %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing mount point of a network namespace: %w", err)
	}
	return nil
}

func sweepDevices(name string) error {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	others := slices.DeleteFunc(slices.Clone(links), func(l netlink.Link) bool { return isDevice(name, l.Attrs().Name) })
	for _, l := range links {
		if !isDevice(name, l.Attrs().Name) {
			continue
		}
		if err := restoreForwarding(l, others); err != nil {
			return err
		}
		var gone netlink.LinkNotFoundError
		if err := netlink.LinkDel(l); err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("deleting device %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

// complete repeats a listing until the kernel vouches for it.
func complete[T any](list func() ([]T, error)) (all []T, err error) {
	for range dumpTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}
