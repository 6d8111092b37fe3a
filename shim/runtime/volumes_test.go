package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const volumesConfig = `{"process":{},"mounts":[{"destination":"/models","type":"bind",` +
	`"source":"/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~empty-dir/models"}],` +
	`"annotations":{"headstart.dev/volumes":"models=s3://models/llama/",` +
	`"io.kubernetes.cri.sandbox-namespace":"media","io.kubernetes.cri.sandbox-name":"chat-x","io.kubernetes.cri.sandbox-uid":"u-1"}}`

var startsLate = strings.Replace(volumesConfig, `"headstart.dev/volumes"`, `"headstart.dev/volumes-late":"start","headstart.dev/volumes"`, 1)

// volumesDaemon is a daemon whose answer to Mounts a test decides.
type volumesDaemon struct {
	daemon
	mounts func(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error)
}

func (d volumesDaemon) Mounts(ctx context.Context, r *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
	return d.mounts(ctx, r)
}

func volumesSocket(t *testing.T, mounts func(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error)) string {
	return serve(t, func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, volumesDaemon{daemon{describe: answer(&nodeapi.DescribeResponse{
			Env: map[string]string{"HEADSTART_INSTANCE": "x"},
		})}, mounts})
	})
}

// files makes a version of a volume of the namespace.
func files(t *testing.T, namespace string) *nodeapi.MountsResponse {
	t.Helper()
	dir := filepath.Join(directory(t), "volumes", namespace, strings.Repeat("0f", 32), "files")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return &nodeapi.MountsResponse{Mounts: []*nodeapi.Mount{{Source: dir, Destination: "/headstart/volumes/models", ReadOnly: true}}}
}

// runc is called when the volumes are there, and has them in both places.
func TestAContainerHasItsVolumes(t *testing.T) {
	inner := &runc{}
	s := newService(inner, volumesSocket(t, func(_ context.Context, r *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
		if len(inner.calls) != 0 || r.GetSandbox() != "a" || r.GetPod().GetUid() != "u-1" {
			t.Errorf("asked for %v after %v", r, inner.calls)
		}
		return files(t, "media"), nil
	}), "test")
	ctx, _ := logged(t)
	if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, volumesConfig)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"destination":"/headstart/volumes/models"`, `"destination":"/models","type":"bind","source":"/tmp`, "HEADSTART_INSTANCE=x"} {
		if !strings.Contains(inner.config, want) {
			t.Errorf("runc saw %s, without %s", inner.config, want)
		}
	}
	s.Close(context.Background())
}

// What follows when volumes cannot be had is the annotation's to say.
func TestAContainerWithoutItsVolumes(t *testing.T) {
	for name, tt := range map[string]struct {
		mounts func(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error)
		why    string
	}{
		"late": {func(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
			return nil, status.Error(codes.FailedPrecondition, "VolumeLate: it has 3 of 7 objects")
		}, "the container's volumes: VolumeLate: it has 3 of 7 objects"},
		"with an older daemon": {nodeapi.UnimplementedSandboxesServer{}.Mounts, "the container's volumes: the node's daemon is older than its shim"},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			s := newService(inner, volumesSocket(t, tt.mounts), "test")
			ctx, _ := logged(t)
			_, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, volumesConfig)})
			if status.Code(err) != codes.FailedPrecondition || !strings.HasSuffix(err.Error(), tt.why) || len(inner.calls) != 0 {
				t.Errorf("got %v; runc was called with %v", err, inner.calls)
			}
			_, err = s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "b", Bundle: bundle(t, startsLate)})
			if err != nil || !strings.Contains(inner.config, "empty-dir/models") || !strings.Contains(inner.config, "HEADSTART_INSTANCE=x") {
				t.Errorf("one that may start late: %v; runc saw %s", err, inner.config)
			}
			s.Close(context.Background())
		})
	}
}

// A container of another namespace's is not made, whatever the daemon says.
func TestAttackOfTheDaemonByAnotherNamespacesVolume(t *testing.T) {
	inner := &runc{}
	s := newService(inner, volumesSocket(t, func(context.Context, *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
		return files(t, "bank"), nil
	}), "test")
	ctx, _ := logged(t)
	_, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, volumesConfig)})
	if status.Code(err) != codes.FailedPrecondition || len(inner.calls) != 0 {
		t.Errorf("got %v; runc was called with %v and saw %s", err, inner.calls, inner.config)
	}
	s.Close(context.Background())
}

// A container that is deleted while it waits is not waited for.
func TestAContainerIsDeletedWhileItWaits(t *testing.T) {
	asked := make(chan struct{})
	s := newService(&runc{}, volumesSocket(t, func(ctx context.Context, _ *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}), "test")
	created := make(chan error)
	go func() {
		_, err := s.Create(context.Background(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, volumesConfig)})
		created <- err
	}()
	<-asked
	if _, err := s.Delete(t.Context(), &taskAPI.DeleteRequest{ID: "a"}); err != nil {
		t.Error(err)
	}
	if err := <-created; status.Code(err) != codes.FailedPrecondition {
		t.Errorf("its creation says %v", err)
	}
	s.Close(context.Background())
}
