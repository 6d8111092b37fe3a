package runtime

import (
	"context"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
)

// registerV2 serves s also under the name by which containerd before 2.0 calls it. The
// messages of both versions are the same on the wire.
func registerV2(server *ttrpc.Server, s taskAPI.TTRPCTaskService) {
	server.RegisterService("containerd.task.v2.Task", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"State":      method(s.State),
		"Create":     method(s.Create),
		"Start":      method(s.Start),
		"Delete":     method(s.Delete),
		"Pids":       method(s.Pids),
		"Pause":      method(s.Pause),
		"Resume":     method(s.Resume),
		"Checkpoint": method(s.Checkpoint),
		"Kill":       method(s.Kill),
		"Exec":       method(s.Exec),
		"ResizePty":  method(s.ResizePty),
		"CloseIO":    method(s.CloseIO),
		"Update":     method(s.Update),
		"Wait":       method(s.Wait),
		"Stats":      method(s.Stats),
		"Connect":    method(s.Connect),
		"Shutdown":   method(s.Shutdown),
	}})
}

// method is one call as ttrpc wants it.
func method[Request, Response any](call func(context.Context, *Request) (*Response, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		r := new(Request)
		if err := unmarshal(r); err != nil {
			return nil, err
		}
		return call(ctx, r)
	}
}
