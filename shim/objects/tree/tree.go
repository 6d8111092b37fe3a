// Package tree makes versions of volumes: read-only directories of hard links to objects. All pods of a namespace
// for which a store lists the same objects have the same version. Which pods have which is on the disk alone, so that
// it outlives the daemon, and two daemons of a node agree.
package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Names below the set's directory, whose last part is "volumes": <namespace>/<id of the version>/<one of these>. Shims
// hold what they mount against this.
const (
	// filesName is the directory that sandboxes see.
	filesName = "files"
	// pinsName has a directory for each pod that has the version, with an empty file for each of its volumes. A
	// version is removed by removing this first, which the kernel refuses while a pod is in it.
	pinsName = "pins"
	// hidden begins the names of versions that are being made, or removed.
	hidden = "."
)

// Prefix is what a version is of.
type Prefix struct {
	// Namespace is that of the pods.
	Namespace string
	Store     string
	// Prefix has a key that is empty or ends with a slash.
	Prefix reference.Reference
}

// Object is one of a prefix, as its store lists it.
type Object struct {
	// Name is what follows the prefix in its key.
	Name    string
	Size    int64
	Version string
}

// ErrChanged is an object that is not there any more as it was listed.
var ErrChanged = errors.New("the object has changed since it was listed")

// Objects is where versions come from. Its methods are called by several goroutines at once.
type Objects interface {
	// List calls each for all objects below the prefix, in any order, and ends with its error.
	List(ctx context.Context, of Prefix, each func(Object) error) error
	// Place has an object appear, whole and in the version that was listed, as a file below root that can only be
	// read: as a hard link, or by itself. Its directory is there. An object that has changed is an ErrChanged.
	Place(ctx context.Context, of Prefix, o Object, root *os.Root, name string) error
}

// Set has the versions of a node. Its methods may be called at the same time.
type Set struct {
	root    *os.Root
	objects Objects

	mu      sync.Mutex
	flights map[string]*flight // by namespace/id
	wg      sync.WaitGroup
}

// Open opens the versions below path, whose last part has to be "volumes" and which it makes. succeeds: another
// process has them, too, and may be making some. The caller has to Close the set.
func Open(path string, objects Objects, succeeds bool) (*Set, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("making the volumes' directory: %w", err)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("opening the volumes' directory: %w", err)
	}
	s := &Set{root: root, objects: objects, flights: map[string]*flight{}}
	if !succeeds {
		if err := s.sweep(); err != nil {
			return nil, errors.Join(err, root.Close())
		}
	}
	return s, nil
}

// Close waits for what is being made, which ends with those who wait for it. Versions stay.
func (s *Set) Close() {
	s.wg.Wait()
	_ = s.root.Close() // nothing is written by it
}

// bootName is a file with the boot that the versions were made in. Of one before, files may be there without their
// content if the machine lost its power. No pod has outlived it.
const bootName = ".boot"

// sweep removes what a process left that was killed, and all versions of another boot.
func (s *Set) sweep() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("asking for the boot's id: %w", err)
	}
	before, err := s.root.ReadFile(bootName)
	same := err == nil && string(before) == string(boot)
	if err := s.each(func(at string) error {
		_, err := s.root.Stat(filepath.Join(at, pinsName))
		if same && err == nil && !strings.HasPrefix(filepath.Base(at), hidden) {
			return nil
		}
		return s.root.RemoveAll(at)
	}); err != nil {
		return err
	}
	if same {
		return nil
	}
	return s.root.WriteFile(bootName, boot, 0o600)
}

// each calls do for each version, by its path, and for those that are hidden.
func (s *Set) each(do func(at string) error) error {
	namespaces, err := fs.ReadDir(s.root.FS(), ".")
	for _, namespace := range namespaces {
		if strings.HasPrefix(namespace.Name(), hidden) {
			continue
		}
		versions, unread := fs.ReadDir(s.root.FS(), namespace.Name())
		err = errors.Join(err, unread)
		for _, v := range versions {
			err = errors.Join(err, do(filepath.Join(namespace.Name(), v.Name())))
		}
	}
	if err != nil {
		return fmt.Errorf("looking through the volumes: %w", err)
	}
	return nil
}

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
			if !keep(pod.Name()) {
				err = errors.Join(err, s.root.RemoveAll(filepath.Join(at, pinsName, pod.Name())))
			}
		}
		return err
	})
}

// Release takes all versions from a pod that is no more. They stay, for the next one.
func (s *Set) Release(pod string) error {
	return s.each(func(at string) error { return s.root.RemoveAll(filepath.Join(at, pinsName, pod)) })
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
