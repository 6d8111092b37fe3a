package sandboxes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Names below a sandbox's own directory.
const (
	inputName = "input"
	// namedName is the directory of the inputs that have names.
	namedName = "inputs"
	// holdersName is the directory of the containers that have the sandbox's directories
	// mounted: an empty file for each, so that a restarted daemon knows when the last one is
	// gone. Sandboxes of one container have none.
	holdersName = "containers"
	// idName is a file with the sandbox's id, which a long one's directory is not named by.
	idName = "pod"
)

const (
	// nameLimit is the longest name that a directory can have, in bytes.
	nameLimit = 255
	// idLimit is the longest id of a sandbox, in bytes: Kubernetes' limits of a pod's namespace,
	// name and uid, and what is between them.
	idLimit = 63 + 253 + 36 + 2
	// sandboxesLimit and holdersLimit are more than the kubelet runs on a node, and than a pod
	// has containers.
	sandboxesLimit = 4096
	holdersLimit   = 256
)

var errFull = errors.New("more pods or containers than a node can have")

// tree holds a directory per sandbox, and another one in memory if the node has that. Ids come
// from outside: nothing beyond the tree is reached, whatever they hold.
type tree struct {
	root *os.Root

	// memory has a directory for each sandbox as well. A sandbox gets it, and that of named
	// inputs, with its own: its first container may run without, and would see no file, or names
	// that lead nowhere.
	memory *staging.Memory

	mu   sync.Mutex
	open map[string]*staging.Dir // where inputs appear, by the sandbox's id
	// gone is told of each sandbox whose directory is to be removed.
	gone func(id string)
}

// openTree opens the directories below path, which it makes.
func openTree(path string, memory *staging.Memory) (*tree, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the sandboxes' directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the sandboxes' directory: %w", err)
	}
	return &tree{root: root, memory: memory, open: map[string]*staging.Dir{}, gone: func(string) {}}, nil
}

func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, dir := range t.open {
		_ = dir.Close() // it was only read from
	}
	clear(t.open)
	_ = t.root.Close()
}

// make makes the sandbox's directories.
func (t *tree) make(id string) error {
	if err := checkName(id, idLimit); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.makeInput(id)
}

// makeInput does; the caller holds mu.
func (t *tree) makeInput(id string) error {
	var dirs []string
	input := filepath.Join(nodeapi.SandboxDirectory(id), inputName)
	if _, err := t.root.Stat(input); errors.Is(err, fs.ErrNotExist) {
		_ = t.memory.Make(nodeapi.SandboxDirectory(id)) // without it inputs come by way of the disk
		dirs = append(dirs, filepath.Join(nodeapi.SandboxDirectory(id), namedName))
	}
	for _, dir := range append(dirs, input) {
		// The directories above are 0700; these are seen by the function's own user.
		if err := t.root.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("making a sandbox's input directory: %w", err)
		}
	}
	return nil
}

// hold makes the sandbox's directories for one more of its containers, with notes of what that
// says: an empty file for each.
func (t *tree) hold(id, container string, notes ...string) error {
	if err := errors.Join(checkName(id, idLimit), checkName(container, nameLimit)); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	holders := filepath.Join(nodeapi.SandboxDirectory(id), holdersName)
	for dir, limit := range map[string]int{holders: holdersLimit, ".": sandboxesLimit} {
		if n, err := t.count(dir); err != nil {
			return err
		} else if n >= limit {
			return errFull
		}
	}
	if err := t.makeInput(id); err != nil {
		return err
	}
	if err := t.root.MkdirAll(holders, 0o700); err != nil {
		return fmt.Errorf("making the directory of a sandbox's containers: %w", err)
	}
	if err := t.write(id, idName, []byte(id)); err != nil {
		return err
	}
	for _, note := range append(notes, filepath.Join(holdersName, container)) {
		if err := t.write(id, note, nil); err != nil {
			return err
		}
	}
	return nil
}

// release forgets a container.
func (t *tree) release(id, container string) error {
	if err := errors.Join(checkName(id, idLimit), checkName(container, nameLimit)); err != nil {
		return err
	}
	err := t.root.Remove(filepath.Join(nodeapi.SandboxDirectory(id), holdersName, container))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forgetting a sandbox's container: %w", err)
	}
	return nil
}

func (t *tree) count(dir string) (int, error) {
	all, err := fs.ReadDir(t.root.FS(), dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("reading a sandbox's directory: %w", err)
	}
	return len(all), nil
}

// inputs is where the sandbox sees its inputs.
func (t *tree) inputs(id string) (*staging.Dir, error) {
	if err := checkName(id, idLimit); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if dir := t.open[id]; dir != nil {
		return dir, nil
	}
	root, err := t.root.OpenRoot(filepath.Join(nodeapi.SandboxDirectory(id), inputName))
	if err != nil {
		return nil, fmt.Errorf("opening a sandbox's input directory: %w", err)
	}
	dir := &staging.Dir{Input: root}
	dir.Named, err = t.root.OpenRoot(filepath.Join(nodeapi.SandboxDirectory(id), namedName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // else an earlier version has made it without
		return nil, errors.Join(fmt.Errorf("opening a sandbox's directory of named inputs: %w", err), dir.Close())
	}
	if dir.Memory, err = t.memory.Open(nodeapi.SandboxDirectory(id)); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	t.open[id] = dir
	return dir, nil
}

// need is what every sandbox has: a place for its inputs, and its name.
func (t *tree) need(id string) Need {
	own := nodeapi.SandboxDirectory(id)
	n := Need{
		Mounts: []*nodeapi.Mount{{Source: filepath.Join(t.root.Name(), own, inputName),
			Destination: staging.Mount, ReadOnly: true}},
		Env: map[string]string{"HEADSTART_INPUT_DIR": staging.Mount, "HEADSTART_INSTANCE": id},
	}
	if _, err := t.root.Stat(filepath.Join(own, namedName)); err == nil {
		n.Mounts = append(n.Mounts, &nodeapi.Mount{Source: filepath.Join(t.root.Name(), own, namedName),
			Destination: staging.NamedMount, ReadOnly: true})
		n.Env["HEADSTART_INPUTS_DIR"] = staging.NamedMount
	}
	if path := t.memory.Path(own); path != "" {
		n.Mounts = append(n.Mounts, &nodeapi.Mount{Source: path, Destination: staging.MemoryMount, ReadOnly: true})
	}
	return n
}

// directory opens a directory of a sandbox's own, which it makes if it may.
func (t *tree) directory(id, own string, may bool) (*os.Root, string, error) {
	path := filepath.Join(nodeapi.SandboxDirectory(id), own)
	if may {
		// The directories above are 0700; this one is seen by the function's own user.
		if err := t.root.MkdirAll(path, 0o755); err != nil {
			return nil, "", fmt.Errorf("making a sandbox's directory %s: %w", own, err)
		}
	}
	root, err := t.root.OpenRoot(path)
	if err != nil {
		return nil, "", fmt.Errorf("opening a sandbox's directory %s: %w", own, err)
	}
	return root, filepath.Join(t.root.Name(), path), nil
}

// write notes something of a sandbox that has a directory.
func (t *tree) write(id, file string, content []byte) error {
	if err := checkName(id, idLimit); err != nil {
		return err
	}
	if err := t.root.WriteFile(filepath.Join(nodeapi.SandboxDirectory(id), file), content, 0o600); err != nil {
		return fmt.Errorf("noting something of a sandbox: %w", err)
	}
	return nil
}

// read returns what is noted; its error is fs.ErrNotExist if nothing is.
func (t *tree) read(id, file string) ([]byte, error) {
	if err := checkName(id, idLimit); err != nil {
		return nil, err
	}
	content, err := t.root.ReadFile(filepath.Join(nodeapi.SandboxDirectory(id), file))
	if err != nil {
		return nil, fmt.Errorf("reading what is noted of a sandbox: %w", err)
	}
	return content, nil
}

// clear takes out the inputs of requests, which ended with the daemon that had them. A job has
// its own for as long as it runs.
func (t *tree) clear() error {
	all, err := t.list()
	if err != nil {
		return err
	}
	for _, dir := range all {
		err := errors.Join(staging.Clear(t.root, filepath.Join(dir.Name(), inputName), JobInput),
			staging.Clear(t.root, filepath.Join(dir.Name(), namedName)))
		if err != nil {
			return err
		}
	}
	return t.memory.Clear(JobInput)
}

func (t *tree) list() ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(t.root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("reading the sandboxes' directory: %w", err)
	}
	return all, nil
}

// has tells whether there is a directory of that name.
func (t *tree) has(dir string) bool {
	_, err := t.root.Stat(dir)
	return err == nil
}

// forgotten notes that nobody knows the sandbox any more, from now on.
func (t *tree) forgotten(id string) {
	now := time.Now()
	_ = t.root.Chtimes(nodeapi.SandboxDirectory(id), now, now) // it has none if this fails
}

// remove removes the sandbox's directory, unless one of its containers has it.
func (t *tree) remove(id string) (removed bool, err error) {
	if checkName(id, idLimit) != nil {
		return true, nil // nothing was made for it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, err := t.count(filepath.Join(nodeapi.SandboxDirectory(id), holdersName)); n > 0 || err != nil {
		return false, err
	}
	return true, t.take(nodeapi.SandboxDirectory(id), id)
}

// sweep removes the directories that keep does not want, which is told of their names, whether
// a container has them, and since when they are as they are.
func (t *tree) sweep(keep func(dir string, held bool, since time.Time) bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, err := t.list()
	if err != nil {
		return err
	}
	for _, e := range all {
		info, err := e.Info()
		if err != nil {
			continue // gone by itself
		}
		n, err := t.count(filepath.Join(e.Name(), holdersName))
		if keep(e.Name(), n > 0 || err != nil, info.ModTime()) {
			continue
		}
		id, err := t.idOf(e.Name())
		if err != nil {
			id = e.Name()
		}
		if err := t.take(e.Name(), id); err != nil {
			return err
		}
	}
	// Those in memory that a kill has left without the sandbox's own.
	return t.memory.Sweep(func(dir string) bool {
		_, err := t.root.Stat(dir)
		return !errors.Is(err, fs.ErrNotExist)
	})
}

// take removes the directory of a sandbox; the caller holds mu.
func (t *tree) take(dir, id string) error {
	t.gone(id)
	for id, open := range t.open {
		if nodeapi.SandboxDirectory(id) == dir {
			delete(t.open, id)
			_ = open.Close() // it was only read from
		}
	}
	err := t.memory.Remove(dir)
	if left := t.root.RemoveAll(dir); left != nil {
		err = errors.Join(err, fmt.Errorf("removing a sandbox's directory: %w", left))
	}
	return err
}

// idOf returns the id of the sandbox whose directory it is, as its containers' shims said.
func (t *tree) idOf(dir string) (string, error) {
	id, err := t.root.ReadFile(filepath.Join(dir, idName))
	if err != nil {
		return "", fmt.Errorf("reading a sandbox's id: %w", err)
	}
	if err := checkName(string(id), idLimit); err != nil {
		return "", err
	}
	if nodeapi.SandboxDirectory(string(id)) != dir {
		return "", fmt.Errorf("directory %.64q is not that of sandbox %.64q", dir, id)
	}
	return string(id), nil
}

// checkName keeps names from the wire out of paths.
func checkName(s string, limit int) error {
	if s == "" || len(s) > limit || s[0] == '.' {
		return fmt.Errorf("%.64q is not the name of a sandbox or container", s)
	}
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return fmt.Errorf("%.64q is not the name of a sandbox or container", s)
		}
	}
	return nil
}
