package embedded

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mountMemory gives a node's daemon a tmpfs of its own for inputs: /run may be on a disk,
// and has room for other things than inputs. It goes with all mounts of the run directory.
func mountMemory(run string, size int64) error {
	if size <= 0 {
		return nil
	}
	dir := filepath.Join(run, "memory")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	// Huge pages, where files are large enough, make writing and reading them twice as fast.
	// Kernels without them refuse the option.
	options := fmt.Sprintf("size=%d,mode=0700", size)
	err := unix.Mount("headstart", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options+",huge=within_size")
	if err == unix.EINVAL {
		err = unix.Mount("headstart", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options)
	}
	if err != nil {
		return fmt.Errorf("mounting a tmpfs on %s for --buffer-memory: %w", dir, err)
	}
	return nil
}
