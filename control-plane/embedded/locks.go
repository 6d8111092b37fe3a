package embedded

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// namesDir has the lock of each running platform's name. It is the same for all platforms,
// whatever directories they have, and goes with a reboot, as networks do.
const namesDir = "/run"

// lockName is the file in RunDir and in StateDir that a running platform holds locked.
const lockName = "lock"

// takeLocks keeps a second platform away from the name, of which namesDir has a file, and out of
// both directories: it would take what runs there for what an earlier one left, and remove it.
// The state directory comes before the other one, because its lock file may stay when that one
// is taken.
func takeLocks(namesDir string, o Options) (taken []io.Closer, err error) {
	defer func() {
		if err != nil {
			taken, err = nil, errors.Join(err, letGo(taken))
		}
	}()
	name, err := takeName(namesDir, o)
	if err != nil {
		return nil, err
	}
	taken = append(taken, name)
	state, err := takeLock("--state-dir", o.StateDir, 0o700)
	if err != nil {
		return taken, err
	}
	taken = append(taken, state)
	if err := checkOurs(o.RunDir); err != nil {
		return taken, err
	}
	run, err := takeLock("--run-dir", o.RunDir, 0o755)
	if err != nil {
		return taken, err
	}
	return append(taken, run), nil
}

// letGo gives locks back, the one that was taken last first.
func letGo(locks []io.Closer) error {
	var errs []error
	for _, l := range slices.Backward(locks) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// checkOurs refuses a run directory with files in it that no platform has left: it is
// emptied at the start, and removed in the end.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("--run-dir: %w", err)
	}
	ours := len(entries) == 0
	for _, e := range entries {
		ours = ours || e.Name() == lockName
	}
	if !ours {
		return fmt.Errorf("--run-dir %s holds files of others, and would be removed in the end; name a directory that is empty or not there", dir)
	}
	return nil
}

// takeLock makes dir, which flag names, and locks it. The kernel lets go of the lock when
// its holder dies.
func takeLock(flag, dir string, mode os.FileMode) (*os.File, error) {
	if err := os.MkdirAll(dir, mode); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("a platform is running with %s %s already; stop it, or start another one with --run-dir, --state-dir, --name and --subnet of its own", flag, dir), f.Close())
	}
	return f, nil
}

// lock locks a file that nobody else has locked.
func lock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// nameLock is the lock of a platform's name. Its file says who has it, and goes with it.
type nameLock struct{ *os.File }

// Close removes the file while it is locked: who opens it meanwhile sees that it is gone. One that
// is at its path in its place is another platform's.
func (l nameLock) Close() error {
	var err error
	if isAt(l.File, l.Name()) {
		err = os.Remove(l.Name())
	}
	return errors.Join(err, l.File.Close())
}

// takeName locks the name in dir: by it devices, namespaces and rules are known as this platform's,
// and swept.
func takeName(dir string, o Options) (io.Closer, error) {
	path := filepath.Join(dir, "headstart-"+o.Name+".lock")
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, fmt.Errorf("locking the platform's name: %w", err)
		}
		if err := lock(f); err != nil {
			holder, _ := io.ReadAll(f) // empty if it has only just taken it
			return nil, errors.Join(fmt.Errorf("a platform with --name %s is running already %s; stop it, or start another one with --name, --subnet, --run-dir and --state-dir of its own", o.Name, holder), f.Close())
		}
		if !isAt(f, path) { // its holder removed it after we had opened it
			_ = f.Close() // it is nobody's any more
			continue
		}
		err = f.Truncate(0) // a platform that was killed has left its words
		if err == nil {
			_, err = fmt.Fprintf(f, "(process %d, --run-dir %s)", os.Getpid(), o.RunDir)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("locking the platform's name: %w", err), nameLock{f}.Close())
		}
		return nameLock{f}, nil
	}
}

// isAt tells whether the open file is the one at path.
func isAt(f *os.File, path string) bool {
	opened, err1 := f.Stat()
	found, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(opened, found)
}
