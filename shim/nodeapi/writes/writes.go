// Package writes is what a node's directory of objects that are written behind looks like. The daemon fills it. After
// the daemon's end others can count what it has left.
package writes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	// Directory is its name in the node's --state-dir.
	Directory = "writes"
	// Record ends the name of the file with a write's record. The content is in the file that has the rest of the name. A
	// record without content is of a write that is not going to be uploaded.
	Record = ".write"
)

// Left counts the objects in a directory that their stores do not have yet, and their bytes. There may be no directory.
func Left(dir string) (objects int, bytes int64, err error) {
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, fmt.Errorf("counting what is not uploaded: %w", err)
	}
	for _, name := range names {
		content, is := strings.CutSuffix(name.Name(), Record)
		if !is {
			continue
		}
		switch info, err := os.Stat(filepath.Join(dir, content)); {
		case err == nil:
			objects, bytes = objects+1, bytes+info.Size()
		case !errors.Is(err, fs.ErrNotExist):
			return 0, 0, fmt.Errorf("counting what is not uploaded: %w", err)
		}
	}
	return objects, bytes, nil
}
