// Package image has an image of programs that ask PostgreSQL and Redis by unmodified drivers: psql, redis-cli, and
// those of Go (static), Python and Node.
package image

import (
	"bytes"
	_ "embed"
	"fmt"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Ref is the image's.
const Ref = "headstart.local/query:1"

// Roots is where programs find the certificates that they verify servers' with.
const Roots = "/roots.pem"

// The beginnings of commands: what follows is as query has it, a statement for psql, and a command for redis-cli.
var (
	Psql     = []string{psql, "-X", "-A", "-t", "-c"}
	RedisCLI = []string{redisCLI}
	Go       = []string{"/query"}
	Python   = []string{python, "/query.py"}
	Node     = []string{node, "/query.mjs"}
)

// The programs are Debian's, whose psql is a script that runs this one.
const (
	psql     = "/usr/lib/postgresql/15/bin/psql"
	redisCLI = "/usr/bin/redis-cli"
	python   = "/usr/bin/python3.11"
	node     = "/usr/bin/node"
)

// packages are psycopg and redis-py, and what they need.
var packages = []string{
	"psycopg", "psycopg_binary", "psycopg_binary.libs", "redis", "async_timeout", "typing_extensions.py",
}

var (
	//go:embed query.py
	inPython []byte
	//go:embed query.mjs
	inNode []byte
)

// Build returns the image. bin is where `make setup` and `make build` have put drivers and programs.
func Build(bin string, roots []byte) ([]byte, error) {
	files := map[string]ociimage.File{
		psql: {Source: psql, Mode: 0o755}, redisCLI: {Source: redisCLI, Mode: 0o755},
		python: {Source: python, Mode: 0o755}, node: {Source: node, Mode: 0o755}, "/query": {Source: filepath.Join(bin, "query"), Mode: 0o755},
		"/query.py": {Content: inPython, Mode: 0o644}, "/query.mjs": {Content: inNode, Mode: 0o644},
		Roots: {Content: roots, Mode: 0o644},
	}
	trees := map[string]string{"/usr/lib/python3.11": "sdks/python-library",
		"/node_modules": "drivers/node/node_modules"}
	for _, name := range packages {
		trees["/site/"+name] = "drivers/python/" + name
	}
	need := []string{psql, redisCLI, python, node}
	for in, from := range trees {
		modules, err := ociimage.AddTree(files, in, filepath.Join(bin, from))
		if err != nil {
			return nil, fmt.Errorf("looking for the drivers; `make setup` brings them: %w", err)
		}
		need = append(need, modules...)
	}
	if err := ociimage.AddLibraries(files, need...); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err := ociimage.Build(&b, ociimage.Image{Ref: Ref, Entrypoint: []string{"/query"}, Files: files,
		Env: []string{"PYTHONPATH=/site", "PYTHONDONTWRITEBYTECODE=1", "PGSSLROOTCERT=" + Roots,
			"SSL_CERT_FILE=" + Roots, "NODE_EXTRA_CA_CERTS=" + Roots}})
	return b.Bytes(), err
}
