//go:build integration

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// volumesDaemon has a volume for each sandbox.
type volumesDaemon struct {
	nodeapi.UnimplementedSandboxesServer
	files string
}

func (volumesDaemon) Describe(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	return &nodeapi.DescribeResponse{}, nil
}

func (volumesDaemon) Gone(context.Context, *nodeapi.GoneRequest) (*nodeapi.GoneResponse, error) {
	return &nodeapi.GoneResponse{}, nil
}

func (d volumesDaemon) Mounts(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
	return &nodeapi.MountsResponse{Mounts: []*nodeapi.Mount{
		{Source: d.files, Destination: "/headstart/volumes/models", ReadOnly: true}}}, nil
}

// The pod's emptyDir is where the probe looks; the volume takes its place, and is at its own path besides.
func TestSandboxSeesVolumes(t *testing.T) {
	n := newNode(t)
	files := n.path("sandboxes/volumes/media/" + strings.Repeat("0f", 32) + "/files")
	empty := n.path("kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/models")
	rootfs := n.path("rootfs")
	if err := errors.Join(os.MkdirAll(files+"/7b", 0o755), os.WriteFile(files+"/weights", []byte("frames"), 0o444),
		os.MkdirAll(empty, 0o755), os.MkdirAll(rootfs, 0o755), os.Link(n.probe, filepath.Join(rootfs, "probe"))); err != nil {
		t.Fatal(err)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, volumesDaemon{files: files}) })
	s := n.sandbox(t, "ours", containerd.WithNewSpec(oci.WithRootFSPath(rootfs), oci.WithProcessArgs("/probe"),
		oci.WithMounts([]specs.Mount{{Destination: "/headstart/input", Type: "bind", Source: empty, Options: []string{"rbind", "rprivate", "rw"}}}),
		oci.WithAnnotations(map[string]string{"headstart.dev/volumes": "models=s3://models/llama/",
			"io.kubernetes.cri.sandbox-namespace": "media", "io.kubernetes.cri.sandbox-name": "chat-x", "io.kubernetes.cri.sandbox-uid": "u-1"})))
	defer s.remove(t)
	v := s.view(t)
	if d := cmp.Diff(map[string]string{"weights": "frames"}, without(v.Files, "7b")); d != "" || !strings.Contains(v.Write, "read-only file system") {
		t.Errorf("writing says %q, files (-want +got):\n%s", v.Write, d)
	}
	if _, err := os.Stat(filepath.Join(rootfs, "headstart/volumes/models")); err != nil {
		t.Errorf("it is not at its own path: %v", err)
	}
	if left := mounts(t, n.path("state/io.containerd.runtime.v2.task")); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// without is the files but one.
func without(files map[string]string, name string) map[string]string {
	delete(files, name)
	return files
}
