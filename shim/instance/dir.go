package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// idLimit is containerd's on identifiers.
const idLimit = 76

// Names below an instance's own directory.
const (
	inputName = "input"
	metaName  = "meta.json"
)

// meta is what a restarted daemon must know of an instance beyond what the runtime
// keeps. It is written once the instance is ready, so without one it never was.
type meta struct {
	Port int32 `json:"port"`
	// Job: it takes no requests, and keeps its input over a restart.
	Job bool `json:"job,omitempty"`
}

// dir holds a directory per instance, and another one in memory if the node has that. Ids
// come from outside: nothing beyond them is reached, whatever they hold.
type dir struct {
	root   *os.Root
	memory *staging.Memory
}

func openDir(path string, memory *staging.Memory) (dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return dir{}, fmt.Errorf("making the instances' directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return dir{}, fmt.Errorf("opening the instances' directory: %w", err)
	}
	return dir{root, memory}, nil
}

// inputPath is the input directory's path for the sandbox's mount.
func (d dir) inputPath(id string) string { return filepath.Join(d.root.Name(), id, inputName) }

// socketPath is the path of the socket's directory, likewise.
func (d dir) socketPath(id string) string { return filepath.Join(d.root.Name(), id, socketName) }

// make makes the instance's directory and returns the one for its inputs.
func (d dir) make(id string) (*staging.Dir, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	// The directories above are 0700; this one is seen by the function's own user.
	if err := d.root.MkdirAll(filepath.Join(id, inputName), 0o755); err != nil {
		return nil, fmt.Errorf("making an instance's input directory: %w", err)
	}
	_ = d.memory.Make(id) // without it inputs come by way of the disk
	return d.open(id)
}

func (d dir) open(id string) (*staging.Dir, error) {
	root, err := d.root.OpenRoot(filepath.Join(id, inputName))
	if err != nil {
		return nil, fmt.Errorf("opening an instance's input directory: %w", err)
	}
	memory, err := d.memory.Open(id)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &staging.Dir{Input: root, Memory: memory}, nil
}

// mounts are what the instance's sandbox has of its directories.
func (d dir) mounts(id string) []*nodeapi.Mount {
	mounts := []*nodeapi.Mount{{Source: d.inputPath(id), Destination: staging.Mount, ReadOnly: true}}
	if path := d.memory.Path(id); path != "" {
		mounts = append(mounts, &nodeapi.Mount{Source: path, Destination: staging.MemoryMount, ReadOnly: true})
	}
	return mounts
}

// takeOver returns the input directory of an instance that was ready, without the
// inputs: their requests ended with the daemon that had them.
func (d dir) takeOver(id string) (*staging.Dir, meta, error) {
	var m meta
	if err := checkID(id); err != nil {
		return nil, m, err
	}
	b, err := d.root.ReadFile(filepath.Join(id, metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, m, errors.New("the instance was never ready")
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && !m.Job {
		err = checkPort(m.Port)
	}
	if err != nil {
		return nil, m, fmt.Errorf("reading what an instance listens on: %w", err)
	}
	inputs, err := d.open(id)
	if err != nil {
		return nil, m, err
	}
	var kept []string
	if m.Job {
		kept = append(kept, job.Name)
	}
	if err := inputs.Clear(kept...); err != nil {
		return nil, m, errors.Join(err, inputs.Close())
	}
	return inputs, m, nil
}

func (d dir) writeMeta(id string, m meta) error {
	b, err := json.Marshal(m)
	if err == nil {
		err = d.root.WriteFile(filepath.Join(id, metaName), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing what an instance listens on: %w", err)
	}
	return nil
}

// remove removes the instance's directory, if it has one.
func (d dir) remove(id string) error {
	if checkID(id) != nil {
		return nil // then nothing was made
	}
	err := d.memory.Remove(id)
	if gone := d.root.RemoveAll(id); gone != nil {
		err = errors.Join(err, fmt.Errorf("removing an instance's directory: %w", gone))
	}
	return err
}

// sweep removes what does not belong to the instances in keep.
func (d dir) sweep(keep map[string]*instance) error {
	entries, err := fs.ReadDir(d.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the instances' directory: %w", err)
	}
	for _, e := range entries {
		if keep[e.Name()] != nil {
			continue
		}
		if err := d.root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("removing what an instance left: %w", err)
		}
	}
	return d.memory.Sweep(func(id string) bool { return keep[id] != nil })
}

// checkID keeps ids from the wire out of paths: letters, digits and dashes only.
func checkID(id string) error {
	if id == "" || len(id) > idLimit {
		return fmt.Errorf("instance id of %d characters", len(id))
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("instance id %q: only a-z, 0-9 and - are allowed", id)
		}
	}
	return nil
}

func checkPort(port int32) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("port %d is none", port)
	}
	return nil
}
