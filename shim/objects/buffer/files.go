package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrInUse means that another process has the directory.
var ErrInUse = errors.New("another process uses it")

// Files is a medium of files in one directory, on a disk or on a tmpfs.
type Files struct {
	root *os.Root
	// dir is the directory itself: it holds the lock, and links start from it.
	dir *os.File

	freeing sync.WaitGroup // files that are being taken apart, and the watch over those that are kept
	closing chan struct{}

	// busy is held for reading while a file is taken apart.
	busy sync.RWMutex

	mu     sync.Mutex
	closed bool
	kept   []kept
	found  []Found // what nobody has asked for yet
}

// OpenFiles opens the directory dir. It makes it with mode 0700 if there is none, refuses
// one that others have access to, finds the entries with notes that an earlier process has left, and removes the
// others. One process at a time has the directory.
func OpenFiles(dir string) (*Files, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the buffer: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the buffer: %w", err)
	}
	f := &Files{root: root, closing: make(chan struct{})}
	if err := f.take(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the buffer: %w", err), f.Close())
	}
	return f, nil
}

// take locks the directory and looks through it.
func (f *Files) take() error {
	var err error
	if f.dir, err = f.root.Open("."); err != nil {
		return err
	}
	if err := syscall.Flock(int(f.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("locking %s: %w: %w", f.root.Name(), ErrInUse, err)
	}
	info, err := f.dir.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o: others than its owner have access; use 0700", f.root.Name(), info.Mode().Perm())
	}
	return f.gather()
}

// Create implements Medium.
func (f *Files) Create(id string) (Content, error) {
	opened, err := f.root.OpenFile(id, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, spaceError("creating a buffer entry", err)
	}
	return &file{files: f, id: id, file: opened}, nil
}

// Close implements Medium.
func (f *Files) Close() error {
	f.mu.Lock()
	if !f.closed {
		close(f.closing)
	}
	f.closed = true
	f.mu.Unlock()
	f.freeing.Wait()
	var errs []error
	if f.dir != nil {
		errs = append(errs, f.dir.Close())
	}
	return errors.Join(append(errs, f.root.Close())...)
}

// free closes a file that has no name any more, by which it goes. The kernel takes tens of
// milliseconds to take a large one apart: no request shall wait for that.
func (f *Files) free(file *os.File) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = file.Close() // nobody reads it any more, so nothing is lost with it
		return
	}
	f.busy.RLock()
	f.freeing.Go(func() {
		defer f.busy.RUnlock()
		_ = file.Close()
	})
}

// settle returns when the files that have been freed are taken apart.
func (f *Files) settle() {
	f.busy.Lock()
	defer f.busy.Unlock()
}

// file is a Content.
type file struct {
	files *Files
	id    string
	file  *os.File
	size  int64 // guarded by the caller of Resize
}

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.file.WriteAt(p, at)
	if err != nil {
		return n, spaceError("writing a file", err)
	}
	return n, nil
}

func (f *file) Resize(size int64) error {
	var err error
	if size < f.size {
		err = f.file.Truncate(size)
	} else {
		err = allocate(f.file, f.size, size)
	}
	if err != nil {
		return spaceError("making room for a buffer entry", err)
	}
	f.size = size
	return nil
}

// Open has an offset of its own for each reader.
func (f *file) Open(_ context.Context, from int64) (io.ReadCloser, error) {
	opened, err := f.files.root.Open(f.id)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		if _, err := opened.Seek(from, io.SeekStart); err != nil {
			return nil, errors.Join(err, opened.Close())
		}
	}
	return opened, nil
}

func (f *file) Remove(freed func()) {
	// A file that cannot be removed now is swept by the next OpenFiles.
	_ = f.files.root.Remove(f.id)
	if isOpen(f.file) {
		f.files.keep(kept{file: f.file, closed: freed})
		return
	}
	freed()
	f.files.free(f.file)
}

// link gives the file a second name, for everybody to read and nobody to write.
func (f *file) link(dir *os.Root, name string) error {
	to, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer to.Close() // It only names the directory.
	if err := f.file.Chmod(0o444); err != nil {
		return err
	}
	return unix.Linkat(int(f.files.dir.Fd()), f.id, int(to.Fd()), name, 0)
}

// allocate gives the file the size end and, where the file system can, the blocks for it: a
// full disk shows before a byte is written.
func allocate(file *os.File, from, end int64) error {
	if from == end {
		return nil
	}
	for {
		err := syscall.Fallocate(int(file.Fd()), 0, from, end-from)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, errors.ErrUnsupported):
			return file.Truncate(end)
		default:
			return err
		}
	}
}

// spaceError makes BufferFull of the errors of a full disk, and BufferUnavailable of those of one that takes nothing more.
func spaceError(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", Full("the disk of the node's input buffer is full"), err)
	}
	for _, fails := range []syscall.Errno{syscall.EROFS, syscall.EIO} {
		if errors.Is(err, fails) {
			return fmt.Errorf("%w: %w", Unavailable("the disk of the node's input buffer fails: "+fails.Error()), err)
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}
