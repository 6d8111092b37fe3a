// Package functionlog reads what functions have logged on the nodes of one machine.
package functionlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// chunk is how much is read at a time, in bytes, and the longest line: a longer one comes
	// in pieces.
	chunk = 64 << 10
	// followEvery is how late a line that is followed may come, and costs next to nothing.
	followEvery = 200 * time.Millisecond
)

// Options are what to read.
type Options struct {
	// Dir is the platform's state directory, which has each node's below nodes/.
	Dir string
	// Function or job, namespace/name.
	Function string
	// Tail is how many lines of each node's log to begin with; negative for all.
	Tail int
	// Follow goes on with what is logged from then on.
	Follow bool
}

// Read calls to with each line and its node, the nodes by their names, until there are no more;
// if it follows, until ctx ends. The error is fs.ErrNotExist if no node has a log of the function
// and none is followed.
func Read(ctx context.Context, o Options, to func(node, line string) error) error {
	all := map[string]*file{}
	for first := true; ; first = false {
		nodes, err := os.ReadDir(filepath.Join(o.Dir, "nodes"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the nodes' directories: %w", err)
		}
		found := false
		for _, n := range nodes {
			f := all[n.Name()]
			if f == nil {
				f = &file{path: filepath.Join(o.Dir, "nodes", n.Name(), "logs", nodeapi.LogFile(o.Function))}
				all[n.Name()] = f
				if first {
					f.tail = o.Tail
				} else {
					f.tail = -1 // its log has begun since
				}
			}
			err := f.read(!o.Follow, func(line string) error { return to(n.Name(), line) })
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			found = found || err == nil
		}
		switch {
		case !o.Follow && !found:
			return fs.ErrNotExist
		case !o.Follow:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followEvery):
		}
	}
}

// file is one log, as far as it was read.
type file struct {
	path   string
	tail   int   // lines to begin with, until it was opened; negative for all
	opened bool  // once
	offset int64 // of what was not read yet
	rest   []byte
}

// read calls to with the lines that are new, and with a last one without an end if whole.
func (f *file) read(whole bool, to func(string) error) error {
	in, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		f.tail = -1 // all that it will have is new
		return err
	}
	if err != nil {
		return fmt.Errorf("opening a log: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("opening a log: %w", err)
	}
	if !f.opened {
		f.opened = true
		if f.tail >= 0 {
			if f.offset, err = lastLines(in, info.Size(), f.tail); err != nil {
				return fmt.Errorf("reading a log: %w", err)
			}
		}
	}
	if info.Size() < f.offset { // it was emptied since: logs do not grow without end
		f.offset, f.rest = 0, nil
	}
	for b := make([]byte, chunk); ; {
		n, err := in.ReadAt(b, f.offset)
		f.offset += int64(n)
		f.rest = append(f.rest, b[:n]...)
		if err := f.lines(to); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading a log: %w", err)
		}
	}
	if whole && len(f.rest) > 0 {
		return to(string(f.rest))
	}
	return nil
}

// lines passes on what there is of whole lines, and of those that are too long.
func (f *file) lines(to func(string) error) error {
	for {
		end := bytes.IndexByte(f.rest, '\n')
		next := end + 1
		if end < 0 || end > chunk {
			end, next = chunk, chunk
		}
		if end > len(f.rest) {
			return nil
		}
		if err := to(string(f.rest[:end])); err != nil {
			return err
		}
		f.rest = f.rest[next:]
	}
}

// lastLines returns where the last n lines begin. An end of line at the very end ends the last one.
func lastLines(in io.ReaderAt, size int64, n int) (int64, error) {
	if n == 0 {
		return size, nil
	}
	b := make([]byte, chunk)
	for end := size; end > 0; {
		begin := max(end-chunk, 0)
		part := b[:end-begin]
		if _, err := in.ReadAt(part, begin); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(part) - 1; i >= 0; i-- {
			at := begin + int64(i)
			if part[i] != '\n' || at == size-1 {
				continue
			}
			if n--; n == 0 {
				return at + 1, nil
			}
		}
		end = begin
	}
	return 0, nil
}
