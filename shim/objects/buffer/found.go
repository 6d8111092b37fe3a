package buffer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Files beside those of entries, which have their identifier for a name. An entry with a note stays on the disk when
// its process ends, and its successor finds it.
const (
	noteSuffix = ".note"
	newSuffix  = ".new" // a note that is being written
	// cleanName is there after an orderly end, with the boot's id.
	cleanName = "clean"
	// noteMost is how long a note may be in bytes: one of an object of 1 TiB has 22 MB.
	noteMost = 64 << 20
)

// Found is an entry that an earlier process has left.
type Found struct {
	Note []byte
	// Clean: the process has ended in order, in this boot. Else the content may be another.
	Clean bool

	id   string
	tier *tier
}

// Found returns the entries that earlier processes have left, each once. The caller has to Adopt or Discard it.
func (b *Buffer) Found() (all []Found) {
	for _, t := range b.tiers {
		files, ok := t.Medium.(*Files)
		if !ok {
			continue
		}
		files.mu.Lock()
		for _, found := range files.found {
			found.tier = t
			all = append(all, found)
		}
		files.found = nil
		files.mu.Unlock()
	}
	return all
}

// Discard removes what is found. What cannot be removed now is swept by the next OpenFiles.
func (b *Buffer) Discard(f Found) {
	root := f.tier.Medium.(*Files).root
	_ = root.Remove(f.id + noteSuffix) // first: without it the rest is swept
	_ = root.Remove(f.id)
}

// Adopt makes a complete and kept entry of what is found, which the caller owns. It returns the tier, as Keep does.
// outside: the entry is one of CreateOutside.
func (b *Buffer) Adopt(f Found, outside bool) (e *Entry, tier string, err error) {
	files := f.tier.Medium.(*Files)
	opened, err := files.root.OpenFile(f.id, os.O_RDWR, 0)
	if err != nil {
		return nil, "", err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, "", errors.Join(err, opened.Close())
	}
	size := info.Size()
	e = &Entry{buffer: b, id: f.id, size: size, complete: true, owners: 1, linking: make(chan struct{}, 1), kept: true, outside: outside, noted: true}
	e.spans.add(0, size)
	e.whole = part{tier: f.tier, content: &file{files: files, id: f.id, file: opened, size: size}, room: size}
	e.parts = parts{e.whole}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		return nil, "", errors.Join(errClosed, opened.Close())
	}
	b.entries[f.id] = e
	if outside {
		return e, OutsideTier, nil
	}
	f.tier.kept += size
	f.tier.keptEntries++
	return e, f.tier.Name, nil
}

// Note has a complete entry that is one file outlive the process, with a note for the next one. Release takes it back.
func (b *Buffer) Note(e *Entry, note []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.complete || e.released || e.forgone || len(e.parts) != 1 {
		return errReleased
	}
	f, ok := e.parts[0].content.(*file)
	if !ok {
		return ErrNoFile
	}
	// Nothing is synced: what a lost write leaves is no note, or content that does not have its digests.
	root := f.files.root
	err := root.WriteFile(f.id+newSuffix, note, 0o600)
	if err == nil {
		err = root.Rename(f.id+newSuffix, f.id+noteSuffix)
	}
	if err != nil {
		e.unnote()
		_ = root.Remove(f.id + newSuffix)
		return spaceError("noting a buffer entry", err)
	}
	e.noted = true
	return nil
}

// Forgo has the entry end with the process, at the latest, whoever still uses it: it gets no note any more.
func (e *Entry) Forgo() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forgone = true
	e.unnote()
}

// unnote has the entry end with the process. The caller holds the lock.
func (e *Entry) unnote() {
	if !e.noted {
		return
	}
	e.noted = false
	if f, ok := e.parts[0].content.(*file); ok {
		_ = f.files.root.Remove(f.id + noteSuffix) // the content's removal comes, too
	}
}

// stay lets go of an entry, and tells whether its file stays.
func (e *Entry) stay() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.noted {
		return false
	}
	f := e.parts[0].content.(*file)
	f.files.free(f.file)
	if e.copied.content != nil {
		e.discard(e.copied)
	}
	e.parts, e.copied, e.noted = nil, part{}, false
	return true
}

// Clean notes that this process ends in order: its successor may trust the content of what it finds.
func (b *Buffer) Clean() error {
	boot, err := bootID()
	for _, t := range b.tiers {
		if files, ok := t.Medium.(*Files); ok && err == nil {
			err = files.root.WriteFile(cleanName, boot, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("noting an orderly end: %w", err)
	}
	return nil
}

func bootID() ([]byte, error) { return os.ReadFile("/proc/sys/kernel/random/boot_id") }

// gather finds the entries of an earlier process that have notes, and removes all others.
func (f *Files) gather() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	said, _ := f.root.ReadFile(cleanName) // without the file, the end was not orderly
	clean := string(said) == string(boot)
	if err := f.root.Remove(cleanName); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listed, err := f.dir.ReadDir(-1)
	if err != nil {
		return err
	}
	// Only what looks like an entry: the operator may have named a wrong directory.
	names := map[string]bool{}
	for _, file := range listed {
		if id, _, _ := strings.Cut(file.Name(), "."); entryID.MatchString(id) && file.Type().IsRegular() {
			names[file.Name()] = true
		}
	}
	for name := range names {
		if entryID.MatchString(name) && names[name+noteSuffix] {
			if note := f.noteOf(name); note != nil {
				f.found = append(f.found, Found{Note: note, Clean: clean, id: name})
				delete(names, name)
				delete(names, name+noteSuffix)
			}
		}
	}
	for name := range names {
		if err := f.root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// noteOf reads an entry's note; nil: there is none, or it cannot be read.
func (f *Files) noteOf(id string) []byte {
	info, err := f.root.Stat(id + noteSuffix)
	if err != nil || info.Size() > noteMost {
		return nil
	}
	note, _ := f.root.ReadFile(id + noteSuffix) // a part of a note is none to its reader
	return note
}

// Inherit finds the entries in another directory on the same file system as well, if the process that had it has
// ended. Else it is an ErrInUse.
func (f *Files) Inherit(dir string) error {
	other, err := OpenFiles(dir)
	if err != nil {
		return err
	}
	for _, found := range other.found {
		for _, name := range []string{found.id, found.id + noteSuffix} {
			if err == nil {
				err = unix.Renameat(int(other.dir.Fd()), name, int(f.dir.Fd()), name)
			}
		}
		if err != nil {
			return errors.Join(fmt.Errorf("taking over what is kept in %s: %w", dir, err), other.Close())
		}
		f.mu.Lock()
		f.found = append(f.found, found)
		f.mu.Unlock()
	}
	return other.Close()
}
