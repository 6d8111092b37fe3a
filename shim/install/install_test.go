package install_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/installtest"
)

const (
	shimPath    = "/opt/headstart/bin/containerd-shim-headstart-v2"
	journalPath = "/opt/headstart/state/journal.json"
)

// Installed, again, with a new shim, and removed: each node ends as it began.
func TestLayouts(t *testing.T) {
	for _, fixture := range fixtures(t) {
		t.Run(fixture, func(t *testing.T) {
			root := plant(t, fixture)
			original := snapshot(t, root)
			r := newRig(t, root, "shim 1")
			if err := r.Install(t.Context()); err != nil {
				t.Fatal(err)
			}
			installed := snapshot(t, root)
			var shown []string
			for _, line := range different(original, installed) {
				if !strings.Contains(line, "/opt/headstart/state/") && !strings.HasPrefix(line, "+ /opt/headstart/bin") {
					shown = append(shown, line)
				}
			}
			golden(t, fixture, strings.Join(shown, "\n")+"\n")
			if r.runtime.Restarts != 1 || !r.runtime.Current() || r.runtime.Verified != 1 || !r.node.ready {
				t.Errorf("restarts %d, current %v, verified %d, ready %v; want 1, true, 1, true", r.runtime.Restarts, r.runtime.Current(), r.runtime.Verified, r.node.ready)
			}
			if want := []string{install.EventRestarting, install.EventReady}; !slices.Equal(r.node.events, want) {
				t.Errorf("events %v, want %v", r.node.events, want)
			}

			if err := r.Install(t.Context()); err != nil {
				t.Fatalf("again: %v", err)
			}
			if diff := different(installed, snapshot(t, root)); len(diff) > 0 || r.runtime.Restarts != 1 {
				t.Errorf("installing again: %d restarts, changed %v", r.runtime.Restarts, diff)
			}

			if err := os.WriteFile(r.Shim, []byte("shim 2"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := r.Install(t.Context()); err != nil {
				t.Fatalf("a new shim: %v", err)
			}
			var changed []string
			for _, line := range different(installed, snapshot(t, root)) {
				changed = append(changed, strings.Fields(line)[1])
			}
			if want := []string{shimPath, journalPath}; !slices.Equal(changed, want) || r.runtime.Restarts != 1 {
				t.Errorf("a new shim: %d restarts, changed %v, want %v", r.runtime.Restarts, changed, want)
			}

			if err := r.Uninstall(t.Context()); err != nil {
				t.Fatalf("removing: %v", err)
			}
			if diff := different(original, snapshot(t, root)); len(diff) > 0 {
				t.Errorf("after removal the node is different:\n%s", strings.Join(diff, "\n"))
			}
			if r.runtime.Restarts != 2 || !r.runtime.Current() || r.node.ready {
				t.Errorf("after removal restarts %d, current %v, ready %v; want 2, true, false", r.runtime.Restarts, r.runtime.Current(), r.node.ready)
			}
		})
	}
}

// golden compares what was put on a node with what it should be.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".want")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("what was put on the node (-want +got), -update writes it anew:\n%s", diff)
	}
}

// killed is what a test throws where the installer is killed.
type killed struct{}

// until runs do and kills it at step n of its changes. It tells whether do got that far.
func (r *rig) until(n int, do func() error) (stopped bool, err error) {
	step := func(string, string) {
		if n--; n == 0 {
			panic(killed{})
		}
	}
	r.tree.Step, r.runtime.Step = step, step
	defer func() {
		r.tree.Step, r.runtime.Step = func(string, string) {}, nil
		if p := recover(); p != nil {
			if _, ok := p.(killed); !ok {
				panic(p)
			}
			stopped = true
		}
	}()
	return false, do()
}

// However far an installation or a removal got, the next of either finishes the job, and
// containerd has read what is there.
func TestKilledAnywhere(t *testing.T) {
	// One of each way to change a node, as each kill is a node of its own.
	for _, fixture := range []string{"containerd-1.6-missing", "containerd-1.7-kubeadm", "containerd-2-noimports", "containerd-2-link", "k3s-1.30", "microk8s-1.28"} {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel() // it mostly waits for the disk
			for _, first := range []string{"install", "upgrade", "uninstall"} {
				for _, next := range []string{"install", "uninstall"} {
					for n, stopped := 1, true; stopped; n++ {
						stopped = killAndRepair(t, fixture, first, next, n)
					}
				}
			}
		})
	}
}

func killAndRepair(t *testing.T, fixture, first, next string, n int) (stopped bool) {
	t.Helper()
	root := plant(t, fixture)
	original := snapshot(t, root)
	r := newRig(t, root, "shim 1")
	fail := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s killed at step %d, then %s: %s: %v", first, n, next, what, err)
		}
	}
	do := func() error { return r.Install(t.Context()) }
	switch first {
	case "upgrade":
		fail("before", do())
		fail("before", os.WriteFile(r.Shim, []byte("shim 2"), 0o755))
		// And the runtime's settings change with it.
		config := filepath.Join(root, "etc/containerd/config.toml")
		if text, err := os.ReadFile(config); err == nil && strings.Contains(string(text), "BinaryName = \"\"") {
			fail("before", os.WriteFile(config, []byte(strings.Replace(string(text), `BinaryName = ""`, `BinaryName = "/sbin/runc"`, 1)), 0o644))
			r.runtime.Start() // by who changed it
			original["/etc/containerd/config.toml"] = strings.Replace(original["/etc/containerd/config.toml"], `BinaryName = ""`, `BinaryName = "/sbin/runc"`, 1)
		}
	case "uninstall":
		fail("before", do())
		do = func() error { return r.Uninstall(t.Context()) }
	}
	stopped, err := r.until(n, do)
	if !stopped {
		fail("not killed", err)
	}
	r.tree.Close() // as a kill does, with the lock
	r.open(t, r.Shim)
	if next == "install" {
		fail("repairing", r.Install(t.Context()))
		if !r.node.ready || !r.runtime.Current() || !r.runtime.Known(r.runtime.Load()) {
			t.Fatalf("%s killed at step %d: after installing, ready %v, containerd current %v", first, n, r.node.ready, r.runtime.Current())
		}
		again := snapshot(t, root)
		restarts := r.runtime.Restarts
		fail("again", r.Install(t.Context()))
		if diff := different(again, snapshot(t, root)); len(diff) > 0 || r.runtime.Restarts != restarts {
			t.Fatalf("%s killed at step %d: a second installation changed %v", first, n, diff)
		}
	}
	fail("removing", r.Uninstall(t.Context()))
	if diff := different(original, snapshot(t, root)); len(diff) > 0 {
		t.Fatalf("%s killed at step %d, then %s: the node is different:\n%s", first, n, next, strings.Join(diff, "\n"))
	}
	if !r.runtime.Current() {
		t.Fatalf("%s killed at step %d, then %s: containerd has not read its configuration", first, n, next)
	}
	return stopped
}

func TestRuntimeFake(t *testing.T) {
	known := false
	r := &installtest.Runtime{
		Load:  func() string { return map[bool]string{true: "known"}[known] },
		Known: func(loaded string) bool { return loaded == "known" },
	}
	r.Start()
	installtest.TestRuntime(t, r, func() { known = true })
}
