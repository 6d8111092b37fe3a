package buffer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"sync"

	"golang.org/x/sys/unix"
)

// linkName is a file name that is one path component, and no hidden one.
var linkName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$`)

// Entry is one input on disk. Writers fill it in any order, each byte once; readers
// follow its prefix, the bytes from the start without a gap. Its methods may be called
// at the same time.
type Entry struct {
	buffer *Buffer
	id     string
	file   *os.File

	mu       sync.Mutex
	size     int64 // Unknown until it is complete, if nobody knew it before
	room     int64 // bytes that are reserved for it
	writing  int   // writes under way
	spans    spans
	complete bool
	err      error         // why it failed
	changed  chan struct{} // closed at the next change; nil when nobody waits for it
	owners   int           // whoever created it, and its readers
}

var errComplete = errors.New("writing to a complete buffer entry")

// Size is how many bytes the entry has when it is complete. known is false as long as
// nobody can tell.
func (e *Entry) Size() (size int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size, e.size != Unknown
}

// WriteAt implements io.WriterAt. No room for an entry that grows, and a full disk, are
// BufferFull.
func (e *Entry) WriteAt(p []byte, at int64) (int, error) {
	if err := e.begin(at, int64(len(p))); err != nil {
		return 0, err
	}
	n, err := e.file.WriteAt(p, at)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.writing--
	if err != nil {
		return n, spaceError("writing a buffer entry", err)
	}
	before := e.spans.prefix
	if e.spans.add(at, at+int64(n)); e.spans.prefix > before {
		e.notify()
	}
	return n, nil
}

// begin notes a write of n bytes, and makes room for it.
func (e *Entry) begin(at, n int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := int64(math.MaxInt64)
	if e.size != Unknown {
		end = e.size
	}
	switch {
	case at < 0 || n > end-at:
		return fmt.Errorf("writing %d bytes at %d of a buffer entry of %d", n, at, e.size)
	case e.complete:
		return errComplete
	case e.err != nil:
		return e.err
	}
	if err := e.grow(at + n); err != nil {
		return err
	}
	e.writing++
	return nil
}

// grow makes room for the bytes up to end. The caller holds the lock.
func (e *Entry) grow(end int64) error {
	if end <= e.room {
		return nil
	}
	more, err := e.buffer.reserve(end - e.room)
	if err != nil {
		return err
	}
	if err := allocate(e.file, e.room+more); err != nil {
		e.buffer.giveBack(more)
		return spaceError("making room for a buffer entry", err)
	}
	e.room += more
	return nil
}

// Complete says that all is written, and so how much it is. It is an error when bytes
// are missing.
func (e *Entry) Complete() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.err != nil:
		return e.err
	case e.complete:
		return nil
	case e.size != Unknown && e.spans.prefix != e.size:
		return fmt.Errorf("completing a buffer entry: %d of %d bytes are there", e.spans.prefix, e.size)
	case e.size == Unknown && (e.writing > 0 || len(e.spans.apart) > 0):
		return fmt.Errorf("completing a buffer entry: bytes are missing after the first %d", e.spans.prefix)
	}
	// Its links are for everybody to read and nobody to write.
	err := e.file.Chmod(0o444)
	if err == nil && e.size == Unknown {
		err = e.file.Truncate(e.spans.prefix)
	}
	if err != nil {
		return fmt.Errorf("completing a buffer entry: %w", err)
	}
	e.buffer.giveBack(e.room - e.spans.prefix)
	e.size, e.room = e.spans.prefix, e.spans.prefix
	e.complete = true
	e.notify()
	return nil
}

// Fail ends the entry: its readers and writers get err. Only the first end counts.
func (e *Entry) Fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.complete || e.err != nil {
		return
	}
	e.err = err
	e.notify()
}

// Link gives the complete entry a second name, in a directory on the same file system.
// It exists from then on with all its bytes and mode 0444. The link keeps the bytes on
// disk: Used is true as long as it is removed before Release.
func (e *Entry) Link(dir *os.Root, name string) error {
	if !linkName.MatchString(name) {
		return fmt.Errorf("linking a buffer entry: %.130q is not a file name", name)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.complete || e.owners == 0 {
		return errors.New("linking a buffer entry that is not complete")
	}
	to, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("linking a buffer entry: %w", err)
	}
	defer to.Close() // It only names the directory.
	if err := unix.Linkat(int(e.buffer.dir.Fd()), e.id, int(to.Fd()), name, 0); err != nil {
		return fmt.Errorf("linking a buffer entry as %s: %w", name, err)
	}
	return nil
}

// Release is called once by whoever created the entry. What is neither complete nor
// failed fails. The file goes when the last reader is closed.
func (e *Entry) Release() {
	e.Fail(errReleased)
	e.drop()
}

func (e *Entry) drop() {
	e.mu.Lock()
	e.owners--
	last := e.owners == 0
	e.mu.Unlock()
	if last {
		e.buffer.remove(e)
	}
}

// NewReader returns a reader of the whole entry. It delivers what is there, waits for
// more, and ends with io.EOF when the entry is complete, or at once with the error it
// failed with, or with ctx's. Its Close may be called at any time, and must be.
func (e *Entry) NewReader(ctx context.Context) io.ReadCloser {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reader{entry: e, ctx: ctx, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owners == 0 {
		cancel(errReleased)
		return r
	}
	// A descriptor of its own has an offset of its own, which sendfile(2) needs.
	file, err := e.buffer.root.Open(e.id)
	if err != nil {
		cancel(fmt.Errorf("reading a buffer entry: %w", err))
		return r
	}
	r.file = file
	e.owners++
	return r
}

// await returns how many bytes the prefix has beyond at, as soon as it has any. It is
// io.EOF at the end of a complete entry.
func (e *Entry) await(ctx context.Context, at int64) (int64, error) {
	for {
		n, changed, err := e.state(at)
		if err != nil || n > 0 {
			return n, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

func (e *Entry) state(at int64) (int64, <-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return 0, nil, e.err
	}
	if n := e.spans.prefix - at; n > 0 {
		return n, nil, nil
	}
	if e.complete {
		return 0, nil, io.EOF
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return 0, e.changed, nil
}

// notify wakes those who wait for a change. The caller holds the lock.
func (e *Entry) notify() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}
