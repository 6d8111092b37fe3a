package tree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// Held are the versions that a pod has: their paths by the volumes' names.
func (s *Set) Held(pod string) (map[string]string, error) {
	held := map[string]string{}
	err := s.eachWhole(func(at string, pods []string) error {
		if !slices.Contains(pods, pod) {
			return nil
		}
		names, err := fs.ReadDir(s.root.FS(), filepath.Join(at, pinsName, pod))
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
	return s.eachWhole(func(at string, pods []string) (err error) {
		for _, pod := range pods {
			if pod != operator && !keep(pod) {
				err = errors.Join(err, s.root.RemoveAll(filepath.Join(at, pinsName, pod)))
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
	err := s.eachWhole(func(at string, pods []string) error {
		// A pod that leaves changes the directory's time.
		info, err := s.root.Stat(filepath.Join(at, pinsName))
		if err == nil && len(pods) == 0 && (since == nil || info.ModTime().Before(since.ModTime())) {
			oldest, since = at, info
		}
		return nil // without pins another process removes it
	})
	if err != nil || oldest == "" {
		return false, err
	}
	_, err = s.remove(oldest)
	return true, err // a pod may have come: then there may be another one
}

// remove removes a version, of which the path is free at once. It is false for one that a pod has.
func (s *Set) remove(at string) (bool, error) {
	err := s.root.Remove(filepath.Join(at, pinsName))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist), nil // then another one was faster
	}
	gone := s.hide(at)
	if err = s.root.Rename(at, gone); err == nil {
		err = s.root.RemoveAll(gone)
	}
	if err != nil {
		return true, fmt.Errorf("removing a volume: %w", err)
	}
	return true, nil
}

// hide is a path beside another one that nothing has.
func (s *Set) hide(at string) string { return filepath.Join(filepath.Dir(at), hidden+rand.Text()) }
