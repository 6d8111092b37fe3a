//go:build integration || cluster

package containerd_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/containerd"
	"github.com/headstart-mesh/headstart/shim/install/installtest"
	"github.com/headstart-mesh/headstart/shim/install/node"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (m *machine) installer(t *testing.T) *install.Installer {
	t.Helper()
	files, err := tree.Open(m.root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return &install.Installer{
		Settings: install.Settings{Shim: m.shim, Version: "1", Restart: true, Verify: true},
		Tree:     files,
		Connect:  func(socket string) install.Runtime { return containerd.New(socket, patience) },
		Node:     node.None{},
		Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// testLife installs on a machine, upgrades and removes. Pods live through it.
func testLife(t *testing.T, program, config string) {
	m := newMachine(t, program, config)
	i := m.installer(t)
	pod := m.sandbox(t, "runc")
	if err := i.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.started() != 2 || !m.ready(t, pod) {
		t.Errorf("after installing: containerd was started %d times, the pod is ready: %v; want 2, true", m.started(), m.ready(t, pod))
	}
	function := m.sandbox(t, "headstart")
	container := m.container(t, function, "headstart", "main")
	now, err := m.containerd().Process(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.containerd().Restart(t.Context(), now.ID, false); err != nil {
		t.Fatal(err)
	}
	if !m.ready(t, function) || !m.running(t, container) {
		t.Errorf("after a restart of containerd, our sandbox is ready: %v, its container runs: %v", m.ready(t, function), m.running(t, container))
	}
	if err := i.Uninstall(t.Context()); err == nil || !strings.Contains(err.Error(), "default/pod") {
		t.Errorf("removing while a pod needs the runtime: %v, want an error that names it", err)
	}
	if err := i.Install(t.Context()); err != nil {
		t.Fatalf("again: %v", err)
	}

	old, err := os.ReadFile(m.shim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.shim, append(old, "newer"...), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := i.Install(t.Context()); err != nil {
		t.Fatalf("a new shim: %v", err)
	}
	if m.started() != 3 || !m.ready(t, pod) || !m.ready(t, function) || !m.running(t, container) {
		t.Errorf("after an upgrade: containerd was started %d times, pods are ready: %v, %v, the container runs: %v; want 3 and true",
			m.started(), m.ready(t, pod), m.ready(t, function), m.running(t, container))
	}
	// The pod keeps the shim that it has, also for a container that is new, and containerd
	// finds it by the new one's commands.
	late := m.container(t, function, "headstart", "late")
	if now, err = m.containerd().Process(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m.containerd().Restart(t.Context(), now.ID, false); err != nil {
		t.Fatal(err)
	}
	if !m.ready(t, function) || !m.running(t, container) || !m.running(t, late) {
		t.Errorf("after an upgrade and a restart of containerd, our sandbox is ready: %v, its containers run: %v, %v",
			m.ready(t, function), m.running(t, container), m.running(t, late))
	}
	m.kill(t, late)
	if m.running(t, late) || !m.running(t, container) {
		t.Errorf("after stopping one of two containers, they run: %v, %v; want false, true", m.running(t, late), m.running(t, container))
	}

	m.remove(t, function)
	if err := i.Uninstall(t.Context()); err != nil {
		t.Fatalf("removing: %v", err)
	}
	if m.started() != 5 || !m.ready(t, pod) {
		t.Errorf("after removing: containerd was started %d times, the pod is ready: %v; want 5, true", m.started(), m.ready(t, pod))
	}
	if text, err := os.ReadFile(m.path("etc/containerd/config.toml")); err != nil || string(text) != config {
		t.Errorf("after removing the configuration is %q, %v", text, err)
	}
	if err := m.containerd().Verify(t.Context(), false); !errors.Is(err, install.ErrUnknownHandler) {
		t.Errorf("after removing, verifying says %v", err)
	}
	m.remove(t, pod)
}

// testSuite is the suite that the tests' own containerd passes, too.
func testSuite(t *testing.T, program, config string) {
	m := newMachine(t, program, config)
	i := m.installer(t)
	i.Restart = false
	installtest.TestRuntime(t, m.containerd(), func() {
		if err := i.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	status, err := i.Status(t.Context())
	if err != nil || !status.Sound() {
		t.Errorf("status %+v, %v; want a sound one", status, err)
	}
}

// testNotRestarted ends a containerd that nobody starts again.
func testNotRestarted(t *testing.T, program, config string) {
	m := newMachine(t, program, config)
	m.mu.Lock()
	m.stop = true
	m.mu.Unlock()
	i := m.installer(t)
	i.Connect = func(socket string) install.Runtime { return containerd.New(socket, 3*time.Second) }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := i.Install(ctx)
	if err == nil || !strings.Contains(err.Error(), "systemctl start containerd") {
		t.Errorf("error %v, want one that says how to start it", err)
	}
	if text, err := os.ReadFile(m.path("etc/containerd/config.toml")); err != nil || string(text) != config {
		t.Errorf("the configuration is %q, %v; want it put back", text, err)
	}
}

// testFailedUpdate brings a shim that starts nothing: the one before comes back, and
// containerd goes on with it.
func testFailedUpdate(t *testing.T, program, config string) {
	m := newMachine(t, program, config)
	i := m.installer(t)
	if err := i.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	function := m.sandbox(t, "headstart")
	working, err := os.ReadFile(m.shim)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.shim, []byte("#!/bin/sh\necho this is no shim >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	i.Version = "2"
	if err := i.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "this is no shim") || !strings.Contains(err.Error(), "version 1, which was there before, has been put back") {
		t.Errorf("error %v, want one with the shim's words that says what was put back", err)
	}
	if now, err := os.ReadFile(m.path("opt/headstart/bin/containerd-shim-headstart-v2")); err != nil || !bytes.Equal(now, working) {
		t.Errorf("the shim before is not back: %v", err)
	}
	if m.started() != 2 || !m.ready(t, function) {
		t.Errorf("containerd was started %d times, the pod is ready: %v; want 2, true", m.started(), m.ready(t, function))
	}
	late := m.container(t, function, "headstart", "late")
	if !m.running(t, late) {
		t.Error("a container that is new in the pod does not run")
	}
	m.remove(t, function)
	m.remove(t, m.sandbox(t, "headstart"))
	if err := i.Uninstall(t.Context()); err != nil {
		t.Fatalf("removing: %v", err)
	}
}

func testAll(t *testing.T, program, config string) {
	for name, test := range map[string]func(*testing.T, string, string){
		"life": testLife, "suite": testSuite, "not restarted": testNotRestarted, "failed update": testFailedUpdate,
	} {
		t.Run(name, func(t *testing.T) { test(t, program, config) })
	}
}
