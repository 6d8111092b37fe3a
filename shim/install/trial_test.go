package install_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/install"
)

var errNoSandbox = errors.New("no sandbox")

// edits are what administrators do to the configurations of nodes, so that an update of
// the shim changes Headstart's part of them, too.
var edits = map[string]struct{ file, old, new string }{
	"containerd-1.7-kubeadm": {plainConfig, "privileged_without_host_devices = false", "privileged_without_host_devices = true"},
	"containerd-2-noimports": {plainConfig, "[plugins.'io.containerd.cri.v1.runtime'.cni]",
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\n  runtime_type = 'io.containerd.runc.v2'\n  snapshotter = 'native'\n" +
			"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]\n  SystemdCgroup = true\n[plugins.'io.containerd.cri.v1.runtime'.cni]"},
	// The runtime moves from the template to a directory.
	"k3s-1.33": {"var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 3\n",
		"version = 3\nimports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n"},
}

// before an update, a node has a version that works, and a configuration that has been
// edited since. No sandbox runs with the update.
func beforeUpdate(t *testing.T, fixture string) *rig {
	t.Helper()
	r := newRig(t, plant(t, fixture), "shim 1")
	r.Version = "1"
	r.install(t)
	e := edits[fixture]
	text := r.read(t, e.file)
	edited := strings.Replace(text, e.old, e.new, 1)
	if edited == text {
		t.Fatal("the edit changes nothing")
	}
	r.write(t, e.file, edited)
	r.runtime.Start() // by who edited it
	r.update(t, "2", errNoSandbox)
	return r
}

// standing is all that is on the node but its journal and directories: those that an
// installation has made stay, empty, until Headstart is removed.
func (r *rig) standing(t *testing.T) map[string]string {
	t.Helper()
	all := snapshot(t, r.root)
	maps.DeleteFunc(all, func(p, what string) bool { return p == journalPath || strings.HasPrefix(what, "d") })
	return all
}

// wantFirst checks that the version that worked is there, and nothing else.
func (r *rig) wantFirst(t *testing.T, before map[string]string) {
	t.Helper()
	if diff := different(before, r.standing(t)); len(diff) > 0 {
		t.Errorf("the node is different:\n%s", strings.Join(diff, "\n"))
	}
	s := r.status(t)
	for _, f := range s.Files {
		if f.State != install.InPlace && !strings.HasPrefix(f.Path, "/etc/containerd/config") { // which was edited
			t.Errorf("%s is %s", f.Path, f.State)
		}
	}
	if s.Version != "1" || s.RestartPending || !r.runtime.Current() {
		t.Errorf("version %s, pending restart %v, containerd current %v; want 1, false, true", s.Version, s.RestartPending, r.runtime.Current())
	}
}

// wantGone removes Headstart, and checks that nothing is left of it.
func (r *rig) wantGone(t *testing.T) {
	t.Helper()
	r.uninstall(t)
	if _, err := os.Stat(filepath.Join(r.root, "opt/headstart")); err == nil {
		t.Error("/opt/headstart is left")
	}
	if left := configuration(t, r.root); strings.Contains(left, "headstart") {
		t.Errorf("something is left in:\n%s", left)
	}
}

// update has the next installation be of another version.
func (r *rig) update(t *testing.T, version string, verifies error) {
	t.Helper()
	r.Version, r.runtime.BrokenVerify = version, verifies
	if err := os.WriteFile(r.Shim, []byte("shim "+version), 0o755); err != nil {
		t.Fatal(err)
	}
}

// An update with which no sandbox runs leaves the version that worked, as it was.
func TestAFailedUpdatePutsThePreviousVersionBack(t *testing.T) {
	for fixture := range edits {
		t.Run(fixture, func(t *testing.T) {
			r := beforeUpdate(t, fixture)
			before, started := r.standing(t), r.runtime.Restarts
			for range 2 {
				err := r.Install(t.Context())
				if !errors.Is(err, errNoSandbox) || !strings.Contains(err.Error(), "version 1, which was there before, has been put back") || r.node.ready {
					t.Errorf("error %v, ready %v; want one that says what was put back, and false", err, r.node.ready)
				}
				r.wantFirst(t, before)
				if started += 2; r.runtime.Restarts != started {
					t.Errorf("%d restarts, want %d", r.runtime.Restarts, started)
				}
			}
			r.update(t, "3", nil)
			r.install(t)
			if got := r.read(t, shimPath); got != "shim 3" || !r.node.ready || r.status(t).Version != "3" {
				t.Errorf("after an update that works the shim is %q, ready %v", got, r.node.ready)
			}
			r.wantGone(t)
		})
	}
}

// Only the shim is new, as with most updates: containerd is left alone.
func TestAFailedShimIsPutBackWithoutRestart(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim 1")
	r.install(t)
	before := snapshot(t, r.root)
	r.update(t, "2", errNoSandbox)
	if err := r.Install(t.Context()); !errors.Is(err, errNoSandbox) {
		t.Errorf("error %v", err)
	}
	if diff := different(before, snapshot(t, r.root)); len(diff) > 0 || r.runtime.Restarts != 1 {
		t.Errorf("%d restarts, different: %v", r.runtime.Restarts, diff)
	}
}

// There is nothing to go back to: what is there stays for who looks for the reason.
func TestAFailedFirstInstallationStays(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim 1")
	for _, version := range []string{"1", "2"} {
		r.update(t, version, errNoSandbox)
		if err := r.Install(t.Context()); !errors.Is(err, errNoSandbox) || strings.Contains(err.Error(), "put back") || r.node.ready {
			t.Errorf("error %v, ready %v", err, r.node.ready)
		}
		if got := r.read(t, shimPath); got != "shim "+version || r.runtime.Restarts != 1 {
			t.Errorf("the shim is %q, %d restarts", got, r.runtime.Restarts)
		}
	}
}

// What somebody has broken is not put back.
func TestABrokenShimIsNotPutBack(t *testing.T) {
	for name, spoil := range map[string]func(*testing.T, *rig){
		"changed": func(t *testing.T, r *rig) { r.write(t, shimPath, "broken") },
		"removed": func(t *testing.T, r *rig) {
			if err := os.Remove(filepath.Join(r.root, shimPath)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim 1")
			r.install(t)
			spoil(t, r)
			r.runtime.BrokenVerify = errNoSandbox
			if err := r.Install(t.Context()); !errors.Is(err, errNoSandbox) || r.read(t, shimPath) != "shim 1" {
				t.Errorf("error %v, the shim is %q", err, r.read(t, shimPath))
			}
		})
	}
}

// Somebody edits the configuration while the sandbox runs. The edit stays, and so the
// part of ours beside it; all else is put back.
func TestAnEditMeanwhileStays(t *testing.T) {
	r := beforeUpdate(t, "containerd-1.7-kubeadm")
	const edit = "# meanwhile\n"
	known := r.runtime.Known
	r.runtime.Known = func(loaded string) bool {
		if text := r.read(t, plainConfig); !strings.Contains(text, edit) {
			r.write(t, plainConfig, text+edit)
		}
		return known(loaded)
	}
	if err := r.Install(t.Context()); !errors.Is(err, errNoSandbox) || !strings.Contains(err.Error(), "/"+plainConfig+" was changed by somebody else meanwhile") {
		t.Errorf("error %v, want one that names the file", err)
	}
	if !strings.HasSuffix(r.read(t, plainConfig), edit) || r.read(t, shimPath) != "shim 1" {
		t.Errorf("the shim is %q, the configuration\n%s", r.read(t, shimPath), r.read(t, plainConfig))
	}
	r.update(t, "3", nil)
	r.install(t)
	if !r.node.ready || !strings.Contains(r.read(t, plainConfig), edit) {
		t.Error("the next installation did not mend it, or lost the edit")
	}
}

// The installer is told to end while its sandbox runs: the files are put back at once, and
// containerd is restarted by the next installation.
func TestAnUpdateThatIsInterruptedIsPutBack(t *testing.T) {
	const fixture = "containerd-1.7-kubeadm"
	r := beforeUpdate(t, fixture)
	before := r.standing(t)
	ctx, cancel := context.WithCancel(t.Context())
	known := r.runtime.Known
	r.runtime.Known = func(loaded string) bool { cancel(); return known(loaded) }
	if err := r.Install(ctx); !errors.Is(err, errNoSandbox) {
		t.Errorf("error %v", err)
	}
	if diff := different(before, r.standing(t)); len(diff) > 0 || !r.status(t).RestartPending {
		t.Errorf("status %+v, the node is different: %v", r.status(t), diff)
	}
	// The configuration is again as version 1 had planned it.
	e := edits[fixture]
	r.write(t, e.file, strings.Replace(r.read(t, e.file), e.new, e.old, 1))
	r.update(t, "1", nil)
	r.install(t)
	if !r.runtime.Current() || !r.node.ready || r.read(t, shimPath) != "shim 1" {
		t.Errorf("containerd current %v, ready %v", r.runtime.Current(), r.node.ready)
	}
}

// However far a failing update got: the next one that fails ends with the version that
// worked, one that works is ready, and a removal leaves nothing.
func TestAFailedUpdateKilledAnywhere(t *testing.T) {
	for fixture := range edits {
		t.Run(fixture, func(t *testing.T) {
			t.Parallel() // it mostly waits for the disk
			for _, next := range []string{"fail", "work", "uninstall"} {
				for n, stopped := 1, true; stopped; n++ {
					r := beforeUpdate(t, fixture)
					before := r.standing(t)
					settings := r.Settings
					stopped, _ = r.until(n, func() error { return r.Install(t.Context()) })
					r.tree.Close()
					r.open(t, r.Shim)
					r.Settings = settings
					switch next {
					case "fail":
						if err := r.Install(t.Context()); !errors.Is(err, errNoSandbox) {
							t.Fatalf("killed at step %d: error %v", n, err)
						}
						if r.wantFirst(t, before); t.Failed() {
							t.Fatalf("killed at step %d", n)
						}
						r.wantGone(t)
					case "work":
						r.update(t, "3", nil)
						r.install(t)
						if s := r.status(t); !r.node.ready || !s.Sound() || r.read(t, shimPath) != "shim 3" {
							t.Fatalf("killed at step %d: ready %v, status %+v", n, r.node.ready, s)
						}
					case "uninstall":
						if r.wantGone(t); t.Failed() {
							t.Fatalf("killed at step %d", n)
						}
					}
					if !r.runtime.Current() {
						t.Fatalf("killed at step %d, then %s: containerd has not read its configuration", n, next)
					}
				}
			}
		})
	}
}
