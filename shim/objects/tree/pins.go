package tree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Held are the versions that a pod has: their paths by the volumes' names.
func (s *Set) Held(pod string) (map[string]string, error) {
	held := map[string]string{}
	err := s.each(func(at string) error {
		names, err := fs.ReadDir(s.root.FS(), filepath.Join(at, pinsName, pod))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, name := range names {
			held[name.Name()] = s.path(at)
		}
		return err
	})
	return held, err
}

// path is where shims find a version.
func (s *Set) path(at string) string { return filepath.Join(s.root.Name(), at, filesName) }

// pin gives a version to a pod, as the volume of a name. Its error is fs.ErrNotExist if the version is not there.
func (s *Set) pin(at, pod, volume string) error {
	pins := filepath.Join(at, pinsName, pod)
	if err := s.root.Mkdir(pins, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return s.root.WriteFile(filepath.Join(pins, volume), nil, 0o600)
}

// Sweep takes all versions from the pods that keep does not want.
func (s *Set) Sweep(keep func(pod string) bool) error {
	return s.each(func(at string) error {
		pods, err := fs.ReadDir(s.root.FS(), filepath.Join(at, pinsName))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, pod := range pods {
			if pod.Name() != operator && !keep(pod.Name()) {
				err = errors.Join(err, s.root.RemoveAll(filepath.Join(at, pinsName, pod.Name())))
			}
		}
		return err
	})
}

// Release takes all versions from a pod that is no more. They stay, for the next one.
func (s *Set) Release(pod string) error {
	return s.Sweep(func(other string) bool { return other != pod })
}

// Drop removes the version that no pod has had for the longest time, and tells whether there was one.
func (s *Set) Drop() (bool, error) {
	var oldest string
	var since fs.FileInfo
	err := s.each(func(at string) error {
		info, err := s.root.Stat(filepath.Join(at, pinsName))
		if err != nil || strings.HasPrefix(filepath.Base(at), hidden) {
			return nil // another process removes it
		}
		pods, err := fs.ReadDir(s.root.FS(), filepath.Join(at, pinsName))
		// A pod that leaves changes the directory's time.
		if err == nil && len(pods) == 0 && (since == nil || info.ModTime().Before(since.ModTime())) {
			oldest, since = at, info
		}
		return nil
	})
	if err != nil || oldest == "" {
		return false, err
	}
	if err := s.root.Remove(filepath.Join(oldest, pinsName)); err != nil {
		return true, nil // a pod has come
	}
	return true, s.remove(oldest)
}

// remove removes what is at a path, of which the path is free at once.
func (s *Set) remove(at string) error {
	gone := s.hide(at)
	if err := s.root.Rename(at, gone); err != nil {
		return fmt.Errorf("removing a volume: %w", err)
	}
	if err := s.root.RemoveAll(gone); err != nil {
		return fmt.Errorf("removing a volume: %w", err)
	}
	return nil
}

// hide is a path beside another one that nothing has.
func (s *Set) hide(at string) string { return filepath.Join(filepath.Dir(at), hidden+rand.Text()) }
