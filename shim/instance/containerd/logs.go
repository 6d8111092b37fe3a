package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// logLimit is how large a function's log grows before it starts anew: a function's
// callers decide how much it logs, the node's disk is everybody's.
const logLimit = 16 << 20

// logs are the functions' outputs, one file per function.
type logs struct{ dir string }

func openLogs(dir string) (*logs, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for logs: %w", err)
	}
	return &logs{dir: dir}, nil
}

// path of the function's log. A function's name is namespace/name, both DNS labels,
// so a dot between them keeps the names apart.
func (l *logs) path(function string) string {
	return filepath.Join(l.dir, strings.ReplaceAll(function, "/", ".")+".log")
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
