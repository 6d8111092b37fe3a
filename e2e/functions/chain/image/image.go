// Package image has an image of the function chain, in Go and in Python.
package image

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Ref is the image's.
const Ref = "headstart.local/chain:1"

// Python is the command of the program in Python; that in Go is the image's own.
var Python = []string{python, "/chain.py"}

// python is Debian's, whose library e2e/setup.sh has compiled for images, as their files have no times.
const python = "/usr/bin/python3.11"

//go:embed chain.py
var inPython []byte

// helper is a file of the repository, in whose root make starts programs.
const helper = "shim/sdk/headstart_wsgi.py"

// Build returns the image. bin is where `make setup` and `make build` have put programs, and what images of Python have.
func Build(bin string) ([]byte, error) {
	files := map[string]ociimage.File{"/chain": {Source: filepath.Join(bin, "chain"), Mode: 0o755}, python: {Source: python, Mode: 0o755},
		"/chain.py": {Content: inPython, Mode: 0o644}, "/headstart_wsgi.py": {Source: helper, Mode: 0o644}}
	modules, err := ociimage.AddTree(files, "/usr/lib/python3.11", filepath.Join(bin, "sdks/python-library"))
	if err != nil {
		return nil, fmt.Errorf("looking for what Python needs; `make setup` brings it: %w", err)
	}
	if err := ociimage.AddLibraries(files, append(modules, python)...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = ociimage.Build(&b, ociimage.Image{Ref: Ref, Entrypoint: []string{"/chain"}, Files: files,
		Env: []string{"PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1"}})
	return b.Bytes(), err
}
