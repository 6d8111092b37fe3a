package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// lockName is the file in RunDir that a running platform holds locked.
const lockName = "lock"

// takeLock keeps a second platform out of the run directory. The kernel lets go of the
// lock when its holder dies.
func takeLock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--run-dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("a platform is running with %s already; stop it, or start another one with --run-dir, --state-dir, --name and --subnet of its own", dir), f.Close())
	}
	return f, nil
}

// Stop ends the platform: functions first, then the processes that run them, then the
// network under them. It goes on after an error and returns all of them. The state
// directory stays.
func (p *Platform) Stop(ctx context.Context) error {
	if p.daemons != nil {
		p.daemons.Stop(ctx)
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
	errs = append(errs, os.RemoveAll(p.o.RunDir), p.lock.Close())
	return errors.Join(errs...)
}

// sweep removes what a platform that was killed left.
func (p *Platform) sweep(ctx context.Context) error {
	if err := network.Sweep(ctx, p.o.Name); err != nil {
		return err
	}
	if err := p.sweepNodes(ctx); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.o.RunDir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != lockName {
			errs = append(errs, os.RemoveAll(p.run(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweepNodes removes shims, mounts and what the daemons keep only while they run. It
// works without containerd, for platforms that were killed.
func (p *Platform) sweepNodes(ctx context.Context) error {
	var errs []error
	nodes, err := os.ReadDir(filepath.Join(p.o.StateDir, "nodes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, n := range nodes {
		errs = append(errs, containerd.SweepShims(ctx, filepath.Join(p.run(n.Name()), "containerd")))
	}
	errs = append(errs, containerd.SweepMounts(p.o.RunDir), containerd.SweepMounts(p.o.StateDir))
	for _, n := range nodes {
		for _, transient := range []string{"buffer", "instances", "netns", "ipam", "cni", "logs"} {
			errs = append(errs, os.RemoveAll(filepath.Join(p.state(n.Name()), transient)))
		}
	}
	return errors.Join(errs...)
}
