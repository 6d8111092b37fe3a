// Package installtest has a containerd for tests of the installer, and what any
// install.Runtime has to do.
package installtest

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/headstart-mesh/headstart/shim/install"
)

// Runtime is a containerd that only counts.
type Runtime struct {
	// Load reads the node's configuration, as containerd does when it starts.
	Load func() string
	// Known tells whether a loaded configuration has the runtime.
	Known func(loaded string) bool
	// Config is on its command line.
	Config string
	// Pods use the runtime.
	Pods []string
	// Broken are errors to return.
	BrokenRestart, BrokenVerify error
	// Down is whether none runs.
	Down bool
	// Step is called before and after a restart.
	Step func(what, path string)

	Restarts, Verified int
	// Systemd is what Verify was told last.
	Systemd bool

	starts int
	loaded string
}

// Start has it run.
func (r *Runtime) Start() {
	r.starts++
	r.loaded = r.Load()
}

// Current tells whether it runs with the configuration that there is.
func (r *Runtime) Current() bool { return r.loaded == r.Load() }

// Process is install.Runtime's.
func (r *Runtime) Process(ctx context.Context) (install.Process, error) {
	if err := ctx.Err(); err != nil {
		return install.Process{}, err
	}
	if r.Down {
		return install.Process{}, errors.New("connection refused")
	}
	return install.Process{ID: strconv.Itoa(r.starts), Config: r.Config}, nil
}

// Restart is install.Runtime's.
func (r *Runtime) Restart(_ context.Context, was string, _ bool) error {
	if r.BrokenRestart != nil {
		return r.BrokenRestart
	}
	if was != strconv.Itoa(r.starts) {
		return nil
	}
	if r.Step != nil {
		r.Step("before restart", "")
	}
	r.Start()
	r.Restarts++
	if r.Step != nil {
		r.Step("after restart", "")
	}
	return nil
}

// Verify is install.Runtime's.
func (r *Runtime) Verify(_ context.Context, systemd bool) error {
	r.Systemd = systemd
	if !r.Known(r.loaded) {
		return install.ErrUnknownHandler
	}
	r.Verified++
	return r.BrokenVerify
}

// Sandboxes is install.Runtime's.
func (r *Runtime) Sandboxes(context.Context) ([]string, error) { return r.Pods, nil }

// TestRuntime checks a containerd that runs and does not know the runtime. configure
// changes its configuration so that it would, after a restart.
func TestRuntime(t *testing.T, r install.Runtime, configure func()) {
	t.Helper()
	ctx := t.Context()
	first, err := r.Process(ctx)
	if err != nil || first.ID == "" {
		t.Fatalf("process %+v, %v", first, err)
	}
	if again, err := r.Process(ctx); err != nil || again != first {
		t.Errorf("asked again, process %+v, %v; want %+v", again, err, first)
	}
	if err := r.Verify(ctx, false); !errors.Is(err, install.ErrUnknownHandler) {
		t.Errorf("verifying without the runtime: %v, want %v", err, install.ErrUnknownHandler)
	}
	configure()
	if err := r.Restart(ctx, first.ID, false); err != nil {
		t.Fatalf("restarting: %v", err)
	}
	second, err := r.Process(ctx)
	if err != nil || second.ID == first.ID {
		t.Fatalf("after a restart, process %+v, %v; want another than %+v", second, err, first)
	}
	if err := r.Restart(ctx, first.ID, false); err != nil {
		t.Errorf("restarting what has ended: %v", err)
	}
	if now, err := r.Process(ctx); err != nil || now != second {
		t.Errorf("restarting what has ended changed the process: %+v, %v; want %+v", now, err, second)
	}
	if err := r.Verify(ctx, false); err != nil {
		t.Errorf("verifying: %v", err)
	}
	if pods, err := r.Sandboxes(ctx); err != nil || len(pods) != 0 {
		t.Errorf("sandboxes %v, %v; want none, verification leaves nothing", pods, err)
	}
}
