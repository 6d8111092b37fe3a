package containerd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// logLimit is how large a function's log grows before it starts anew: a function's
// callers decide how much it logs, the node's disk is everybody's.
const logLimit = 16 << 20

// endMost is how much of a log's end is read, in bytes: many times what is shown.
const endMost = 16 << 10

// logs are the functions' outputs, one file per function.
type logs struct{ dir string }

func openLogs(dir string) (*logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for logs: %w", err)
	}
	return &logs{dir: dir}, nil
}

// path of the function's log.
func (l *logs) path(function string) string {
	return filepath.Join(l.dir, nodeapi.LogFile(function))
}

// output sends a task's output and errors to the function's log. They have two names for one file:
// under one name, containerd's shim closes the file for both when the program closes one of them,
// and loses what comes by the other, such as the last words of a program that ends.
func (l *logs) output(function string) (cio.Creator, error) {
	// The shim takes a path that is there for a file, and else for a pipe.
	f, err := os.OpenFile(l.path(function), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("making the function's log: %w", err)
	}
	return func(string) (cio.IO, error) {
		return logIO{cio.Config{Stdout: l.path(function), Stderr: l.dir + "/./" + nodeapi.LogFile(function)}}, nil
	}, nil
}

// logIO is for output that the shim writes by itself.
type logIO struct{ config cio.Config }

func (l logIO) Config() cio.Config { return l.config }
func (logIO) Cancel()              {}
func (logIO) Wait()                {}
func (logIO) Close() error         { return nil }

// size of the function's log; 0 if it has none yet.
func (l *logs) size(function string) int64 {
	info, err := os.Stat(l.path(function))
	if err != nil {
		return 0
	}
	return info.Size()
}

// end returns what is at the end of the function's log, but nothing from before the mark, a
// size that the log had.
func (l *logs) end(function string, mark int64) string {
	f, err := os.Open(l.path(function))
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if mark > info.Size() { // the log was emptied since
		mark = 0
	}
	from := max(mark, info.Size()-endMost)
	b := make([]byte, info.Size()-from)
	n, err := f.ReadAt(b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return string(b[:n])
}

// trim empties the logs that are over the limit. The shims append, so what comes next
// is written from the start.
func (l *logs) trim() error {
	files, err := os.ReadDir(l.dir)
	if err != nil {
		return fmt.Errorf("reading the directory for logs: %w", err)
	}
	var errs []error
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Size() > logLimit {
			err = os.Truncate(filepath.Join(l.dir, f.Name()), 0)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
