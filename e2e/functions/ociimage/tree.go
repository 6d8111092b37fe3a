package ociimage

import (
	"io/fs"
	"path"
	"path/filepath"
	"strings"
)

// AddTree adds the regular files below a directory, in the image below in. It returns those that are shared objects.
func AddTree(files map[string]File, in, root string) (modules []string, err error) {
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(root, p)
		files[path.Join(in, below)] = File{Source: p, Mode: 0o644}
		if strings.HasSuffix(p, ".so") {
			modules = append(modules, p)
		}
		return err
	})
	return modules, err
}
