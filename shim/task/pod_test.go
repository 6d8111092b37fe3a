package task_test

import (
	"context"
	"testing"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/task"
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
		end        func(context.Context, *task.Service) error
		asked      *nodeapi.Pod
		told       bool
	}{
		"deleted": {config: ofPod, id: "a", asked: pod, told: true},
		"not created": {config: ofPod, id: "broken", asked: pod, told: true,
			end: func(context.Context, *task.Service) error { return nil }},
		"after a failed answer": {config: ofPod, id: "a", answer: status.Error(codes.Internal, "no state"), asked: pod, told: true},
		"a process in it ends": {config: ofPod, id: "a", asked: pod,
			end: func(ctx context.Context, s *task.Service) error {
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
			s := task.New(&runc{}, serve(t, func(g *grpc.Server) { nodeapi.RegisterSandboxesServer(g, d) }), "test")
			ctx, _ := logged(t)
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: tt.id, Bundle: bundle(t, tt.config)}); (err != nil) != (tt.id == "broken") {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&nodeapi.DescribeRequest{Sandbox: tt.id, Pod: tt.asked}, <-asked, protocmp.Transform()); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if tt.end == nil {
				tt.end = func(ctx context.Context, s *task.Service) error {
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

// A daemon that hangs holds neither the deletion nor the shim's end up for long.
func TestTheEndIsToldInTheBackground(t *testing.T) {
	gone := make(chan *nodeapi.GoneRequest) // nobody listens
	d := daemon{gone: gone, describe: answer(&nodeapi.DescribeResponse{})}
	socket := serve(t, func(g *grpc.Server) { nodeapi.RegisterSandboxesServer(g, d) })
	s := task.New(&runc{}, socket, "test")
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
