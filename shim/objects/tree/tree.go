// Package tree makes versions of volumes: read-only directories of hard links to objects. All pods of a namespace
// for which a store lists the same objects have the same version. Which pods have which is on the disk alone, so that
// it outlives the daemon, and two daemons of a node agree.
package tree

import (
	"context"
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

// bootName is a file with the boot that the versions were made in. Versions of an earlier boot may have files without
// content, if the machine lost its power. No pod of that boot is left.
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

// each calls do with the path of each version, including hidden ones.
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

// eachWhole calls do with the path of each version that is whole, and the pods that have it, the operator among them.
func (s *Set) eachWhole(do func(at string, pods []string) error) error {
	return s.each(func(at string) error {
		pods, err := s.pods(at)
		if strings.HasPrefix(filepath.Base(at), hidden) || errors.Is(err, fs.ErrNotExist) {
			return nil // it is being made, or removed
		}
		if err != nil {
			return err
		}
		return do(at, pods)
	})
}

// pods are those that have a version, the operator perhaps among them.
func (s *Set) pods(at string) (pods []string, err error) {
	pins, err := fs.ReadDir(s.root.FS(), filepath.Join(at, pinsName))
	for _, pin := range pins {
		pods = append(pods, pin.Name())
	}
	return pods, err
}
