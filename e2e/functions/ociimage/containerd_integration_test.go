//go:build integration

package ociimage

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startContainerd runs one of its own, and returns a function that runs ctr against it.
// The sockets are in a short path: their names have at most 108 bytes.
func startContainerd(t *testing.T) func(stdin io.Reader, args ...string) (string, error) {
	t.Helper()
	for _, program := range []string{"containerd", "ctr", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test needs root and Debian's packages containerd and runc: %v", err)
		}
	}
	dir, err := os.MkdirTemp("", "ociimage")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "c.sock")
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket)
	configFile := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	daemon := exec.Command("containerd", "--config", configFile)
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("stopping containerd: %v", err)
		}
		if err := daemon.Wait(); err != nil || t.Failed() {
			t.Logf("containerd: %v\n%s", err, &log)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing containerd's directory: %v", err)
		}
	})
	return func(stdin io.Reader, args ...string) (string, error) {
		// Long enough for the daemon to start: ctr waits for its socket.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctr := exec.CommandContext(ctx, "ctr", append([]string{"--address", socket, "--connect-timeout", "30s"}, args...)...)
		var stdout, stderr bytes.Buffer
		ctr.Stdin, ctr.Stdout, ctr.Stderr = stdin, &stdout, &stderr
		if err := ctr.Run(); err != nil {
			return "", fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, &stderr)
		}
		return stdout.String(), nil
	}
}

func TestContainerdRunsTheImage(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "mjpeggen")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../mjpeggen/cmd/mjpeggen")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the image's program: %v\n%s", err, out)
	}
	const ref = "example.test/mjpeggen:v1"
	var archive bytes.Buffer
	err := Build(&archive, Image{
		Ref:        ref,
		Files:      map[string]File{"/bin/mjpeggen": {Source: binary, Mode: 0o755}},
		Entrypoint: []string{"/bin/mjpeggen", "-bytes", "1"},
	})
	if err != nil {
		t.Fatal(err)
	}

	ctr := startContainerd(t)
	if _, err := ctr(&archive, "images", "import", "-"); err != nil {
		t.Fatal(err)
	}
	names, err := ctr(nil, "images", "list", "--quiet")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(names); got != ref {
		t.Errorf("image names %q, want %q", got, ref)
	}
	out, err := ctr(nil, "run", "--rm", ref, "test")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out, "\xff\xd8") || !strings.HasSuffix(out, "\xff\xd9") {
		t.Errorf("the program wrote %d bytes that are no JPEG", len(out))
	}
}
