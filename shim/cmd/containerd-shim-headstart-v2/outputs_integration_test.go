//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// network is a network namespace of its own, until the test ends.
func network(t *testing.T) string {
	t.Helper()
	c := exec.Command("unshare", "--net", "sleep", "infinity")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	at := fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid)
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(poll) {
		if its, err := os.Readlink(at); err == nil && its != own {
			return at
		}
		if time.Now().After(end) {
			t.Fatal("no network namespace")
		}
	}
}

// A sandbox has a directory in memory for what it makes, as large as its memory. Nothing of it is left when the sandbox ends,
// or when its shim is killed.
func TestSandboxHasADirectoryForOutputs(t *testing.T) {
	const limit = 64 << 20
	for name, end := range map[string]func(t *testing.T, n *node, s *sandbox){
		"removed": func(t *testing.T, _ *node, s *sandbox) { s.remove(t) },
		"its shim is killed": func(t *testing.T, n *node, s *sandbox) {
			ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "test"), patience)
			defer cancel()
			deleted, failed := n.client.Subscribe(ctx, `topic=="/tasks/delete"`)
			if err := unix.Kill(s.shim, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			select {
			case <-deleted:
			case err := <-failed:
				t.Fatal(err)
			}
			if err := s.container.Delete(ctx); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			rootfs := n.path("rootfs")
			if err := errors.Join(os.MkdirAll(rootfs, 0o755), os.Link(n.probe, filepath.Join(rootfs, "probe"))); err != nil {
				t.Fatal(err)
			}
			n.serve(t, "node.sock", func(s *grpc.Server) {
				nodeapi.RegisterSandboxesServer(s, daemon{ours: &nodeapi.DescribeResponse{Endpoints: []*nodeapi.Endpoint{{Name: "s3", Output: true}}}})
			})
			memory := int64(limit)
			s := n.sandbox(t, "ours", containerd.WithNewSpec(oci.WithRootFSPath(rootfs), oci.WithProcessArgs("/probe"),
				oci.WithAnnotations(map[string]string{"headstart.dev/s3": "default"}),
				oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: network(t)}),
				func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
					spec.Linux.Resources.Memory = &specs.LinuxMemory{Limit: &memory}
					return nil
				}))
			if v := s.view(t); !strings.Contains(strings.Join(v.Env, " "), "HEADSTART_OUTPUT_DIR=/headstart/output") {
				t.Errorf("environment %q", v.Env)
			}
			at := fmt.Sprintf("/proc/%d/root/headstart/output", s.task.Pid())
			var fs unix.Statfs_t
			if err := unix.Statfs(at, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC || fs.Blocks*uint64(fs.Bsize) != limit {
				t.Errorf("%+v, %v", fs, err)
			}
			info, err := os.Stat(at)
			if err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if err := os.WriteFile(at+"/made", []byte("it"), 0o644); err != nil {
				t.Error(err)
			}
			tasks := n.path("state/io.containerd.runtime.v2.task")
			if has := mounts(t, tasks); len(has) != 1 || filepath.Base(has[0]) != "headstart-output" {
				t.Errorf("mounts %v", has)
			}
			end(t, n, s)
			if left := mounts(t, tasks); len(left) > 0 {
				t.Errorf("mounts left: %v", left)
			}
		})
	}
}
