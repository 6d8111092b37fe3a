package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Names below a pod's own directory.
const (
	inputName = "input"
	// holdersName is the directory of the pod's containers that have inputName mounted: an
	// empty file for each, so that a restarted daemon knows when the last one is gone.
	holdersName = "containers"
)

const (
	// nameLimit is the longest name that a directory can have, in bytes.
	nameLimit = 255
	// idLimit is the longest id of a pod, in bytes: Kubernetes' limits of namespace, name
	// and uid, and what is between them.
	idLimit = 63 + 253 + 36 + 2
	// podsLimit and holdersLimit are more than the kubelet runs on a node, and than a pod has
	// containers.
	podsLimit    = 4096
	holdersLimit = 256
)

var errFull = errors.New("more pods or containers than a node can have")

// dirs holds a directory per pod. Ids come from outside: nothing beyond dirs is reached,
// whatever they hold.
type dirs struct {
	root *os.Root

	mu   sync.Mutex
	open map[string]*os.Root // input directories, by the pod's id
	// gone is told of each directory that is to be removed; nil: nobody.
	gone func(dir string)
}

// openDirs opens the directories below path. What inputs are in them is removed if they are
// abandoned: if their requests ended with the daemon that had them.
func openDirs(path string, abandoned bool) (*dirs, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the pods' directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the pods' directory: %w", err)
	}
	d := &dirs{root: root, open: map[string]*os.Root{}}
	if !abandoned {
		return d, nil
	}
	if err := d.clear(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

func (d *dirs) clear() error {
	all, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the pods' directory: %w", err)
	}
	for _, pod := range all {
		inputs := filepath.Join(pod.Name(), inputName)
		left, err := fs.ReadDir(d.root.FS(), inputs)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading a pod's input directory: %w", err)
		}
		for _, input := range left {
			if err := d.root.RemoveAll(filepath.Join(inputs, input.Name())); err != nil {
				return fmt.Errorf("removing the input of a request that is gone: %w", err)
			}
		}
	}
	return nil
}

// path is the input directory's, for the containers' mounts.
func (d *dirs) path(id string) string { return filepath.Join(d.root.Name(), name(id), inputName) }

// hold makes the pod's directory for one more of its containers.
func (d *dirs) hold(id, container string) error {
	if err := errors.Join(checkName(id, idLimit), checkName(container, nameLimit)); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	holders := filepath.Join(name(id), holdersName)
	for dir, limit := range map[string]int{holders: holdersLimit, ".": podsLimit} {
		if n, err := d.count(dir); err != nil {
			return err
		} else if n >= limit {
			return errFull
		}
	}
	// The directories above are 0700; this one is seen by the function's own user.
	if err := errors.Join(d.root.MkdirAll(filepath.Join(name(id), inputName), 0o755), d.root.MkdirAll(holders, 0o700)); err != nil {
		return fmt.Errorf("making a pod's input directory: %w", err)
	}
	if err := d.root.WriteFile(filepath.Join(holders, container), nil, 0o600); err != nil {
		return fmt.Errorf("noting a pod's container: %w", err)
	}
	return nil
}

// release forgets a container.
func (d *dirs) release(id, container string) error {
	if err := errors.Join(checkName(id, idLimit), checkName(container, nameLimit)); err != nil {
		return err
	}
	err := d.root.Remove(filepath.Join(name(id), holdersName, container))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting a pod's container: %w", err)
	}
	return nil
}

func (d *dirs) count(dir string) (int, error) {
	all, err := fs.ReadDir(d.root.FS(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("reading a pod's directory: %w", err)
	}
	return len(all), nil
}

// inputs is the directory that the pod's containers see as their input's, nil if none of
// them has it.
func (d *dirs) inputs(id string) *os.Root {
	if checkName(id, idLimit) != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if root := d.open[id]; root != nil {
		return root
	}
	root, err := d.root.OpenRoot(filepath.Join(name(id), inputName))
	if err != nil {
		return nil
	}
	d.open[id] = root
	return root
}

// leave notes that nobody knows the pod any more, from now on.
func (d *dirs) leave(id string) {
	now := time.Now()
	_ = d.root.Chtimes(name(id), now, now) // it has none if this fails
}

// remove removes the pod's directory, unless one of its containers has it.
func (d *dirs) remove(id string) (removed bool, err error) {
	if checkName(id, idLimit) != nil {
		return true, nil // nothing was made for it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n, err := d.count(filepath.Join(name(id), holdersName)); n > 0 || err != nil {
		return false, err
	}
	d.shut(name(id))
	if err := d.root.RemoveAll(name(id)); err != nil {
		return false, fmt.Errorf("removing a pod's directory: %w", err)
	}
	return true, nil
}

// sweep removes the directories that have not changed since before, and since held if a
// container has them, but for those of the pods in keep.
func (d *dirs) sweep(keep map[string]bool, before, held time.Time) error {
	names := make(map[string]bool, len(keep))
	for id := range keep {
		names[name(id)] = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the pods' directory: %w", err)
	}
	for _, e := range all {
		info, err := e.Info()
		if err != nil || names[e.Name()] || !info.ModTime().Before(before) {
			continue // or gone by itself
		}
		if n, err := d.count(filepath.Join(e.Name(), holdersName)); (n > 0 || err != nil) && !info.ModTime().Before(held) {
			continue
		}
		d.shut(e.Name())
		if err := d.root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("removing what a pod left: %w", err)
		}
	}
	return nil
}

// shut closes what is open of a directory that is to be removed; the caller holds mu.
func (d *dirs) shut(dir string) {
	if d.gone != nil {
		d.gone(dir)
	}
	for id, root := range d.open {
		if name(id) == dir {
			delete(d.open, id)
			_ = root.Close() // it was only read from
		}
	}
}

func (d *dirs) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, root := range d.open {
		_ = root.Close() // it was only read from
	}
	clear(d.open)
	_ = d.root.Close()
}

// name is the directory's of a pod. Only an id that is longer than names may be has
// another.
func name(id string) string {
	if len(id) <= nameLimit {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// checkName keeps names from the wire out of paths.
func checkName(s string, limit int) error {
	if s == "" || len(s) > limit || s[0] == '.' {
		return fmt.Errorf("%.64q is no name of a pod or container", s)
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("%.64q is no name of a pod or container", s)
		}
	}
	return nil
}
