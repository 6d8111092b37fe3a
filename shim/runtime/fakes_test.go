package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/log"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory is short enough for unix sockets, which t.TempDir is not.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// bundle makes a bundle with a config.json.
func bundle(t *testing.T, config string) string {
	t.Helper()
	dir := directory(t)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o640); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newService is a service over inner on a node whose daemon has all temporary directories.
func newService(inner taskAPI.TTRPCTaskService, socket, version string) *runtime.Service {
	return newServiceWith(inner, socket, version, links{})
}

func newServiceWith(inner taskAPI.TTRPCTaskService, socket, version string, binds runtime.Binds) *runtime.Service {
	return runtime.New(inner, runtime.Node{Socket: socket, Roots: []string{os.TempDir()}, Binds: binds}, version)
}

// links are bind mounts that need no root.
type links struct{ memory *memory }

// memory is what was asked of file systems in memory.
type memory struct {
	sizes []int64
	fails error
}

func (links) Bind(dir *os.File, at string) error {
	to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	return errors.Join(err, os.Remove(at), os.Symlink(to, at))
}

func (links) Nest(at string, dirs map[string]*os.File) error {
	for name, dir := range dirs {
		if info, err := os.Lstat(filepath.Join(at, name)); err != nil || !info.IsDir() {
			return fmt.Errorf("no directory %s to mount in: %w", name, err)
		}
		to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
		if err := errors.Join(err, os.Remove(filepath.Join(at, name)), os.Symlink(to, filepath.Join(at, name))); err != nil {
			return err
		}
	}
	return nil
}

func (l links) Memory(_ string, size int64, again bool) error {
	if l.memory == nil {
		return nil
	}
	if again == (len(l.memory.sizes) == 0) {
		return errors.New("only what is there is resized")
	}
	l.memory.sizes = append(l.memory.sizes, size)
	return l.memory.fails
}

func (links) Unbind(at string) error {
	err := os.Remove(at)
	if err == nil {
		err = os.Mkdir(at, 0o700)
	}
	return err
}

// logged returns a context whose log lands in the hook.
func logged(t *testing.T) (context.Context, *logtest.Hook) {
	logger, hook := logtest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	return log.WithLogger(t.Context(), logrus.NewEntry(logger)), hook
}

// serve serves what register registers on a unix socket and returns its path.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	path := filepath.Join(directory(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	var served sync.WaitGroup
	served.Go(func() {
		// A test may end before its server has begun.
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() { server.Stop(); served.Wait() })
	return path
}

// daemon is the node's daemon as a function.
type daemon struct {
	nodeapi.UnimplementedSandboxesServer
	describe func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error)
	gone     chan *nodeapi.GoneRequest // nil: nobody listens
	closed   chan *nodeapi.ClosedRequest
}

func (d daemon) Closed(_ context.Context, r *nodeapi.ClosedRequest) (*nodeapi.ClosedResponse, error) {
	d.closed <- r
	return &nodeapi.ClosedResponse{}, nil
}

func (d daemon) Gone(_ context.Context, r *nodeapi.GoneRequest) (*nodeapi.GoneResponse, error) {
	if d.gone != nil {
		d.gone <- r
	}
	return &nodeapi.GoneResponse{}, nil
}

func (d daemon) Describe(ctx context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	return d.describe(ctx, r)
}

// daemonSocket serves a daemon that answers with what describe returns.
func daemonSocket(t *testing.T, describe func(context.Context, *nodeapi.DescribeRequest) (
	*nodeapi.DescribeResponse, error,
)) string {
	t.Helper()
	return serve(t, func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, daemon{describe: describe}) })
}

// answer is a daemon that describes every sandbox alike.
func answer(d *nodeapi.DescribeResponse) func(context.Context, *nodeapi.DescribeRequest) (
	*nodeapi.DescribeResponse, error,
) {
	return func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) { return d, nil }
}

// collector takes spans, and waits with its answer until hold is closed or nil.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	hold chan struct{}

	mu  sync.Mutex
	got []*coltracepb.ExportTraceServiceRequest
}

func (c *collector) Export(_ context.Context, r *coltracepb.ExportTraceServiceRequest) (
	*coltracepb.ExportTraceServiceResponse, error,
) {
	if c.hold != nil {
		<-c.hold
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, r)
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (c *collector) target(t *testing.T) string {
	return "unix:" + serve(t, func(s *grpc.Server) { coltracepb.RegisterTraceServiceServer(s, c) })
}

var errRunc = errors.New("runc create failed: exit status 1")

// runc notes what it is called with. A sandbox named broken cannot be created.
type runc struct {
	taskAPI.TTRPCTaskService

	config  string // the bundle's at Create
	input   string // what is mounted as the input there
	options *anypb.Any
	noting  sync.Mutex // a daemon may have a container killed while another call is at work
	calls   []string
	killed  chan *taskAPI.KillRequest // nil: nobody wants to know
}

func (r *runc) note(call string) {
	r.noting.Lock()
	defer r.noting.Unlock()
	r.calls = append(r.calls, call)
}

func (r *runc) Create(_ context.Context, req *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	r.note("create " + req.ID)
	config, err := os.ReadFile(filepath.Join(req.Bundle, "config.json"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the bundle: %w", err)
	}
	r.config, r.options = string(config), req.Options
	r.input, _ = os.Readlink(filepath.Join(req.Bundle, "headstart/input")) // most have none
	if req.ID == "broken" {
		return nil, errRunc
	}
	return &taskAPI.CreateTaskResponse{Pid: 7}, nil
}

func (r *runc) Kill(_ context.Context, req *taskAPI.KillRequest) (*emptypb.Empty, error) {
	if r.killed != nil {
		r.killed <- req
	}
	r.note(fmt.Sprintf("signal %d to %s%s", req.Signal, req.ID, req.ExecID))
	return &emptypb.Empty{}, nil
}

func (r *runc) Start(_ context.Context, req *taskAPI.StartRequest) (*taskAPI.StartResponse, error) {
	r.note("start " + req.ID + req.ExecID)
	return &taskAPI.StartResponse{Pid: 7}, nil
}

func (r *runc) Delete(_ context.Context, req *taskAPI.DeleteRequest) (*taskAPI.DeleteResponse, error) {
	r.note("delete " + req.ID)
	return &taskAPI.DeleteResponse{Pid: 7}, nil
}

func (r *runc) Shutdown(context.Context, *taskAPI.ShutdownRequest) (*emptypb.Empty, error) {
	r.note("shutdown")
	return &emptypb.Empty{}, nil
}
