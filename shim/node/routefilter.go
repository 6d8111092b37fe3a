package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/headstart-mesh/headstart/filters/filterapi/module"
)

// moduleVersionBytes tell one module from all others that a node has had.
const moduleVersionBytes = 8

// InstallRouteFilter puts the route filter's module where the node's gateways can read it, and
// nobody but the daemon can write: what runs in them is of the daemon's image. Without a filter there
// is none, and what an earlier daemon had put there goes.
func InstallRouteFilter(filter, path string) (module.Module, error) {
	if filter == "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return module.Module{}, fmt.Errorf("taking the route filter away: %w", err)
		}
		return module.Module{}, nil
	}
	sum, err := copyOpen(filter, path)
	if err != nil {
		return module.Module{}, fmt.Errorf("putting the route filter where gateways find it: %w", err)
	}
	m := module.Route(path)
	m.Version = "-" + hex.EncodeToString(sum[:moduleVersionBytes])
	return m, nil
}

// copyOpen replaces the file to, for everybody to read, and returns its SHA-256 sum.
func copyOpen(from, to string) (sum []byte, err error) {
	source, err := os.Open(from)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	next := to + ".new" // always the same, so that a crash leaves no more than one behind
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, h), source)
	err = errors.Join(err, f.Chmod(0o644), f.Close()) // the mode given before has passed the umask
	if err == nil {
		err = os.Rename(next, to)
	}
	return h.Sum(nil), err
}
