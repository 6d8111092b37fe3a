package install_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/install"
)

// daemonLeft is what a daemon that was killed leaves.
var daemonLeft = []string{
	"var/lib/headstart/instances/video_fire-1_0b5f/input/36c2", "var/lib/headstart/buffer/part", "var/lib/headstart/endpoints.pb",
	"var/lib/headstart/endpoints.pb.new", "var/lib/headstart/gateway-keys.json", "run/headstart/node.sock", "run/headstart/descriptors.sock",
	"run/headstart/endpoints.sock", "run/headstart/streams.sock", "run/headstart/otlp.sock",
	"run/headstart/memory/buffer/part", "run/headstart/memory/instances/video_fire-1_0b5f/36c2",
	"run/headstart/gateway/ingress.sock", "run/headstart/gateway/hints.sock", "run/headstart/gateway/gateway.sock", "run/headstart/gateway/route.wasm", "run/headstart/gateway/key",
}

// leave makes files below the node's root.
func (r *rig) leave(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(r.root, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		r.write(t, f, "")
	}
}

// What the daemon made goes with the installation, or without one. What a platform on the
// machine itself has in the same directories stays.
func TestTheDaemonsFilesGo(t *testing.T) {
	platform := []string{"var/lib/headstart/functions.json", "var/lib/headstart/nodes/node-1/instances/a", "run/headstart/lock",
		"run/headstart/admin.sock", "run/headstart/node-1/node.sock"}
	pending := []string{"var/lib/headstart/writes/0b5f.write", "var/lib/headstart/writes/0b5f"}
	for name, c := range map[string]struct {
		installed bool
		others    []string
		stay      []string
	}{
		"installed":                    {installed: true},
		"not installed":                {},
		"beside a platform that runs":  {installed: true, others: platform, stay: append(platform, "run/headstart/otlp.sock")},
		"with what no store has yet":   {installed: true, others: pending, stay: pending},
		"beside a platform that ended": {installed: true, others: platform[:2], stay: platform[:2]},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
			if err := os.MkdirAll(filepath.Join(r.root, "var/lib"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(r.root, "run"), 0o755); err != nil {
				t.Fatal(err)
			}
			r.leave(t, c.others...)
			want := snapshot(t, r.root)
			for _, f := range c.stay {
				r.leave(t, f)
				want = snapshot(t, r.root)
			}
			if c.installed {
				r.install(t)
			}
			r.leave(t, daemonLeft...)
			if err := os.MkdirAll(filepath.Join(r.root, "var/lib/headstart/writes"), 0o700); err != nil {
				t.Fatal(err)
			}
			r.uninstall(t)
			if diff := different(want, snapshot(t, r.root)); len(diff) > 0 {
				t.Errorf("the node is different: %v", diff)
			}
			if told := slices.Contains(r.node.events, install.EventWritesLeft); told != slices.Equal(c.stay, pending) {
				t.Errorf("an event says that writes are left: %v", told)
			}
		})
	}
}

// An operator keeps the state on another disk.
func TestALinkedStateDirectoryStays(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	for _, dir := range []string{"data/headstart", "var/lib", "run"} {
		if err := os.MkdirAll(filepath.Join(r.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/data/headstart", filepath.Join(r.root, "var/lib/headstart")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, r.root)
	r.install(t)
	if err := os.MkdirAll(filepath.Join(r.root, "data/headstart/instances/a"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.uninstall(t)
	if diff := different(before, snapshot(t, r.root)); len(diff) > 0 {
		t.Errorf("the node is different: %v", diff)
	}
}

// A removal that is killed is finished by the next.
func TestRemovalOfTheDaemonsFilesIsFinished(t *testing.T) {
	for n, stopped := 1, true; stopped; n++ {
		r := newRig(t, plant(t, "containerd-2-noimports"), "shim")
		r.install(t)
		r.leave(t, daemonLeft...)
		stopped, _ = r.until(n, func() error { return r.Uninstall(t.Context()) })
		r.tree.Close()
		r.open(t, r.Shim)
		r.uninstall(t)
		for _, dir := range []string{"var/lib/headstart", "run/headstart"} {
			if _, err := os.Lstat(filepath.Join(r.root, dir)); err == nil {
				t.Fatalf("killed at step %d: %s is left", n, dir)
			}
		}
	}
}
