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

	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Names below a pod's own directory.
const (
	inputName = "input"
	// holdersName is the directory of the pod's containers that have inputName mounted: an
	// empty file for each, so that a restarted daemon knows when the last one is gone.
	holdersName = "containers"
	// jobName is an empty file of a pod that is a job, as its containers say.
	jobName = "job"
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

	// memory has a directory for each pod as well. A pod gets it with its own: its first
	// container may run without, and would see names that lead nowhere.
	memory *staging.Memory

	mu   sync.Mutex
	open map[string]*staging.Dir // where inputs appear, by the pod's id
	// gone is told of each directory that is to be removed; nil: nobody.
	gone func(dir string)
}

// openDirs opens the directories below path. What inputs are in them is removed if they are
// abandoned: if their requests ended with the daemon that had them.
func openDirs(path string, memory *staging.Memory, abandoned bool) (*dirs, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the pods' directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the pods' directory: %w", err)
	}
	d := &dirs{root: root, memory: memory, open: map[string]*staging.Dir{}}
	if !abandoned {
		return d, nil
	}
	if err := d.clear(); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// clear takes out the inputs of requests. A job has its own for as long as it runs.
func (d *dirs) clear() error {
	all, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the pods' directory: %w", err)
	}
	for _, pod := range all {
		if err := staging.Clear(d.root, filepath.Join(pod.Name(), inputName), job.Name); err != nil {
			return err
		}
	}
	return d.memory.Clear(job.Name)
}

// mounts are what the pod's containers have of its directories.
func (d *dirs) mounts(id string) []*nodeapi.Mount {
	input := filepath.Join(d.root.Name(), name(id), inputName)
	mounts := []*nodeapi.Mount{{Source: input, Destination: staging.Mount, ReadOnly: true}}
	if path := d.memory.Path(name(id)); path != "" {
		mounts = append(mounts, &nodeapi.Mount{Source: path, Destination: staging.MemoryMount, ReadOnly: true})
	}
	return mounts
}

// hold makes the pod's directory for one more of its containers, and notes whether that says
// it is a job's.
func (d *dirs) hold(id, container string, job bool) error {
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
	input := filepath.Join(name(id), inputName)
	if _, err := d.root.Stat(input); errors.Is(err, fs.ErrNotExist) {
		_ = d.memory.Make(name(id)) // without it inputs come by way of the disk
	}
	// The directories above are 0700; this one is seen by the function's own user.
	if err := errors.Join(d.root.MkdirAll(input, 0o755), d.root.MkdirAll(holders, 0o700)); err != nil {
		return fmt.Errorf("making a pod's input directory: %w", err)
	}
	if err := d.root.WriteFile(filepath.Join(holders, container), nil, 0o600); err != nil {
		return fmt.Errorf("noting a pod's container: %w", err)
	}
	if !job {
		return nil
	}
	if err := d.root.WriteFile(filepath.Join(name(id), jobName), nil, 0o600); err != nil {
		return fmt.Errorf("noting that a pod is a job: %w", err)
	}
	return nil
}

// isJob tells whether one of the pod's containers has said that it is a job's.
func (d *dirs) isJob(id string) bool {
	if checkName(id, idLimit) != nil {
		return false
	}
	_, err := d.root.Lstat(filepath.Join(name(id), jobName))
	return err == nil
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

// inputs is where the pod's containers see its inputs, nil if none of them does.
func (d *dirs) inputs(id string) *staging.Dir {
	if checkName(id, idLimit) != nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if dir := d.open[id]; dir != nil {
		return dir
	}
	root, err := d.root.OpenRoot(filepath.Join(name(id), inputName))
	if err != nil {
		return nil
	}
	memory, err := d.memory.Open(name(id))
	if err != nil {
		_ = root.Close() // it was only opened
		return nil
	}
	d.open[id] = &staging.Dir{Input: root, Memory: memory}
	return d.open[id]
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
	if err := d.take(name(id)); err != nil {
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
		if err := d.take(e.Name()); err != nil {
			return fmt.Errorf("removing what a pod left: %w", err)
		}
	}
	// Those in memory that a kill has left without the pod's own.
	return d.memory.Sweep(func(dir string) bool {
		_, err := d.root.Stat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// take removes what is below a name; the caller holds mu.
func (d *dirs) take(dir string) error {
	if d.gone != nil {
		d.gone(dir)
	}
	for id, open := range d.open {
		if name(id) == dir {
			delete(d.open, id)
			_ = open.Close() // it was only read from
		}
	}
	return errors.Join(d.memory.Remove(dir), d.root.RemoveAll(dir))
}

func (d *dirs) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, dir := range d.open {
		_ = dir.Close() // it was only read from
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
