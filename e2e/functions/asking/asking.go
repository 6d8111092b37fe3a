// Package asking is an image with unmodified drivers of databases: psql, and programs in Python and Node that ask once.
package asking

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Ref is the image's.
const Ref = "headstart.local/asking:1"

// Roots is the file of the certificates that servers are verified with.
const Roots = "/roots.pem"

// Debian's programs; e2e/setup.sh installs them.
const (
	Psql   = "/usr/lib/postgresql/15/bin/psql"
	python = "/usr/bin/python3.11"
	node   = "/usr/bin/node"
)

// Where the programs are. They take what the comment at their top says.
var (
	Python = []string{python, "/ask.py"}
	Node   = []string{node, "/ask.mjs"}
)

//go:embed ask.py
var inPython []byte

//go:embed ask.mjs
var inNode []byte

// Image returns the image, which has the program client too, as its entrypoint. bin is where `make` has put that and
// drivers, roots are certificates (PEM).
func Image(bin string, roots []byte) ([]byte, error) {
	files := map[string]ociimage.File{Roots: {Content: roots, Mode: 0o644}, "/ask.py": {Content: inPython, Mode: 0o644},
		"/ask.mjs": {Content: inNode, Mode: 0o644}}
	files["/client"] = ociimage.File{Source: filepath.Join(bin, "client"), Mode: 0o755}
	programs := []string{Psql, python, node}
	for _, p := range programs {
		files[p] = ociimage.File{Source: p, Mode: 0o755}
	}
	for in, from := range map[string]string{"/usr/lib/python3.11": "sdks/python-library", "/site": "drivers/python",
		"/node_modules": "drivers/node/node_modules"} {
		modules, err := ociimage.AddTree(files, in, filepath.Join(bin, from))
		if err != nil {
			return nil, fmt.Errorf("looking for drivers; `make setup` brings them: %w", err)
		}
		programs = append(programs, modules...)
	}
	if err := ociimage.AddLibraries(files, programs...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := ociimage.Build(&b, ociimage.Image{Ref: Ref, Entrypoint: []string{"/client"}, Files: files,
		Env: []string{"PYTHONPATH=/site", "PYTHONDONTWRITEBYTECODE=1"}})
	return b.Bytes(), err
}
