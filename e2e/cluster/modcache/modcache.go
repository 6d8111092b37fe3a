// Package modcache finds what Go modules have beside their packages: manifests, templates.
package modcache

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Dirs returns, by module, the directory that the module cache has it in. The versions are
// those of the go.mod in dir; what is missing is downloaded.
func Dirs(ctx context.Context, dir string, modules ...string) (map[string]string, error) {
	download := exec.CommandContext(ctx, "go", append([]string{"mod", "download", "-json"}, modules...)...)
	download.Dir = dir
	out, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("downloading %s: %w", strings.Join(modules, ", "), err)
	}
	dirs := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Dir string }
		switch err := d.Decode(&m); {
		case errors.Is(err, io.EOF):
			return dirs, nil
		case err != nil:
			return nil, fmt.Errorf("reading what go says of %s: %w", strings.Join(modules, ", "), err)
		}
		dirs[m.Path] = m.Dir
	}
}
