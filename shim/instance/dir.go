package instance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// InputMount is where a sandbox sees its inputs, one file per request.
const InputMount = "/headstart/input"

// meta is what a restarted daemon must know of an instance beyond what the runtime
// keeps.
type meta struct {
	Port int32 `json:"port"`
}

func (s *Set) inputDir(id string) (*os.Root, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, id, "input")
	// The directories above are 0700; this one is seen by the function's own user.
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("making an instance's input directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening an instance's input directory: %w", err)
	}
	return root, nil
}

func (s *Set) writeMeta(id string, m meta) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, id, "meta.json"), b, 0o600)
}

func (s *Set) readMeta(id string) (meta, error) {
	var m meta
	if err := checkID(id); err != nil {
		return m, err
	}
	b, err := os.ReadFile(filepath.Join(s.dir, id, "meta.json"))
	if err != nil {
		return m, fmt.Errorf("reading what an instance listens on: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("reading what an instance listens on: %w", err)
	}
	return m, nil
}

// checkID keeps ids from the wire out of paths: letters, digits and dashes only.
func checkID(id string) error {
	if id == "" || len(id) > 76 { // containerd's limit on identifiers
		return fmt.Errorf("instance id of %d characters", len(id))
	}
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("instance id %q: only a-z, 0-9 and - are allowed", id)
		}
	}
	return nil
}
