package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// damagedName is an empty file in a version that has a damaged file: its pods keep it, and no other pod gets it.
const damagedName = "damaged"

// Damaged says that a file is not what its object was. It returns the versions that have the file, except those of which
// another file was damaged already. A version that no pod has is removed, pinned or not.
func (s *Set) Damaged(file os.FileInfo) (all []Held, err error) {
	s.mu.Lock() // no version gets its name meanwhile
	defer s.mu.Unlock()
	var failed []error
	err = s.each(func(at string) error {
		h, err := s.mark(at, file)
		if h != nil {
			all = append(all, *h)
		}
		failed = append(failed, err)
		return nil // the others are looked at all the same
	})
	return all, errors.Join(append(failed, err)...)
}

// mark has nobody else get a version, if the file is one of its; nil: it is not, or nobody would have got it. The caller
// holds the lock.
func (s *Set) mark(at string, file os.FileInfo) (*Held, error) {
	if s.isDamaged(at) {
		return nil, nil
	}
	has, err := s.has(at, file)
	if !has || err != nil {
		return nil, err
	}
	if err := s.root.WriteFile(filepath.Join(at, damagedName), nil, 0o600); err != nil {
		return nil, fmt.Errorf("marking a volume as damaged: %w", err)
	}
	pods, _ := s.pods(at) // none: it is being made
	h := s.about(at, pods)
	if !strings.HasPrefix(filepath.Base(at), hidden) { // else make looks
		_, err = s.DropOne(at)
	}
	return &h, err
}

// has tells whether a file is one of a version's. One that is being removed has none.
func (s *Set) has(at string, file os.FileInfo) (has bool, err error) {
	err = fs.WalkDir(s.root.FS(), filepath.Join(at, filesName), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && os.SameFile(info, file) {
			has = true
			return fs.SkipAll
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return has, err
}

func (s *Set) isDamaged(at string) bool {
	_, err := s.root.Stat(filepath.Join(at, damagedName))
	return err == nil
}

// at is where a version is, or is to be: in place of a damaged one another one, whose name follows from that.
func (s *Set) at(namespace, id string) string {
	for s.isDamaged(filepath.Join(namespace, id)) {
		next := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(next[:])
	}
	return filepath.Join(namespace, id)
}
