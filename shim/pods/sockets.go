package pods

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names below a pod's own directory.
const (
	// socketName is the directory that containers see as instance.SocketMount.
	socketName = "socket"
	// podName is a file with the pod's id, which a long one's directory is not named by.
	podName = "pod"
)

// openSocket gives a pod its socket, if it has none yet, and returns the path of the
// socket's directory. The log says why it has none: all else works without.
func (s *Set) openSocket(id string) (path string, ok bool) {
	if s.config.Sockets == nil {
		return "", false
	}
	dir, err := s.dirs.makeSocket(id)
	if err == nil {
		err = s.serveSocket(id, dir)
	}
	if err != nil {
		s.config.Log.Warn("a pod has no socket", "instance", id, "error", err)
		return "", false
	}
	return filepath.Join(s.dirs.root.Name(), name(id), socketName), true
}

func (s *Set) serveSocket(id string, dir *os.Root) error {
	namespace, _, _ := strings.Cut(id, "_")
	return s.config.Sockets.Open(id, namespace, dir)
}

// adoptSockets serves the sockets of the pods that run already, and from now on closes those
// of pods whose directories go.
func (s *Set) adoptSockets() error {
	if s.config.Sockets == nil {
		return nil
	}
	all, err := fs.ReadDir(s.dirs.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("reading the pods' directory: %w", err)
	}
	for _, dir := range all {
		// One that an earlier version has made has none.
		if err := s.adoptSocket(dir.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.config.Log.Warn("a pod has lost its socket", "directory", dir.Name(), "error", err)
		}
	}
	s.dirs.gone = func(dir string) {
		id, err := s.dirs.podOf(dir)
		if err == nil {
			s.config.Sockets.Close(id)
		}
	}
	return nil
}

func (s *Set) adoptSocket(dir string) error {
	id, err := s.dirs.podOf(dir)
	if err != nil {
		return err
	}
	root, err := s.dirs.root.OpenRoot(filepath.Join(dir, socketName))
	if err != nil {
		return fmt.Errorf("opening a pod's socket directory: %w", err)
	}
	return s.serveSocket(id, root)
}

// makeSocket makes the directory of the pod's socket, in that of the pod.
func (d *dirs) makeSocket(id string) (*os.Root, error) {
	path := filepath.Join(name(id), socketName)
	// The directories above are 0700; this one is seen by the function's own user.
	if err := d.root.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("making a pod's socket directory: %w", err)
	}
	if err := d.root.WriteFile(filepath.Join(name(id), podName), []byte(id), 0o600); err != nil {
		return nil, fmt.Errorf("noting a pod's id: %w", err)
	}
	root, err := d.root.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening a pod's socket directory: %w", err)
	}
	return root, nil
}

// podOf returns the id of the pod whose directory it is.
func (d *dirs) podOf(dir string) (string, error) {
	id, err := d.root.ReadFile(filepath.Join(dir, podName))
	if err != nil {
		return "", fmt.Errorf("reading a pod's id: %w", err)
	}
	if err := checkName(string(id), idLimit); err != nil {
		return "", err
	}
	if name(string(id)) != dir {
		return "", fmt.Errorf("directory %.64q is not that of pod %.64q", dir, id)
	}
	return string(id), nil
}
