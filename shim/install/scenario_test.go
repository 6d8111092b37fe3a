package install_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

const plainConfig = "etc/containerd/config.toml"

func (r *rig) read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (r *rig) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.root, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) install(t *testing.T) {
	t.Helper()
	if err := r.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) uninstall(t *testing.T) {
	t.Helper()
	if err := r.Uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A node that cannot have the runtime stays as it is, and its label and an event say so.
func TestAnUnsuitedNodeStaysAsItIs(t *testing.T) {
	root := plant(t, "containerd-2-confd")
	r := newRig(t, root, "shim")
	r.write(t, "etc/os-release", "NAME=\"Talos\"\nID=talos\n")
	before := snapshot(t, root)
	r.node.ready = true // as an image of the node may have it
	err := r.Install(t.Context())
	if _, is := errors.AsType[*layout.Unsuited](err); !is {
		t.Fatalf("got %v", err)
	}
	if d := cmp.Diff(before, snapshot(t, root)); d != "" {
		t.Errorf("-before +after\n%s", d)
	}
	if d := cmp.Diff([]string{install.EventUnsuited}, r.node.events); r.node.ready || d != "" {
		t.Errorf("the node is %+v: %s", r.node, d)
	}
}

// An administrator edits the file that has our part in it.
func TestWhatOthersChangedStays(t *testing.T) {
	for name, again := range map[string]bool{"then removed": false, "then installed again, then removed": true} {
		t.Run(name, func(t *testing.T) {
			root := plant(t, "containerd-1.7-kubeadm")
			r := newRig(t, root, "shim")
			before := r.read(t, plainConfig)
			r.install(t)
			r.write(t, plainConfig, strings.Replace(r.read(t, plainConfig), "oom_score = 0", "oom_score = -500", 1)+"# a last word\n")
			if again {
				restarts := r.runtime.Restarts
				r.install(t)
				if r.runtime.Restarts != restarts {
					t.Error("containerd was restarted for a change of somebody else's")
				}
			}
			r.uninstall(t)
			want := strings.Replace(before, "oom_score = 0", "oom_score = -500", 1) + "# a last word\n"
			if got := r.read(t, plainConfig); got != want {
				t.Errorf("left is %q, want %q", got, want)
			}
			if _, err := os.Stat(filepath.Join(root, "opt/headstart")); err == nil {
				t.Error("/opt/headstart is left")
			}
		})
	}
}

func TestAFileThatOthersRemovedStaysAway(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.install(t)
	if err := os.Remove(filepath.Join(r.root, plainConfig)); err != nil {
		t.Fatal(err)
	}
	r.uninstall(t)
	if _, err := os.Stat(filepath.Join(r.root, plainConfig)); err == nil {
		t.Error("the file is back")
	}
}

// Others put something into directories that were ours alone.
func TestDirectoriesInUseStay(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.6-missing"), "shim")
	r.install(t)
	if err := os.MkdirAll(filepath.Join(r.root, "opt/other"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.write(t, "etc/containerd/other.toml", "version = 2\n")
	r.uninstall(t)
	for p, want := range map[string]bool{"opt/other": true, "opt/headstart": false, "etc/containerd/other.toml": true, plainConfig: false} {
		if _, err := os.Stat(filepath.Join(r.root, p)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", p, err == nil, want)
		}
	}
}

// k3s is upgraded to a version that imports a directory: our template would go on, but
// nothing of it may be left where it is no longer wanted.
func TestTheLayoutChanges(t *testing.T) {
	root := plant(t, "k3s-1.33")
	r := newRig(t, root, "shim")
	before := snapshot(t, root)
	const dir = "var/lib/rancher/k3s/agent/etc/containerd/"
	r.install(t)
	generated := r.read(t, dir+"config.toml")
	r.write(t, dir+"config.toml", strings.Replace(generated, "version = 3\n", "version = 3\nimports = [\"/"+dir+"config-v3.toml.d/*.toml\"]\n", 1))
	r.install(t)
	if _, err := os.Stat(filepath.Join(root, dir, "config-v3.toml.tmpl")); err == nil {
		t.Error("the template is left")
	}
	if !r.runtime.Current() {
		t.Error("containerd has not read the change")
	}
	r.uninstall(t)
	r.write(t, dir+"config.toml", generated)
	if err := os.Chmod(filepath.Join(root, dir+"config.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if diff := different(before, snapshot(t, root)); len(diff) > 0 {
		t.Errorf("different: %v", diff)
	}
}

// Without its journal the installer knows its part by the marks.
func TestALostJournal(t *testing.T) {
	for _, fixture := range []string{"containerd-1.7-kubeadm", "containerd-2-noimports", "k3s-1.30"} {
		root := plant(t, fixture)
		before := snapshot(t, root)
		r := newRig(t, root, "shim")
		r.install(t)
		if err := os.RemoveAll(filepath.Join(root, "opt/headstart")); err != nil {
			t.Fatal(err)
		}
		r.install(t)
		if r.runtime.Restarts != 1 {
			t.Errorf("%s: %d restarts for an unchanged configuration", fixture, r.runtime.Restarts)
		}
		r.uninstall(t)
		for _, line := range different(before, snapshot(t, root)) {
			if !strings.Contains(line, "conf.d drwx") { // who made the directory is lost
				t.Errorf("%s: different: %s", fixture, line)
			}
		}
	}
}

func TestAShimThatWasThereBeforeComesBack(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(shimPath)), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, root, "shim")
	r.write(t, shimPath, "another")
	before := snapshot(t, root)
	r.install(t)
	r.uninstall(t)
	if diff := different(before, snapshot(t, root)); len(diff) > 0 {
		t.Errorf("different: %v", diff)
	}
}

// Without leave to restart, containerd is left alone, and the node is not ready.
func TestNoRestartWithoutLeave(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.Restart = false
	r.install(t)
	if r.runtime.Restarts != 0 || r.node.ready || r.runtime.Verified != 0 {
		t.Errorf("restarts %d, ready %v, verified %d; want 0, false, 0", r.runtime.Restarts, r.node.ready, r.runtime.Verified)
	}
	status := r.status(t)
	if !status.RestartPending || status.Sound() {
		t.Errorf("status %+v, want a pending restart", status)
	}
	r.runtime.Start() // somebody restarts it
	r.install(t)
	if r.runtime.Restarts != 0 || !r.node.ready || r.status(t).RestartPending {
		t.Errorf("restarts %d, ready %v, status %+v; want 0, true, none pending", r.runtime.Restarts, r.node.ready, r.status(t))
	}
}

func (r *rig) status(t *testing.T) *install.Status {
	t.Helper()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestANodeIsReadyOnlyAfterASandboxRan(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.install(t)
	if !r.runtime.Systemd {
		t.Error("systemd's cgroups of the configuration were not told to who verifies")
	}
	broken := errors.New("no sandbox")
	r.runtime.BrokenVerify = broken
	if err := r.Install(t.Context()); !errors.Is(err, broken) || r.node.ready {
		t.Errorf("error %v, ready %v; want %v, false", err, r.node.ready, broken)
	}
}

// A containerd that does not come back with our configuration gets its own back.
func TestAFailedRestartPutsTheConfigurationBack(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	r := newRig(t, root, "shim")
	before := configuration(t, root)
	r.runtime.BrokenRestart = errors.New("it does not start")
	if err := r.Install(t.Context()); !errors.Is(err, r.runtime.BrokenRestart) || r.node.ready {
		t.Errorf("error %v, ready %v", err, r.node.ready)
	}
	if configuration(t, root) != before {
		t.Error("the configuration is not as before")
	}
	r.runtime.BrokenRestart = nil
	r.install(t)
	if !r.node.ready || !r.runtime.Current() {
		t.Error("the next installation did not mend it")
	}
}

// It started while its configuration was written, or somebody put an old one back.
func TestAContainerdThatMissedTheChangeIsRestarted(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	r := newRig(t, root, "shim")
	known := r.runtime.Known
	r.install(t)
	r.runtime.Known = func(loaded string) bool { return r.runtime.Restarts > 1 && known(loaded) }
	r.install(t)
	if r.runtime.Restarts != 2 || !r.node.ready {
		t.Errorf("restarts %d, ready %v; want 2, true", r.runtime.Restarts, r.node.ready)
	}
}

// An image of a node is prepared where no containerd runs.
func TestWithoutContainerd(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.runtime.Down, r.Verify = true, false
	r.install(t)
	if status := r.status(t); status.Containerd || status.RestartPending || !status.Sound() {
		t.Errorf("status %+v", status)
	}
	r.uninstall(t)
}

func TestPodsKeepTheRuntime(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.install(t)
	r.runtime.Pods = []string{"default/fire-1"}
	if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "default/fire-1") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("error %v, want one that names the pod and the way on", err)
	}
	if r.node.ready {
		t.Error("the node takes further pods")
	}
	r.Force = true
	r.uninstall(t)
	if r.status(t).Installed {
		t.Error("it is still installed")
	}
}

func TestNothingIsInstalled(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	before := snapshot(t, root)
	r := newRig(t, root, "shim")
	r.uninstall(t)
	if diff := different(before, snapshot(t, root)); len(diff) > 0 || r.runtime.Restarts != 0 || r.status(t).Installed {
		t.Errorf("changed %v, %d restarts", diff, r.runtime.Restarts)
	}
}

// A refusal leaves no trace.
func TestARefusedNodeIsUntouched(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	r := newRig(t, root, "shim")
	r.write(t, plainConfig, "disabled_plugins = [\"cri\"]\n")
	before := snapshot(t, root)
	err := r.Install(t.Context())
	if _, ok := errors.AsType[*layout.Refusal](err); !ok {
		t.Errorf("error %v, want a refusal", err)
	}
	if diff := different(before, snapshot(t, root)); len(diff) > 0 {
		t.Errorf("changed: %v", diff)
	}
}

// The configuration is where containerd's command line says.
func TestTheConfigurationOfTheCommandLine(t *testing.T) {
	root := plant(t, "containerd-1.7-kubeadm")
	r := newRig(t, root, "shim")
	r.runtime.Config = "/etc/containerd/other.toml"
	r.write(t, "etc/containerd/other.toml", "version = 2\n")
	before := r.read(t, plainConfig)
	r.install(t)
	if !strings.Contains(r.read(t, "etc/containerd/other.toml"), "runtimes.headstart]") || r.read(t, plainConfig) != before {
		t.Error("the wrong file was changed")
	}
}

// The file at the usual place is another containerd's, or nobody's: Docker's package has one
// without CRI. It says nothing about a containerd that reads another.
func TestARefusedDefaultIsOfNoInterestToAContainerdThatReadsAnother(t *testing.T) {
	for name, text := range map[string]string{"without CRI": "disabled_plugins = [\"cri\"]\n", "no TOML": "version = \n"} {
		for config, want := range map[string]bool{"/etc/containerd/other.toml": true, "": false, "/" + plainConfig: false} {
			t.Run(name+", "+config, func(t *testing.T) {
				r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
				var asked string
				r.Connect = func(socket string) install.Runtime { asked = socket; return r.runtime }
				r.runtime.Config = config
				r.write(t, "etc/containerd/other.toml", r.read(t, plainConfig))
				r.write(t, plainConfig, text)
				r.runtime.Start()
				before := snapshot(t, r.root)
				err := r.Install(t.Context())
				if _, refused := errors.AsType[*layout.Refusal](err); refused == want || !want != (err != nil) {
					t.Fatalf("error %v, want a refusal: %v", err, !want)
				}
				if asked != filepath.Join(r.root, "run/containerd/containerd.sock") {
					t.Errorf("asked at %s", asked)
				}
				if !want {
					if diff := different(before, snapshot(t, r.root)); len(diff) > 0 {
						t.Errorf("a refused node was changed: %v", diff)
					}
					return
				}
				if !strings.Contains(r.read(t, "etc/containerd/other.toml"), "runtimes.headstart]") || r.read(t, plainConfig) != text || !r.node.ready {
					t.Errorf("the wrong file was changed; ready %v", r.node.ready)
				}
				r.uninstall(t)
				if diff := different(before, snapshot(t, r.root)); len(diff) > 0 {
					t.Errorf("after removal, different: %v", diff)
				}
			})
		}
	}
}

// Nobody can be asked, or it is the operator's word.
func TestARefusedDefaultWithoutAnotherWord(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"containerd does not run": func(r *rig) { r.runtime.Down = true },
		"--config names it":       func(r *rig) { r.Config = "/" + plainConfig },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
			r.runtime.Config = "/etc/containerd/other.toml"
			r.write(t, plainConfig, "disabled_plugins = [\"cri\"]\n")
			prepare(r)
			err := r.Install(t.Context())
			if _, refused := errors.AsType[*layout.Refusal](err); !refused {
				t.Errorf("error %v, want a refusal", err)
			}
		})
	}
}

func TestStatusSaysWhatOthersDid(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.install(t)
	if !r.status(t).Sound() {
		t.Errorf("status %+v, want a sound one", r.status(t))
	}
	r.write(t, shimPath, "broken")
	if err := os.Remove(filepath.Join(r.root, plainConfig)); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, f := range r.status(t).Files {
		states[f.Path] = f.State
	}
	if states[shimPath] != install.Changed || states["/"+plainConfig] != install.Missing || r.status(t).Sound() {
		t.Errorf("states %v", states)
	}
}

func TestAnotherInstallerIsWaitedFor(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	other, err := tree.Open(r.root)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unlock, err := other.Lock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Install(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want %v", err, context.DeadlineExceeded)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	r.install(t)
}

func TestANewerJournalIsNotTouched(t *testing.T) {
	r := newRig(t, plant(t, "containerd-1.7-kubeadm"), "shim")
	r.install(t)
	r.write(t, journalPath, strings.Replace(r.read(t, journalPath), `"format": 1`, `"format": 99`, 1))
	if err := r.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("error %v", err)
	}
}
