//go:build integration || cluster

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	pauseImage = "headstart.test/pause:1"
	probeImage = "headstart.test/probe:1"
	// wrapper is what the runtime's options name in runc's place: it proves that they count.
	wrapper = "runc-of-the-options"
)

// podDaemon describes containers of pods, and passes on what it hears.
type podDaemon struct {
	nodeapi.UnimplementedSandboxesServer
	input     string
	described chan *nodeapi.DescribeRequest
	gone      chan *nodeapi.GoneRequest
}

func (d podDaemon) Describe(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	d.described <- r
	return &nodeapi.DescribeResponse{
		Mounts: []*nodeapi.Mount{{Source: d.input, Destination: "/headstart/input", ReadOnly: true}},
		Env:    map[string]string{"HEADSTART_INPUT_DIR": "/headstart/input"},
	}, nil
}

func (d podDaemon) Gone(_ context.Context, r *nodeapi.GoneRequest) (*nodeapi.GoneResponse, error) {
	d.gone <- r
	return &nodeapi.GoneResponse{}, nil
}

// testPod runs a pod as the kubelet does: its container has what the daemon described,
// the pause container starts unasked, and the daemon hears of the end.
func testPod(t *testing.T, m making) {
	n := makeNode(t, m)
	d := podDaemon{
		input: n.path("pods/default_fire-x_u-1/input"), described: make(chan *nodeapi.DescribeRequest, 8),
		gone: make(chan *nodeapi.GoneRequest, 8),
	}
	script := "#!/bin/sh\necho \"$@\" >>" + n.path("runc.log") + "\nexec runc \"$@\"\n"
	if err := errors.Join(os.MkdirAll(d.input, 0o755), os.WriteFile(
		filepath.Join(d.input, "request"), []byte("frames"), 0o444,
	),
		os.WriteFile(n.path(wrapper), []byte(script), 0o755), os.Link(n.probe, n.path("pause"))); err != nil {
		t.Fatal(err)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, d) })
	n.load(t, pauseImage, n.path("pause"))
	n.load(t, probeImage, n.probe)

	kubelet := n.kubelet(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	node := &cri.NamespaceOption{Network: cri.NamespaceMode_NODE}
	pod := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "fire-x", Namespace: "default", Uid: "u-1"},
		LogDirectory: n.path("default_fire-x_u-1"), Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: node}}}
	ran, err := kubelet.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod, RuntimeHandler: "headstart"})
	if err != nil {
		t.Fatalf("RunPodSandbox: %v\n%s", err, n.log.String())
	}
	defer func() {
		_, stopped := kubelet.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: ran.GetPodSandboxId()})
		_, removed := kubelet.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: ran.GetPodSandboxId()})
		if err := errors.Join(stopped, removed); err != nil {
			t.Error(err)
		}
	}()
	if len(d.described) != 0 {
		t.Errorf("the daemon was asked about the pause container: %v", <-d.described)
	}
	made, err := kubelet.CreateContainer(ctx, &cri.CreateContainerRequest{PodSandboxId: ran.GetPodSandboxId(), SandboxConfig: pod, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "fire"}, Image: &cri.ImageSpec{Image: probeImage}, LogPath: "fire.log",
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: node}}}})
	if err != nil {
		t.Fatalf("CreateContainer: %v\n%s", err, n.log.String())
	}
	if _, err := kubelet.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		t.Fatalf("StartContainer: %v\n%s", err, n.log.String())
	}
	of := &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1", Container: "fire"}
	if diff := cmp.Diff(&nodeapi.DescribeRequest{Sandbox: made.GetContainerId(), Pod: of}, <-d.described, protocmp.Transform()); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	v := logged(ctx, t, filepath.Join(pod.GetLogDirectory(), "fire.log"))
	if diff := cmp.Diff(map[string]string{"request": "frames"}, v.Files); diff != "" || !slices.Contains(v.Env, "HEADSTART_INPUT_DIR=/headstart/input") {
		t.Errorf("environment %q, files (-want +got):\n%s", v.Env, diff)
	}
	if !strings.Contains(v.Write, "read-only file system") {
		t.Errorf("writing to the input: %q, want a refusal", v.Write)
	}
	// The daemon is updated meanwhile: the next one has the socket's path.
	next := podDaemon{gone: make(chan *nodeapi.GoneRequest, 8)}
	if err := os.Remove(n.path("node.sock")); err != nil {
		t.Fatal(err)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, next) })
	if _, err := kubelet.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
		t.Errorf("RemoveContainer: %v", err)
	}
	select {
	case gone := <-next.gone:
		if diff := cmp.Diff(&nodeapi.GoneRequest{Sandbox: made.GetContainerId(), Pod: of}, gone, protocmp.Transform()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	case <-time.After(patience):
		t.Errorf("the daemon was not told of the container's end; the one before was told %d times", len(d.gone))
	}
	calls, err := os.ReadFile(n.path("runc.log"))
	if err != nil || strings.Count(string(calls), " create ") != 2 {
		t.Errorf("the runc of the options was called with %q, %v; want two creates", calls, err)
	}
}

// load brings an image of one program to where the kubelet's interface looks for it.
func (n *node) load(t *testing.T, name, program string) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "k8s.io")
	images, err := n.client.Import(ctx, imageLayout(t, name, program))
	if err != nil {
		t.Fatal(err)
	}
	if err := containerd.NewImage(n.client, images[0]).Unpack(ctx, "overlayfs"); err != nil {
		t.Fatal(err)
	}
}

// kubelet returns the kubelet's interface, once the images are known to it.
func (n *node) kubelet(t *testing.T) cri.RuntimeServiceClient {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+n.path("c.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	images := cri.NewImageServiceClient(conn)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		known, err := images.ListImages(t.Context(), &cri.ListImagesRequest{}, grpc.WaitForReady(true))
		if len(known.GetImages()) == 2 {
			return cri.NewRuntimeServiceClient(conn)
		}
		if time.Now().After(deadline) {
			t.Fatalf("containerd knows the images %v, %v\n%s", known, err, n.log.String())
		}
	}
}

// logged returns the first view in a container's log, which is in the kubelet's form: a
// time, a stream, a tag, then the line.
func logged(ctx context.Context, t *testing.T, path string) (v view) {
	t.Helper()
	for ctx.Err() == nil {
		log, _ := os.ReadFile(path) // it may not be there yet
		if line, _, whole := strings.Cut(string(log), "\n"); whole {
			if err := json.Unmarshal([]byte(strings.SplitN(line, " ", 4)[3]), &v); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			return v
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the container logs nothing")
	return v
}
