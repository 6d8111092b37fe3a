package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded"
)

// The child processes' working directory is not to matter.
func TestPathsBecomeAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	relative, absolute, empty := "run", "/run/headstart", ""
	if err := makeAbsolute(&relative, &absolute, &empty); err != nil {
		t.Fatal(err)
	}
	if relative != filepath.Join(dir, "run") || absolute != "/run/headstart" || empty != "" {
		t.Errorf("%q, %q, %q", relative, absolute, empty)
	}
}

// What is suggested finds this platform.
func TestNextNamesTheRunDir(t *testing.T) {
	for dir, want := range map[string]string{
		"/run/headstart": "Next: headstart apply -f service.yaml; headstart status. Logs: /state/log. Ctrl-C ends it.",
		"/run/two":       "Next: headstart apply -f service.yaml --run-dir /run/two; headstart status --run-dir /run/two. Logs: /state/log. Ctrl-C ends it.",
	} {
		if got := next(embedded.Options{RunDir: dir, StateDir: "/state"}); got != want {
			t.Errorf("%s: %s", dir, got)
		}
	}
}

// Nothing is called clean that may not be.
func TestStartError(t *testing.T) {
	canceled := fmt.Errorf("node edge: %w", context.Canceled)
	left := &embedded.CleanupError{Err: errors.New("a mount stays")}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{canceled, "interrupted; nothing is left running"},
		{errors.Join(canceled, left), "node edge: context canceled\na mount stays"},
		{&embedded.CleanupError{Err: canceled}, "node edge: context canceled"},
		{errors.New("no envoy"), "no envoy"},
	} {
		if got := startError(tt.err).Error(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// What is on a node's disk only is not forgotten. Of other nodes nothing is said.
func TestTellLeft(t *testing.T) {
	var out strings.Builder
	tellLeft(&out, nil)
	tellLeft(&out, []embedded.Left{{Node: "node-2", Objects: 3, Bytes: 4_200_000}})
	const want = "· node node-2: objects on its disk that are not in their stores yet: 3 (4.2 MB); " +
		"the next headstart up with this node and --state-dir uploads them\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

func TestUpRefusesValues(t *testing.T) {
	expectError(t, "--buffer-quota -1: use a number of 0 or more", "up", "--buffer-quota", "-1")
	expectError(t, "--buffer-quota-inputs -1: use a number of 0 or more", "up", "--buffer-quota-inputs", "-1")
	expectError(t, "--buffer-redis-limit -1: use a number of 0 or more", "up", "--buffer-redis-limit", "-1")
	expectError(t, "--buffer-redis: use redis://host:port/db, or rediss:// for TLS, and --buffer-redis-secret for credentials", "up", "--buffer-redis", "10.0.0.9")
	expectError(t, "--write-back-limit -1: use a number of bytes, or 0 to have all writes go through", "up", "--write-back-limit", "-1")
	expectError(t, "--gateway-port 0: use a port from 1 to 65535", "up", "--gateway-port", "0")
	expectError(t, `--node-names: "Edge" is not a DNS label: up to 63 lower case letters, digits and dashes, no dash first or last`, "up", "--node-names", "Edge")
}

// An import to a node that is not on this machine fails at once, and prints no data.
func TestImportWithoutContainerd(t *testing.T) {
	dir := serve(t, &backend{status: admin.Status{Nodes: []admin.Node{{Name: "edge"}}}})
	socket := filepath.Join(dir, "edge", "containerd.sock")
	expectError(t, "node edge: connecting to containerd: dial unix "+socket+": connect: no such file or directory",
		"image", "import", "main_test.go", "-o", "json", "--run-dir", dir)
}
