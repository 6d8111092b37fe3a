//go:build integration

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/google/go-cmp/cmp"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// daemon describes the sandbox named ours.
type daemon struct {
	nodeapi.UnimplementedSandboxesServer
	ours *nodeapi.DescribeResponse
}

func (d daemon) Describe(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	if r.GetSandbox() != "ours" {
		return nil, status.Error(codes.NotFound, "not one of ours")
	}
	return d.ours, nil
}

// spans passes the names of the spans that arrive on.
type spans struct {
	coltracepb.UnimplementedTraceServiceServer
	names chan string
}

func (s spans) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, rs := range r.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				s.names <- fmt.Sprintf("%s of %x", span.GetName(), span.GetTraceId())
			}
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func TestSandboxHasWhatTheDaemonDescribed(t *testing.T) {
	n := newNode(t)
	input := n.path("sandboxes/ours/input")
	if err := os.MkdirAll(input, 0o700); err != nil {
		t.Fatal(err)
	}
	arrived := spans{names: make(chan string, 2)}
	n.serve(t, "otlp.sock", func(s *grpc.Server) { coltracepb.RegisterTraceServiceServer(s, arrived) })
	n.serve(t, "node.sock", func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, daemon{ours: &nodeapi.DescribeResponse{
			Mounts:      []*nodeapi.Mount{{Source: input, Destination: "/headstart/input", ReadOnly: true}},
			Env:         map[string]string{"HEADSTART_INPUT_DIR": "/headstart/input"},
			Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
			OtlpTarget:  "unix:" + n.path("otlp.sock"),
		}})
	})
	s := n.sandbox(t, "ours")
	defer s.remove(t)

	first := s.view(t)
	if !slices.Contains(first.Env, "HEADSTART_INPUT_DIR=/headstart/input") {
		t.Errorf("environment %q lacks the variable", first.Env)
	}
	if first.Dir != "" || len(first.Files) != 0 {
		t.Errorf("input directory: %q, %v, want it empty", first.Dir, first.Files)
	}
	if !strings.Contains(first.Write, "read-only file system") {
		t.Errorf("writing to the input: %q, want a refusal", first.Write)
	}
	// An input is made elsewhere and linked in when it is whole.
	whole := n.path("whole")
	if err := os.WriteFile(whole, []byte("frames"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(whole, filepath.Join(input, "request")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"request": "frames"}, s.look(t).Files); diff != "" {
		t.Errorf("files in the sandbox (-want +got):\n%s", diff)
	}
	for _, name := range []string{"runc.create", "runc.start"} {
		select {
		case got := <-arrived.names:
			if want := name + " of 0af7651916cd43dd8448eb211c80319c"; got != want {
				t.Errorf("span %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("no span %s", name)
		}
	}

	other := n.sandbox(t, "other")
	defer other.remove(t)
	checkUnchanged(t, other.view(t))
}

func TestSandboxWithoutDaemon(t *testing.T) {
	n := newNode(t)
	s := n.sandbox(t, "ours")
	defer s.remove(t)
	checkUnchanged(t, s.view(t))
	n.log.wait(t, "the sandbox starts without what Headstart has for it", "reason=DaemonAway", "sandbox=ours")
}

func checkUnchanged(t *testing.T, v view) {
	t.Helper()
	for _, variable := range v.Env {
		if strings.HasPrefix(variable, "HEADSTART_") {
			t.Errorf("environment has %s", variable)
		}
	}
	if !strings.Contains(v.Dir, "no such file or directory") {
		t.Errorf("/headstart/input: %q, want none", v.Dir)
	}
}

// An image comes in as a file, without a registry, and runs from overlayfs.
func TestSandboxOfAnImportedImage(t *testing.T) {
	n := newNode(t)
	ctx := namespaces.WithNamespace(t.Context(), "test")
	images, err := n.client.Import(ctx, imageLayout(t, "headstart.test/probe:1", n.probe))
	if err != nil {
		t.Fatal(err)
	}
	image := containerd.NewImage(n.client, images[0])
	if err := image.Unpack(ctx, "overlayfs"); err != nil {
		t.Fatal(err)
	}
	s := n.sandbox(t, "image", containerd.WithSnapshotter("overlayfs"), containerd.WithNewSnapshot("image", image),
		containerd.WithNewSpec(oci.WithImageConfig(image)))
	defer s.remove(t)
	if v := s.view(t); !slices.Contains(v.Env, "FROM=image") {
		t.Errorf("environment %q is not the image's", v.Env)
	}
}

// The sandbox outlives its containerd, and the next one finds it.
func TestContainerdRestarts(t *testing.T) {
	n := newNode(t)
	s := n.sandbox(t, "ours")
	s.view(t)
	n.stop(t)
	n.start(t)
	ctx := namespaces.WithNamespace(t.Context(), "test")
	container, err := n.client.LoadContainer(ctx, "ours")
	if err != nil {
		t.Fatal(err)
	}
	found, err := container.Task(ctx, nil)
	if err != nil {
		t.Fatalf("containerd has lost the task: %v\n%s", err, n.log.String())
	}
	if found.Pid() != s.task.Pid() {
		t.Errorf("process %d, want %d", found.Pid(), s.task.Pid())
	}
	s.container, s.task = container, found
	s.remove(t)
}

// A shim that dies takes its sandbox along; containerd cleans up, by the binary's delete
// command, and says so by an event.
func TestShimDies(t *testing.T) {
	n := newNode(t)
	s := n.sandbox(t, "ours")
	s.view(t)
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(t.Context(), "test"), patience)
	defer cancel()
	deleted, failed := n.client.Subscribe(ctx, `topic=="/tasks/delete"`)
	gone := watch(t, int(s.task.Pid()))
	if err := unix.Kill(s.shim, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-deleted:
	case err := <-failed:
		t.Fatalf("waiting for the sandbox's end: %v\n%s", err, n.log.String())
	}
	gone("the sandbox's process")
	if err := s.container.Delete(ctx); err != nil {
		t.Errorf("deleting the container: %v", err)
	}
	if _, err := os.Lstat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the killed shim's socket is left: %v", err)
	}
}
