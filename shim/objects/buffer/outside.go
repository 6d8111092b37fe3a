package buffer

import (
	"errors"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// OutsideTier has the files that have names outside of the buffer.
const OutsideTier = "outside"

// CreateOutside is Create for a file on the disk that has names outside of the buffer as well, by Place. It counts for
// nobody, and for no limit but the disk's own.
func (b *Buffer) CreateOutside(id string, size int64) (*Entry, error) {
	t := b.fileTier()
	if t == nil || size < 0 {
		return nil, noRoom(size)
	}
	whole := part{tier: t, room: size}
	var err error
	if whole.content, err = whole.resized(id, size); err != nil {
		return nil, err
	}
	e := &Entry{buffer: b, id: id, size: size, parts: parts{whole}, owners: 1, linking: make(chan struct{}, 1), kept: true, outside: true}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		whole.content.Remove(func() {})
		return nil, errClosed
	}
	b.entries[id] = e
	return e, nil
}

// Place gives the complete entry a name in a directory outside of the buffer, for everybody to read. It is false if
// that cannot be another name of the entry's file.
func (e *Entry) Place(dir *os.Root, name string) (bool, error) {
	if err := e.hold(); err != nil {
		return false, err
	}
	defer e.drop()
	whole, _ := e.files()
	f, ok := whole.content.(*file)
	if !ok {
		return false, nil
	}
	in, err := dir.OpenRoot(path.Dir(name))
	if err != nil {
		return false, err
	}
	defer in.Close() // it only names the directory
	err = f.link(in, path.Base(name))
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) {
		return false, nil
	}
	return true, err
}

// Outside tells whether the entry's room is not the buffer's, and whether its file has names outside.
func (e *Entry) Outside() (outside, named bool) {
	return e.outside, e.outside && e.Named() != nil
}

// Named is the entry's file, if that has names outside of the buffer; nil: it has none.
func (e *Entry) Named() os.FileInfo {
	e.buffer.mu.Lock()
	f, ok := e.whole.content.(*file)
	e.buffer.mu.Unlock()
	if !ok {
		return nil
	}
	info, err := f.file.Stat()
	if err != nil {
		return nil
	}
	if system, ok := info.Sys().(*syscall.Stat_t); !ok || system.Nlink < 2 {
		return nil
	}
	return info
}

// leave gives up the file, which stays under its other names.
func (f *file) leave() {
	_ = f.files.root.Remove(f.id) // the next OpenFiles sweeps it
	f.files.free(f.file)
}

// DiskLacks is Lacks of the tier that has the files of CreateOutside. Without spare they may fill the disk.
func (b *Buffer) DiskLacks(spare bool) int64 {
	t := b.fileTier()
	switch {
	case t == nil:
		return 0
	case spare:
		return t.lacks(t.Spare)
	}
	return t.lacks(0)
}
