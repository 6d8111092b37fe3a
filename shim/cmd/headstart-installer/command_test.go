package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run executes a command line and returns what it prints.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := command()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

// A node without Kubernetes, on which containerd does not run.
func TestInstallStatusUninstall(t *testing.T) {
	root, shim := t.TempDir(), filepath.Join(t.TempDir(), "shim")
	if err := os.WriteFile(shim, []byte("shim"), 0o755); err != nil {
		t.Fatal(err)
	}
	host := []string{"--host-root", root, "--node-name", ""}
	status := func() (s install.Status, err error) {
		out, err := run(t, append([]string{"status", "-o", "json"}, host...)...)
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return s, err
	}
	if s, err := status(); err == nil || s.Installed {
		t.Errorf("status of an empty node %+v, %v; want an error", s, err)
	}
	if _, err := run(t, append([]string{"install", "--shim", shim, "--layout", "containerd", "--verify=false"}, host...)...); err != nil {
		t.Fatal(err)
	}
	if s, err := status(); err != nil || !s.Installed || s.Layout != "containerd" || len(s.Files) != 2 {
		t.Errorf("status after installing %+v, %v", s, err)
	}
	if out, err := run(t, append([]string{"status"}, host...)...); err != nil || !strings.Contains(out, "in place  /etc/containerd/config.toml") {
		t.Errorf("status as text %q, %v", out, err)
	}
	if _, err := run(t, append([]string{"uninstall"}, host...)...); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestErrorsSayWhichFlagHelps(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no shim":          {[]string{"install", "--host-root", t.TempDir(), "--node-name", ""}, "--shim"},
		"no node":          {[]string{"install", "--host-root", "/nowhere", "--node-name", ""}, "--host-root"},
		"no cluster":       {[]string{"uninstall", "--node-name", "node-1"}, "--node-name"},
		"unknown restart":  {[]string{"install", "--restart", "maybe"}, "auto or never"},
		"unknown output":   {[]string{"status", "-o", "xml"}, "text or json"},
		"nothing detected": {[]string{"install", "--host-root", t.TempDir(), "--node-name", "", "--shim", "/proc/self/exe"}, "--layout"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := run(t, tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// Of a node that cannot have the runtime the pod ends well, with the reason as its last words. Nothing else does.
func TestANodeWithoutTheRuntimeIsNoFailure(t *testing.T) {
	unsuited := &layout.Unsuited{Why: "it is another's"}
	for name, tt := range map[string]struct {
		node string
		err  error
		ends bool
	}{
		"in a cluster":     {"node-1", unsuited, true},
		"by hand":          {"", unsuited, false},
		"and not labelled": {"node-1", errors.Join(unsuited, errors.New("forbidden")), false},
		"something else":   {"node-1", errors.New("no containerd"), false},
		"nothing is wrong": {"node-1", nil, true},
	} {
		o := options{nodeName: tt.node, lastWords: filepath.Join(t.TempDir(), "log")}
		err := o.withoutRuntime(slog.New(slog.DiscardHandler), tt.err)
		said, _ := os.ReadFile(o.lastWords) // there may be none
		if (err == nil) != tt.ends || (len(said) > 0) != (tt.ends && tt.err != nil) || len(said) > 0 && !strings.Contains(string(said), "another's") {
			t.Errorf("%s: %v, last words %q", name, err, said)
		}
	}
}

// The installer's pod stays until it is told to end.
func TestWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := command()
	cmd.SetArgs([]string{"wait"})
	done := make(chan error)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("it ends by itself: %v", err)
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The reference has each command and flag.
func TestTheReferenceIsComplete(t *testing.T) {
	const page = "../../../docs/reference/installer.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(c *cobra.Command) {
		if !strings.Contains(string(text), "`"+c.CommandPath()) {
			t.Errorf("%s lacks %s", page, c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(string(text), "`--"+f.Name+"`") {
				t.Errorf("%s lacks --%s", page, f.Name)
			}
		})
		for _, sub := range c.Commands() {
			check(sub)
		}
	}
	check(command())
	for _, event := range []string{install.EventRestarting, install.EventReady, install.EventRemoved, install.EventUnsuited,
		install.EventWritesLeft} {
		if !strings.Contains(string(text), "`"+event+"`") {
			t.Errorf("%s lacks %s", page, event)
		}
	}
}
