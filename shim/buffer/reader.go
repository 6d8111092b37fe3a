package buffer

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// reader follows an entry's prefix. One goroutine reads; any may close.
type reader struct {
	entry  *Entry
	ctx    context.Context
	cancel context.CancelCauseFunc
	file   *os.File // nil when there is nothing to read
	at     int64
	once   sync.Once
}

var errReaderClosed = fmt.Errorf("reading a buffer entry: %w", fs.ErrClosed)

func (r *reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.await()
	if err != nil {
		return 0, err
	}
	read, err := r.file.Read(p[:min(int64(len(p)), n)])
	r.at += int64(read)
	return read, r.explain(err)
}

// WriteTo implements io.WriterTo, which io.Copy prefers: it hands the file itself to
// writers that can take one, so that bytes to a socket stay in the kernel (sendfile(2)).
func (r *reader) WriteTo(w io.Writer) (int64, error) {
	begin := r.at
	for {
		n, err := r.await()
		if err == io.EOF {
			return r.at - begin, nil
		}
		if err != nil {
			return r.at - begin, err
		}
		copied, err := io.CopyN(w, r.file, n)
		r.at += copied
		if err != nil {
			return r.at - begin, r.explain(err)
		}
	}
}

// Seek implements io.Seeker, for offsets from the start that need not have arrived yet.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart || offset < 0 {
		return r.at, fmt.Errorf("reading a buffer entry: %w", fs.ErrInvalid)
	}
	if r.ctx.Err() != nil {
		return r.at, context.Cause(r.ctx)
	}
	if _, err := r.file.Seek(offset, io.SeekStart); err != nil {
		return r.at, r.explain(err)
	}
	r.at = offset
	return offset, nil
}

func (r *reader) await() (int64, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.entry.await(r.ctx, r.at)
}

// explain tells a reader that was closed while it read.
func (r *reader) explain(err error) error {
	if err != nil && context.Cause(r.ctx) == errReaderClosed {
		return errReaderClosed
	}
	return err
}

func (r *reader) Close() error {
	var err error
	r.once.Do(func() {
		r.cancel(errReaderClosed)
		if r.file != nil {
			err = r.file.Close()
			r.entry.drop()
		}
	})
	return err
}
