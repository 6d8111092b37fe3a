package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Memory has the sandboxes' directories for inputs that are in memory. A nil one has none,
// and makes none. Names are the caller's to check; nothing beyond it is reached, whatever
// they hold.
type Memory struct{ root *os.Root }

// OpenMemory opens the directories below path, an absolute one on a tmpfs, which it makes.
func OpenMemory(path string) (*Memory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for inputs in memory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the directory for inputs in memory: %w", err)
	}
	return &Memory{root}, nil
}

// Make makes a sandbox's directory.
func (m *Memory) Make(name string) error {
	if m == nil {
		return nil
	}
	// The directories above are 0700; this one is seen by the function's own user.
	if err := m.root.MkdirAll(name, 0o755); err != nil {
		return fmt.Errorf("making a sandbox's directory for inputs in memory: %w", err)
	}
	return nil
}

// Open returns a sandbox's directory, nil if it has none.
func (m *Memory) Open(name string) (*os.Root, error) {
	if m == nil {
		return nil, nil
	}
	root, err := m.root.OpenRoot(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening a sandbox's directory for inputs in memory: %w", err)
	}
	return root, nil
}

// Path is a sandbox's directory for its mount, empty if it has none.
func (m *Memory) Path(name string) string {
	if m == nil {
		return ""
	}
	if _, err := m.root.Stat(name); err != nil {
		return ""
	}
	return filepath.Join(m.root.Name(), name)
}

// Remove removes a sandbox's directory, if it has one.
func (m *Memory) Remove(name string) error {
	if m == nil {
		return nil
	}
	if err := m.root.RemoveAll(name); err != nil {
		return fmt.Errorf("removing a sandbox's directory for inputs in memory: %w", err)
	}
	return nil
}

// Sweep removes the directories that keep does not want.
func (m *Memory) Sweep(keep func(name string) bool) error {
	return m.each(func(name string) error {
		if keep(name) {
			return nil
		}
		return m.Remove(name)
	})
}

// Clear takes the files out of all directories but for those in keep.
func (m *Memory) Clear(keep ...string) error {
	return m.each(func(name string) error { return Clear(m.root, name, keep...) })
}

func (m *Memory) each(do func(name string) error) error {
	if m == nil {
		return nil
	}
	all, err := fs.ReadDir(m.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the directory for inputs in memory: %w", err)
	}
	for _, e := range all {
		if err := do(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Close lets go of the directories, which stay.
func (m *Memory) Close() {
	if m != nil {
		_ = m.root.Close() // it was only read from
	}
}
