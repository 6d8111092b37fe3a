//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// containerd from 2.3 on starts its shims by the bootstrap protocol. The test does what
// such a containerd does: parameters on stdin, the answer on stdout, then task.v3.
func TestStartOfNewContainerd(t *testing.T) {
	n := newNode(t) // for its event service
	dir := n.path("bundle")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.json"), []byte("{}"), 0o600),
		unix.Mkfifo(filepath.Join(dir, "log"), 0o700)); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_RDWR, 0) // the shim waits for a reader
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	socketDir := n.path("s")
	input := marshal(t, &bootapi.BootstrapParams{
		InstanceID: "new", Namespace: "test", SocketDir: &socketDir, ContainerdGrpcAddress: n.path("c.sock"),
	})
	cmd := exec.CommandContext(t.Context(), filepath.Join(shimDir(t), "containerd-shim-headstart-v2"),
		"-namespace", "test", "-address", n.path("c.sock"), "-id", "new", "start")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "TTRPC_ADDRESS="+n.path("c.sock.ttrpc"))
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("start: %v\n%s", err, output)
	}
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal(output, &result); err != nil {
		t.Fatalf("answer %q: %v", output, err)
	}
	if result.GetVersion() != 3 || result.GetProtocol() != "ttrpc" || !strings.HasPrefix(result.GetAddress(), "unix://"+socketDir+"/") {
		t.Errorf("answer %v, want task.v3 over ttrpc on a socket in %s", &result, socketDir)
	}
	gone := watch(t, shimOf(t, "new", n.path("c.sock")))

	conn, err := shim.Connect(result.GetAddress(), shim.AnonDialer)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tasks := taskAPI.NewTTRPCTaskClient(client)
	if _, err := tasks.Connect(ctx, &taskAPI.ConnectRequest{ID: "new"}); err != nil {
		t.Errorf("calling task.v3: %v", err)
	}
	if _, err := tasks.Shutdown(ctx, &taskAPI.ShutdownRequest{ID: "new"}); err != nil && !errors.Is(err, ttrpc.ErrClosed) {
		t.Errorf("shutting down: %v", err)
	}
	gone("the shim")
	if left, err := os.ReadDir(socketDir); err != nil || len(left) != 0 {
		t.Errorf("sockets left: %v, %v", left, err)
	}
}
