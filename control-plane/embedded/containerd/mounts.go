package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// maxSweeps bounds SweepMounts: each pass takes the uppermost mount of every place, and
// nobody stacks that many.
const maxSweeps = 16

// SweepMounts unmounts everything that is mounted below dir, deepest first, and lazily:
// what is still in use disappears with its last user. dir itself stays mounted, if it
// is. With nothing mounted it does nothing.
func SweepMounts(dir string) error {
	dir, err := resolve(dir)
	if err != nil {
		return err
	}
	for range maxSweeps {
		mounts, err := mountinfo.GetMounts(nil)
		if err != nil {
			return fmt.Errorf("reading mounts: %w", err)
		}
		places := below(mounts, dir)
		if len(places) == 0 {
			return nil
		}
		if err := unmount(places); err != nil {
			return err
		}
	}
	return fmt.Errorf("mounts below %s keep coming back", dir)
}

// unmount takes the mounts in the order given.
func unmount(places []string) error {
	// A recursive bind mount of a shared tree hands its unmounts on to the original:
	// cut that before the first one.
	for _, place := range places {
		if err := unix.Mount("", place, "", unix.MS_PRIVATE, ""); err != nil && !gone(err) {
			return fmt.Errorf("making mount %s private: %w", place, err)
		}
	}
	for _, place := range places {
		if err := unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !gone(err) {
			return fmt.Errorf("unmounting %s: %w", place, err)
		}
	}
	return nil
}

// gone: no mount there, or no place any more.
func gone(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) }

// resolve returns dir as the kernel shows it: absolute and without links. What does not
// exist stays as it is.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, os.ErrNotExist) {
		return abs, nil
	}
	if err != nil {
		return "", fmt.Errorf("resolving %s: %w", dir, err)
	}
	return real, nil
}

// below selects the places strictly below dir, each once, deepest first.
func below(mounts []*mountinfo.Info, dir string) []string {
	var found []string
	for _, m := range mounts {
		if isBelow(m.Mountpoint, dir) {
			found = append(found, m.Mountpoint)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		if d := strings.Count(b, "/") - strings.Count(a, "/"); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(found)
}

func isBelow(path, dir string) bool {
	return path != dir && strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
