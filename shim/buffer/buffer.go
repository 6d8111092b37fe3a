// Package buffer keeps inputs on disk while they arrive and until the last reader is
// done: bounded in bytes, below one directory.
package buffer

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"sync"
	"syscall"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// entryID is what an entry's identifier, and so its file's name, looks like.
var entryID = regexp.MustCompile(`^[0-9a-f]{32}$`)

var errClosed = errors.New("the buffer is closed")

// ErrInUse means that another process has the directory.
var ErrInUse = errors.New("another process uses it")

// Buffer is a directory of entries. Its methods may be called at the same time.
type Buffer struct {
	root *os.Root
	// dir is the directory itself: it holds the lock, and links start from it.
	dir   *os.File
	limit int64

	freeing sync.WaitGroup // files that are being taken apart

	mu      sync.Mutex
	used    int64
	entries map[string]*Entry // nil when closed
}

// Open returns the buffer in dir, for at most limit bytes. It makes the directory with
// mode 0700 if there is none, refuses one that others have access to, and removes the
// entries that an earlier process has left. One process at a time has the directory.
func Open(dir string, limit int64) (*Buffer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("opening the buffer: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the buffer: %w", err)
	}
	b := &Buffer{root: root, limit: limit, entries: map[string]*Entry{}}
	if err := b.take(); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the buffer: %w", err), b.Close())
	}
	return b, nil
}

// take locks the directory and sweeps it.
func (b *Buffer) take() error {
	var err error
	if b.dir, err = b.root.Open("."); err != nil {
		return err
	}
	if err := syscall.Flock(int(b.dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("locking %s: %w: %w", b.root.Name(), ErrInUse, err)
	}
	info, err := b.dir.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %#o: others than its owner have access; use 0700", b.root.Name(), info.Mode().Perm())
	}
	files, err := b.dir.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, file := range files {
		// Only what looks like an entry: the operator may have named a wrong directory.
		if !entryID.MatchString(file.Name()) || !file.Type().IsRegular() {
			continue
		}
		if err := b.root.Remove(file.Name()); err != nil {
			return err
		}
	}
	return nil
}

// Used returns how many bytes the entries take, arrived or not.
func (b *Buffer) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Unknown is the size of an entry that nobody knows before all of it is there.
const Unknown = -1

// step is how many bytes an entry of unknown size gets at a time: few enough that many
// such entries do not keep the room from each other, and enough that to ask the file
// system for them costs nothing beside writing them.
const step = 1 << 20

// Create reserves an entry of size bytes, for the function of the given name. id is 32
// lower-case hexadecimal digits and names one entry at a time. An entry of size Unknown
// gets its room as it is written. With no room left the error is BufferFull.
func (b *Buffer) Create(id, function string, size int64) (*Entry, error) {
	if !entryID.MatchString(id) || size < Unknown {
		return nil, fmt.Errorf("creating a buffer entry %.40q of %d bytes: bad identifier or size", id, size)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		return nil, errClosed
	}
	if size > b.limit-b.used {
		return nil, full(size)
	}
	file, err := b.root.OpenFile(id, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("creating a buffer entry: %w", err)
	}
	room := max(size, 0)
	if err := allocate(file, room); err != nil {
		return nil, errors.Join(spaceError("creating a buffer entry", err), file.Close(), b.root.Remove(id))
	}
	e := &Entry{buffer: b, id: id, size: size, room: room, file: file, owners: 1}
	b.entries[id] = e
	b.used += room
	return e, nil
}

// reserve takes room for an entry that grows: a step, less if there is no more, but never
// less than need.
func (b *Buffer) reserve(need int64) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.limit - b.used
	switch {
	case b.entries == nil:
		return 0, errClosed
	case need > free:
		return 0, full(need)
	}
	room := min(max(need, step), free)
	b.used += room
	return room, nil
}

// giveBack returns room that was reserved and is not needed.
func (b *Buffer) giveBack(room int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries != nil {
		b.used -= room
	}
}

// remove takes an entry that nobody holds any more out of the directory. The file goes
// with its last descriptor, and the kernel takes tens of milliseconds to take a large one
// apart: no request shall wait for that.
func (b *Buffer) remove(e *Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil { // Close has removed it.
		_ = e.file.Close() // nobody reads it any more, so nothing is lost with it
		return
	}
	delete(b.entries, e.id)
	b.used -= e.room
	// A file that cannot be removed now is swept by the next Open.
	_ = b.root.Remove(e.id)
	b.freeing.Go(func() { _ = e.file.Close() })
}

// Close fails every entry and removes it, whoever still holds it.
func (b *Buffer) Close() error {
	b.mu.Lock()
	entries := b.entries
	b.entries, b.used = nil, 0
	b.mu.Unlock()
	b.freeing.Wait()
	var errs []error
	for id, e := range entries {
		e.Fail(errClosed)
		errs = append(errs, b.root.Remove(id))
	}
	if b.dir != nil {
		errs = append(errs, b.dir.Close())
	}
	return errors.Join(append(errs, b.root.Close())...)
}

// allocate gives the file its size and, where the file system can, its blocks: a full
// disk shows before a byte is written.
func allocate(file *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	for {
		err := syscall.Fallocate(int(file.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, errors.ErrUnsupported):
			return file.Truncate(size)
		default:
			return err
		}
	}
}

// IsFull tells whether err says that the buffer has no room.
func IsFull(err error) bool {
	p, ok := errors.AsType[*problem.Problem](err)
	return ok && p.Title == titleFull
}

// titleFull is the problem of a buffer without room.
const titleFull = "BufferFull"

// spaceError makes BufferFull of the errors of a full disk.
func spaceError(doing string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", full(0), err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func full(size int64) *problem.Problem {
	detail := "the disk of the node's input buffer is full"
	if size > 0 {
		detail = fmt.Sprintf("the node's input buffer has no room for %d bytes", size)
	}
	return problem.New(http.StatusInsufficientStorage, titleFull, "", detail)
}

// errReleased is what readers get of an entry whose owner has let go of it.
var errReleased = fmt.Errorf("the buffer entry was released: %w", fs.ErrClosed)
