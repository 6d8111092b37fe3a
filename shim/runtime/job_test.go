package runtime_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

const jobConfig = `{"process":{},"annotations":{"headstart.dev/input":"s3://videos/a",` +
	`"io.kubernetes.cri.sandbox-namespace":"default","io.kubernetes.cri.sandbox-name":"digest-x","io.kubernetes.cri.sandbox-uid":"u-1"}}`

// jobDaemon is a daemon whose answer to Stage a test decides.
type jobDaemon struct {
	daemon
	stage func(context.Context, *nodeapi.StageRequest) error
}

func (d jobDaemon) Stage(ctx context.Context, r *nodeapi.StageRequest) (*nodeapi.StageResponse, error) {
	return &nodeapi.StageResponse{}, d.stage(ctx, r)
}

func jobSocket(t *testing.T, stage func(context.Context, *nodeapi.StageRequest) error) string {
	return serve(t, func(s *grpc.Server) {
		nodeapi.RegisterSandboxesServer(s, jobDaemon{daemon{describe: answer(&nodeapi.DescribeResponse{})}, stage})
	})
}

// created is a shim with a job's sandbox in it.
func created(t *testing.T, socket string) (*runtime.Service, *runc) {
	t.Helper()
	inner := &runc{}
	s := newService(inner, socket, "test")
	ctx, _ := logged(t)
	if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, jobConfig)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s, inner
}

// The daemon that is away for a moment is asked again, and the program starts when the input
// is there.
func TestAJobStartsWithItsInput(t *testing.T) {
	var asked atomic.Int32
	s, inner := created(t, jobSocket(t, func(_ context.Context, r *nodeapi.StageRequest) error {
		if r.GetSandbox() != "a" || r.GetPod().GetName() != "digest-x" {
			t.Errorf("asked for %v", r)
		}
		if asked.Add(1) == 1 {
			return status.Error(codes.Unavailable, "it is being started again")
		}
		return nil
	}))
	if _, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(inner.calls, ", "); got != "create a, start a" || asked.Load() != 2 {
		t.Errorf("runc was called with %s; the daemon was asked %d times", got, asked.Load())
	}
}

// Whoever ordered the container reads why it does not start, and nothing of how that was said.
func TestAJobWithoutItsInputDoesNotStart(t *testing.T) {
	s, inner := created(t, jobSocket(t, func(context.Context, *nodeapi.StageRequest) error {
		return status.Error(codes.FailedPrecondition, "InputNotFound: there is no such object")
	}))
	_, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"})
	if p := status.Convert(err); p.Code() != codes.FailedPrecondition || !strings.HasSuffix(
		p.Message(), "the job's input: InputNotFound: there is no such object",
	) {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(inner.calls, ", "); got != "create a" {
		t.Errorf("runc was called with %s", got)
	}
}

// Without a place for the input there is no sandbox at all: the one thing that keeps one from
// being made.
func TestAJobNeedsTheDaemon(t *testing.T) {
	for name, describe := range map[string]func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error){
		"fails": func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
			return nil, status.Error(codes.Internal, "no state")
		},
		"does not know it": func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
			return nil, status.Error(codes.NotFound, "not one of ours")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			s := newService(inner, daemonSocket(t, describe), "test")
			ctx, _ := logged(t)
			_, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, jobConfig)})
			if status.Code(err) != codes.FailedPrecondition || strings.Contains(err.Error(), "/tmp") || len(inner.calls) != 0 {
				t.Errorf("got %v; runc was called with %v", err, inner.calls)
			}
			s.Close(context.Background())
		})
	}
}

// A container that is killed or deleted while it waits is not waited for.
func TestAJobIsEndedWhileItWaits(t *testing.T) {
	for name, end := range map[string]func(*runtime.Service) error{
		"killed": func(s *runtime.Service) error {
			_, err := s.Kill(context.Background(), &taskAPI.KillRequest{ID: "a", Signal: 9})
			return err
		},
		"deleted": func(s *runtime.Service) error {
			_, err := s.Delete(context.Background(), &taskAPI.DeleteRequest{ID: "a"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{})
			s, _ := created(t, jobSocket(t, func(ctx context.Context, _ *nodeapi.StageRequest) error {
				close(asked)
				<-ctx.Done()
				return ctx.Err()
			}))
			started := make(chan error)
			go func() {
				_, err := s.Start(context.Background(), &taskAPI.StartRequest{ID: "a"})
				started <- err
			}()
			<-asked
			if err := end(s); err != nil {
				t.Error(err)
			}
			if err := <-started; err == nil || !strings.Contains(err.Error(), "was ended") {
				t.Errorf("its start says %v", err)
			}
			if name == "killed" {
				if _, err := s.Start(t.Context(), &taskAPI.StartRequest{ID: "a"}); err == nil {
					t.Error("it starts all the same when it is asked again")
				}
			}
		})
	}
}

// The daemon hears from the shim that a container is a job's: nobody else may have told it yet.
func TestTheDaemonHearsOfAJob(t *testing.T) {
	for config, want := range map[string]bool{
		jobConfig: true,
		strings.Replace(jobConfig, `"headstart.dev/input"`, `"headstart.dev/read-by":"socket","headstart.dev/input"`, 1): true,
		`{"process":{}}`: false,
	} {
		asked := make(chan bool, 1)
		s := newService(&runc{}, daemonSocket(t, func(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
			asked <- r.GetJob()
			return &nodeapi.DescribeResponse{}, nil
		}), "test")
		ctx, _ := logged(t)
		if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, config)}); err != nil {
			t.Error(err)
		}
		if got := <-asked; got != want {
			t.Errorf("%s is said to be a job's: %t", config, got)
		}
		s.Close(context.Background())
	}
}
