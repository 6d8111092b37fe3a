package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
)

// hierarchy is a mounted cgroup file system.
type hierarchy struct {
	dir     string
	unified bool // version 2
}

func hierarchies() ([]hierarchy, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading mounts: %w", err)
	}
	var all []hierarchy
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-") // proc(5): then comes the kind
		if dash < 5 || dash+1 >= len(fields) || !strings.HasPrefix(fields[dash+1], "cgroup") {
			continue
		}
		all = append(all, hierarchy{dir: fields[4], unified: fields[dash+1] == "cgroup2"})
	}
	return all, nil
}

// makeCgroup makes a cgroup in every hierarchy, for processes, and those above it, which may
// then have other children.
func makeCgroup(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := h.dir
		for _, part := range strings.Split(strings.Trim(cgroup, "/"), "/") {
			if h.unified {
				delegate(dir)
			}
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("making cgroup: %w", err)
			}
			if err := inherit(parent, dir); err != nil {
				return fmt.Errorf("making cgroup %s: %w", dir, err)
			}
		}
	}
	return nil
}

// inherit copies what a new cpuset of version 1 does not take from its parent by itself.
func inherit(parent, dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			continue // another controller, or the root of version 2
		}
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || len(bytes.TrimSpace(own)) > 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// delegate lets children of a cgroup of version 2 use all controllers. Where one cannot be
// had, the kubelet says so better than we could.
func delegate(dir string) {
	controllers, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, c := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644)
	}
}

// procsFiles are the files that a process enters a cgroup by.
func procsFiles(cgroup string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var files []string
	for _, h := range all {
		files = append(files, filepath.Join(h.dir, cgroup, "cgroup.procs"))
	}
	return files, nil
}

// inCgroup tells whether a process is in the cgroup or in one below it.
func inCgroup(pid int, cgroup string) bool {
	member, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return false // it has just ended
	}
	for line := range strings.Lines(string(member)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3) // cgroups(7)
		if len(fields) != 3 {
			continue
		}
		if p := path.Clean(fields[2]); p == cgroup || strings.HasPrefix(p, cgroup+"/") {
			return true
		}
	}
	return false
}

// removeCgroup removes an empty cgroup, and those below it, from every hierarchy.
func removeCgroup(ctx context.Context, cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := containerd.RemoveCgroup(ctx, filepath.Join(h.dir, cgroup)); err != nil {
			return fmt.Errorf("removing cgroup: %w", err)
		}
		_ = unix.Rmdir(filepath.Dir(filepath.Join(h.dir, cgroup))) // the last node's takes their common parent along
	}
	return nil
}
