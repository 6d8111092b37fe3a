//go:build integration

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// An input that is buffered in memory is a file in the sandbox as any other.
func TestSandboxSeesInputsInMemory(t *testing.T) {
	n := newNode(t)
	input, tmpfs := n.path("sandboxes/ours"), n.path("memory")
	for _, dir := range []string{input, tmpfs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("headstart", tmpfs, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Fatalf("mounting, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(tmpfs, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	memory, err := staging.OpenMemory(tmpfs + "/instances")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if err := memory.Make("ours"); err != nil {
		t.Fatal(err)
	}
	to := &staging.Dir{}
	if to.Input, err = os.OpenRoot(input); err != nil {
		t.Fatal(err)
	}
	if to.Memory, err = memory.Open("ours"); err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	n.serve(t, "node.sock", func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{ours: &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{
			{Source: input, Destination: staging.Mount, ReadOnly: true},
			{Source: memory.Path("ours"), Destination: staging.MemoryMount, ReadOnly: true},
		}}})
	})
	s := n.sandbox(t, "ours")
	defer s.remove(t)
	if v := s.view(t); v.Dir != "" || len(v.Files) != 0 {
		t.Errorf("input directory: %q, %v, want it empty", v.Dir, v.Files)
	}

	b, err := buffer.Open(tmpfs+"/buffer", 1<<19)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e, err := b.Create(strings.Repeat("1", 32), "default/f", 6)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	if _, err := e.WriteAt([]byte("frames"), 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := e.Link(t.Context(), to, "request"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"request": "frames"}, s.look(t).Files); diff != "" {
		t.Errorf("files in the sandbox (-want +got):\n%s", diff)
	}
	if err := to.Remove("request"); err != nil {
		t.Fatal(err)
	}
	if left := s.look(t).Files; len(left) != 0 {
		t.Errorf("after the request there are %v", left)
	}
}
