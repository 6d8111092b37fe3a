package buffer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// aheadSize is how many bytes are read at a time from what is not a file: each time is a
// round trip to another machine. The answer has them once more; with what is on its way to
// the function, less than 1 MiB of an entry is in memory.
const aheadSize = 256 << 10

// Reader follows an entry's prefix. One goroutine reads; any may close.
type Reader struct {
	entry  *Entry
	ctx    context.Context
	cancel context.CancelCauseFunc
	owner  bool // of the entry; false when there is nothing to read
	at     int64
	ahead  []byte // read from a source that is no file, and not delivered yet
	room   []byte // what ahead is part of

	mu      sync.Mutex
	closed  bool
	content Content       // what source reads; nil when there is none
	source  io.ReadCloser // has an offset of its own
}

var errReaderClosed = fmt.Errorf("reading a buffer entry: %w", fs.ErrClosed)

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.await()
	if err != nil {
		return 0, err
	}
	source, n, err := r.open(n)
	if err != nil {
		return 0, r.explain(err)
	}
	var read int
	if _, ok := source.(*os.File); ok {
		read, err = source.Read(p[:min(int64(len(p)), n)])
	} else if err = r.fill(source, n); err == nil {
		read = copy(p, r.ahead)
		r.ahead = r.ahead[read:]
	}
	r.at += int64(read)
	if read > 0 {
		err = nil // it comes again
	}
	return read, r.explain(err)
}

// CopyTo writes the next n bytes as they arrive, by the kernel alone where it can (sendfile(2)): from a file to what
// implements io.ReaderFrom.
func (r *Reader) CopyTo(w io.Writer, n int64) (written int64, err error) {
	for written < n {
		has, err := r.await()
		if err != nil {
			return written, r.explain(err)
		}
		source, has, err := r.open(has)
		if err != nil {
			return written, r.explain(err)
		}
		most, some := min(has, n-written), int64(0)
		if file, ok := source.(*os.File); ok {
			some, err = io.Copy(w, &io.LimitedReader{R: file, N: most})
			if err == nil && some < most {
				err = io.EOF
			}
		} else if err = r.fill(source, most); err == nil {
			var wrote int
			wrote, err = w.Write(r.ahead[:min(int64(len(r.ahead)), most)])
			r.ahead, some = r.ahead[wrote:], int64(wrote)
		}
		r.at, written = r.at+some, written+some
		if err != nil {
			return written, r.explain(err)
		}
	}
	return written, nil
}

// Seek implements io.Seeker, for offsets from the start that need not have arrived yet.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart || offset < 0 {
		return r.at, fmt.Errorf("reading a buffer entry: %w", fs.ErrInvalid)
	}
	if r.ctx.Err() != nil {
		return r.at, context.Cause(r.ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shut()
	r.at = offset
	return offset, nil
}

// fill reads ahead, if all that was read is delivered. The source has n bytes.
func (r *Reader) fill(source io.Reader, n int64) error {
	if len(r.ahead) > 0 {
		return nil
	}
	if r.room == nil {
		r.room = make([]byte, aheadSize)
	}
	read, err := source.Read(r.room[:min(n, aheadSize)])
	if read > 0 {
		err = nil // it comes again
	}
	r.ahead = r.room[:read]
	return err
}

// open returns a reader that stands at the next byte, and how many of the n bytes that are
// there it has.
func (r *Reader) open(n int64) (io.Reader, int64, error) {
	p, has, err := r.entry.at(r.at)
	if err != nil {
		return nil, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, 0, errReaderClosed
	}
	if r.content != p.content {
		r.shut()
		if r.source, err = p.content.Open(r.ctx, r.at-p.from); err != nil {
			r.source = nil
			return nil, 0, fmt.Errorf("reading a buffer entry: %w", err)
		}
		r.content = p.content
	}
	return r.source, min(n, has), nil
}

// shut closes the source. The caller holds the lock.
func (r *Reader) shut() {
	if r.source != nil {
		_ = r.source.Close() // it was only read from
	}
	r.content, r.source, r.ahead = nil, nil, nil
}

func (r *Reader) await() (int64, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.entry.Await(r.ctx, r.at)
}

// explain tells a reader that was closed while it read, and bytes that are missing from
// the end of the entry.
func (r *Reader) explain(err error) error {
	switch {
	case err != nil && context.Cause(r.ctx) == errReaderClosed:
		return errReaderClosed
	case err == io.EOF:
		return fmt.Errorf("reading a buffer entry: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// Close implements io.Closer: a Read under way ends.
func (r *Reader) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.cancel(errReaderClosed)
	if r.source != nil {
		_ = r.source.Close() // it was only read from; a Read under way ends
	}
	r.mu.Unlock()
	if r.owner {
		r.entry.drop()
	}
	return nil
}
