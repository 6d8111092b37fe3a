package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// outputName is the directory of a sandbox's outputs in a bundle that stays as long as the sandbox.
const outputName = "headstart-output"

// settle returns the bundle that stays as long as the sandbox: that of a pod's first container, which is the pause
// container, or the container's own. The shim has one pod.
func (s *Service) settle(b *bundle) string {
	if b.facts.Pod == nil && !b.facts.Pause {
		return b.path
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.home = cmp.Or(s.home, b.path)
	return s.home
}

// output is where a sandbox's programs write what they want to be objects: in memory, which the kernel counts as that of
// the container that writes.
type output struct {
	binds Binds
	at    string
	size  int64 // in bytes, 0 for half of the node's memory
	dir   *os.File
}

// newOutput makes the directory in a bundle. It takes size bytes, 0 for half of the node's memory.
func newOutput(binds Binds, bundle string, size int64) (_ *output, err error) {
	o := &output{binds: binds, at: filepath.Join(bundle, outputName), size: size}
	if err := os.Mkdir(o.at, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the outputs: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.remove())
		}
	}()
	if err := binds.Memory(o.at, size, false); err != nil {
		return nil, err
	}
	fd, err := unix.Open(o.at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: o.at, Err: err}
	}
	o.dir = os.NewFile(uintptr(fd), o.at)
	return o, nil
}

// fits makes the directory as large as one more container's memory. It is false if there is no directory any more: who
// removes a pod's first container removes what is in its bundle.
func (o *output) fits(size int64) bool {
	if _, err := os.Lstat(o.at); err != nil {
		return false
	}
	if o.size == 0 || size > 0 && size <= o.size {
		return true
	}
	if err := o.binds.Memory(o.at, size, true); err != nil {
		log.L.WithError(err).Warn("the directory of a sandbox's outputs stays as small as it is")
		return true
	}
	o.size = size
	return true
}

// remove takes the directory from the node. What is in it goes with the last one who has it open.
func (o *output) remove() error {
	if o.dir != nil {
		_ = o.dir.Close() // it was only handed over
	}
	return removeOutput(o.binds, o.at)
}

func removeOutput(binds Binds, at string) error {
	if _, err := os.Lstat(at); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// Removed only when nothing is mounted there any more, and then it is empty.
	return errors.Join(binds.Unbind(at), os.Remove(at))
}

// CleanUp takes back what a shim that was killed has mounted in the bundle at path dir.
func CleanUp(binds Binds, dir string) error {
	return errors.Join(Unpin(binds, dir), removeOutput(binds, filepath.Join(dir, outputName)))
}
