package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

const ofPod = `{"annotations":{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-namespace":"default",` +
	`"io.kubernetes.cri.sandbox-name":"fire-x","io.kubernetes.cri.sandbox-uid":"u-1","io.kubernetes.cri.container-name":"fire"}}`

// The daemon hears which pod a container is of, and of the container's end.
func TestContainersOfPods(t *testing.T) {
	pod := &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1", Container: "fire"}
	notOurs := status.Error(codes.NotFound, "not one of ours")
	tests := map[string]struct {
		config, id string
		answer     error
		end        func(context.Context, *runtime.Service) error
		asked      *nodeapi.Pod
		told       bool
	}{
		"deleted": {config: ofPod, id: "a", asked: pod, told: true},
		"not created": {config: ofPod, id: "broken", asked: pod, told: true,
			end: func(context.Context, *runtime.Service) error { return nil }},
		"after a failed answer": {config: ofPod, id: "a", answer: status.Error(codes.Internal, "no state"), asked: pod, told: true},
		"a process in it ends": {config: ofPod, id: "a", asked: pod,
			end: func(ctx context.Context, s *runtime.Service) error {
				_, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: "a", ExecID: "sh"})
				return err
			}},
		"not one of ours": {config: ofPod, id: "a", answer: notOurs, asked: pod},
		"of no pod":       {config: plain, id: "a"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			asked := make(chan *nodeapi.DescribeRequest, 1)
			told := make(chan *nodeapi.GoneRequest, 1)
			d := daemon{gone: told, describe: func(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				asked <- r
				return &nodeapi.DescribeResponse{}, tt.answer
			}}
			s := newService(&runc{}, serve(t, func(g *grpc.Server) { nodeapi.RegisterSandboxesServer(g, d) }), "test")
			ctx, _ := logged(t)
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{
				ID: tt.id, Bundle: bundle(t, tt.config),
			}); (err != nil) != (tt.id == "broken") {
				t.Fatal(err)
			}
			if diff := cmp.Diff(
				&nodeapi.DescribeRequest{Sandbox: tt.id, Pod: tt.asked}, <-asked, protocmp.Transform(),
			); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if tt.end == nil {
				tt.end = func(ctx context.Context, s *runtime.Service) error {
					_, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: tt.id})
					return err
				}
			}
			if err := tt.end(ctx, s); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got *nodeapi.GoneRequest
			select {
			case got = <-told:
			default:
			}
			var want *nodeapi.GoneRequest
			if tt.told {
				want = &nodeapi.GoneRequest{Sandbox: tt.id, Pod: pod}
			}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}

// A function's program goes on until gateways have heard that it ends. Nothing else waits.
func TestAFunctionIsTakenOutBeforeItHearsOfItsEnd(t *testing.T) {
	signal := func(n syscall.Signal) *taskAPI.KillRequest {
		return &taskAPI.KillRequest{ID: "a", Signal: uint32(n)}
	}
	job := strings.Replace(
		ofPod, `{"annotations":{`, `{"annotations":{"headstart.dev/input":"s3://b/k","headstart.dev/read-by":"socket",`,
		1,
	)
	for name, tt := range map[string]struct {
		config  string
		answer  error
		request *taskAPI.KillRequest
		after   time.Duration
	}{
		"function":       {config: ofPod, request: signal(syscall.SIGTERM), after: time.Second},
		"its own signal": {config: ofPod, request: signal(syscall.SIGINT), after: time.Second},
		"killed":         {config: ofPod, request: signal(syscall.SIGKILL)},
		"a process in it": {config: ofPod, request: &taskAPI.KillRequest{
			ID: "a", ExecID: "sh", Signal: uint32(syscall.SIGTERM),
		}},
		"job":              {config: job, request: signal(syscall.SIGTERM)},
		"not one of ours":  {config: ofPod, answer: status.Error(codes.NotFound, "not one of ours"), request: signal(syscall.SIGTERM)},
		"one of no pod":    {config: plain, request: signal(syscall.SIGTERM)},
		"the daemon's own": {config: `{"process":{}}`, request: signal(syscall.SIGTERM)},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			s := newService(inner, daemonSocket(t, func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				return &nodeapi.DescribeResponse{}, tt.answer
			}), "test")
			ctx, _ := logged(t)
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, tt.config)}); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				for _, after := range []time.Duration{tt.after, 0} { // it is asked once more
					began := time.Now()
					if _, err := s.Kill(t.Context(), tt.request); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took != after {
						t.Errorf("it hears of it after %v", took)
					}
				}
			})
			want := fmt.Sprintf("signal %d to a%s", tt.request.Signal, tt.request.ExecID)
			if diff := cmp.Diff([]string{"create a", want, want}, inner.calls); diff != "" {
				t.Errorf("runc was called (-want +got):\n%s", diff)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// SIGKILL comes at once also to a program whose SIGTERM waits.
func TestAFunctionIsKilledWhileItsEndWaits(t *testing.T) {
	inner := &runc{}
	s := newService(inner, daemonSocket(t, answer(&nodeapi.DescribeResponse{})), "test")
	ctx, _ := logged(t)
	if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, ofPod)}); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error)
		go func() {
			_, err := s.Kill(t.Context(), &taskAPI.KillRequest{ID: "a", Signal: uint32(syscall.SIGTERM)})
			ended <- err
		}()
		synctest.Wait()
		if _, err := s.Kill(t.Context(), &taskAPI.KillRequest{ID: "a", Signal: uint32(syscall.SIGKILL)}); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"create a", "signal 9 to a", "signal 15 to a"}, inner.calls); diff != "" {
			t.Errorf("runc was called (-want +got):\n%s", diff)
		}
	})
}

// A daemon that hangs holds neither the deletion nor the shim's end up for long.
func TestTheEndIsToldInTheBackground(t *testing.T) {
	gone := make(chan *nodeapi.GoneRequest) // nobody listens
	d := daemon{gone: gone, describe: answer(&nodeapi.DescribeResponse{})}
	socket := serve(t, func(g *grpc.Server) { nodeapi.RegisterSandboxesServer(g, d) })
	s := newService(&runc{}, socket, "test")
	ctx, _ := logged(t)
	if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, ofPod)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close(ctx) }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the shim does not end")
	}
	<-gone // the daemon may go, too
}
