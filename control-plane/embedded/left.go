package embedded

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/headstart-mesh/headstart/shim/nodeapi/writes"
)

// Left is what a node has acknowledged, and its stores do not have yet.
type Left struct {
	Node    string
	Objects int
	Bytes   int64
}

// Left returns the nodes in the state directory that have something left, also those of earlier runs. Call it after
// Stop: until then daemons upload. It returns those that it could find, also with an error.
func (p *Platform) Left() (all []Left, err error) {
	nodes, err := entries(filepath.Join(p.o.StateDir, "nodes"))
	errs := []error{err}
	for _, n := range nodes {
		objects, bytes, err := writes.Left(filepath.Join(p.state(n), writes.Directory))
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", n, err))
		}
		if objects > 0 {
			all = append(all, Left{n, objects, bytes})
		}
	}
	return all, errors.Join(errs...)
}
