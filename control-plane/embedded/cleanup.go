package embedded

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Stop ends the platform: daemons and gateways first, then functions, then the processes that
// run them, then the network under them. It goes on after an error and returns all of them. The state
// directory stays.
func (p *Platform) Stop(ctx context.Context) error {
	if p.daemons != nil {
		p.daemons.Stop(ctx)
		p.gateways.Stop(ctx)
	}
	var errs []error
	if p.network != nil {
		for _, n := range p.network.Nodes() {
			socket := filepath.Join(p.run(n.Name), "containerd.sock")
			if _, err := os.Stat(socket); err == nil {
				errs = append(errs, containerd.Cleanup(ctx, socket, nodeapi.ContainerdNamespace))
			}
		}
	}
	if p.containerds != nil {
		p.containerds.Stop(ctx)
	}
	for _, l := range p.logs {
		errs = append(errs, l.Close())
	}
	errs = append(errs, p.sweepNodes(ctx))
	if p.network != nil {
		errs = append(errs, p.network.Close())
	}
	errs = append(errs, os.RemoveAll(p.o.RunDir))
	return errors.Join(append(errs, letGo(p.locks))...)
}

// sweep removes what a platform that was killed left.
func (p *Platform) sweep(ctx context.Context) error {
	if err := network.Sweep(ctx, p.o.Name); err != nil {
		return err
	}
	if err := p.sweepNodes(ctx); err != nil {
		return err
	}
	left, err := entries(p.o.RunDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range left {
		if name != lockName {
			errs = append(errs, os.RemoveAll(p.run(name)))
		}
	}
	return errors.Join(errs...)
}

// sweepNodes removes shims, mounts and what the daemons keep only while they run. It
// works without containerd, for platforms that were killed.
func (p *Platform) sweepNodes(ctx context.Context) error {
	var errs []error
	nodes, err := p.leftNodes()
	errs = append(errs, err)
	for _, n := range nodes {
		errs = append(errs, containerd.SweepShims(ctx, filepath.Join(p.run(n), "containerd")))
	}
	errs = append(errs, containerd.SweepMounts(p.o.RunDir), containerd.SweepMounts(p.o.StateDir))
	for _, n := range nodes {
		for _, transient := range []string{"buffer", "instances", "netns", "ipam", "cni", "hosts", "logs"} {
			errs = append(errs, os.RemoveAll(filepath.Join(p.state(n), transient)))
		}
	}
	return errors.Join(errs...)
}

// leftNodes are the names of the nodes that left something in the run directory, which
// may have had another state directory, or in the state directory. It returns those that
// it could find, also with an error.
func (p *Platform) leftNodes() ([]string, error) {
	ran, err1 := entries(p.o.RunDir)
	ran = slices.DeleteFunc(ran, func(name string) bool {
		_, err := os.Stat(filepath.Join(p.run(name), "containerd"))
		return err != nil
	})
	stored, err2 := entries(filepath.Join(p.o.StateDir, "nodes"))
	all := append(ran, stored...)
	slices.Sort(all)
	return slices.Compact(all), errors.Join(err1, err2)
}

// entries are the names in a directory; none if there is none.
func entries(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names, nil
}
