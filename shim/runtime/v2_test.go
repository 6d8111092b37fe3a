package runtime_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"

	taskV2 "github.com/containerd/containerd/api/runtime/task/v2"
	taskV3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/runtime"
)

// containerd 1 and containerd 2 call the same service by different names.
func TestBothVersionsAreServed(t *testing.T) {
	inner := &runc{}
	s := newService(inner, filepath.Join(directory(t), "away"), "test")
	client := dial(t, s)
	ctx := t.Context()

	v2 := taskV2.NewTTRPCTaskClient(client)
	created2, err := v2.Create(ctx, &taskV2.CreateTaskRequest{ID: "two", Bundle: bundle(t, plain)})
	if err != nil || created2.GetPid() != 7 {
		t.Errorf("Create of task.v2 = %v, %v", created2, err)
	}
	if _, err := v2.Start(ctx, &taskV2.StartRequest{ID: "two"}); err != nil {
		t.Errorf("Start of task.v2: %v", err)
	}
	v3 := taskV3.NewTTRPCTaskClient(client)
	created3, err := v3.Create(ctx, &taskV3.CreateTaskRequest{ID: "three", Bundle: bundle(t, plain)})
	if err != nil || created3.GetPid() != 7 {
		t.Errorf("Create of task.v3 = %v, %v", created3, err)
	}
	if _, err := v2.Shutdown(ctx, &taskV2.ShutdownRequest{ID: "two"}); err != nil {
		t.Errorf("Shutdown of task.v2: %v", err)
	}
	if diff := cmp.Diff([]string{"create two", "start two", "create three", "shutdown"}, inner.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func dial(t *testing.T, s *runtime.Service) *ttrpc.Client {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterTTRPC(server); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(directory(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(context.Background(), l); !errors.Is(err, ttrpc.ErrServerClosed) {
			t.Errorf("serving: %v", err)
		}
	})
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		served.Wait()
	})
	return client
}
