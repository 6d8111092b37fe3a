package containerd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// SweepShims ends what a dead containerd with this state directory left running, and
// removes all trace of it: shims, every process of their containers, mounts, bundles,
// shim sockets, runc's state and cgroups. containerd must not run any more. With nothing
// to sweep it does nothing.
//
// A container is known by three things, since each can be missing: by its bundle, whose
// cgroup holds all its processes, also when its shim is dead; as a descendant of its
// shim, also when the bundle is gone; and a shim by its working directory or arguments.
func SweepShims(ctx context.Context, stateDir string) error {
	dir, err := resolve(stateDir)
	if err != nil {
		return err
	}
	bundles, err := listBundles(dir)
	if err != nil {
		return err
	}
	var cgroups []string
	for _, b := range bundles {
		if b.cgroup != "" {
			cgroups = append(cgroups, b.cgroup)
		}
	}
	if err := process.Kill(ctx, leftovers(dir, cgroups)); err != nil {
		return fmt.Errorf("ending containers of %s: %w", stateDir, err)
	}
	// Bundles are removed only when nothing is mounted in them any more.
	if err := SweepMounts(dir); err != nil {
		return err
	}
	var failed []error
	for _, b := range bundles {
		failed = append(failed, b.remove(ctx))
	}
	failed = append(failed, removeNamespaces(dir))
	return errors.Join(failed...)
}

// leftovers selects shims of the state directory, their descendants, and the processes
// in the given cgroups.
func leftovers(dir string, cgroups []string) func([]process.Entry) []int {
	return func(table []process.Entry) []int {
		ours := map[int]bool{}
		for _, e := range table {
			ours[e.PID] = isShim(e.PID, dir) || inCgroup(e.PID, cgroups)
		}
		// Parents may come after their children in the table.
		for grew := true; grew; {
			grew = false
			for _, e := range table {
				if !ours[e.PID] && ours[e.Parent] {
					ours[e.PID], grew = true, true
				}
			}
		}
		var found []int
		for _, e := range table {
			if ours[e.PID] {
				found = append(found, e.PID)
			}
		}
		return found
	}
}

// isShim tells whether a process is a shim (containerd calls them so, whatever the
// runtime) that works below dir. Files of a process that has ended cannot be read.
func isShim(pid int, dir string) bool {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	args, err := p.CmdLine()
	if err != nil || len(args) == 0 || !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return false
	}
	cwd, _ := p.Cwd()
	return slices.ContainsFunc(append(args, cwd), func(s string) bool { return isBelow(s, dir) })
}

func inCgroup(pid int, cgroups []string) bool {
	if len(cgroups) == 0 {
		return false
	}
	p, err := procfs.NewProc(pid)
	if err != nil {
		return false
	}
	member, err := p.Cgroups()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(member, func(of procfs.Cgroup) bool {
		place := path.Clean(of.Path)
		return slices.ContainsFunc(cgroups, func(c string) bool { return place == c || isBelow(place, c) })
	})
}
