package runtime_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	goRunc "github.com/containerd/go-runc"
	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// handing serves descriptors beside a daemon's socket, none for the container none.
func handing(t *testing.T, socket string, content string) {
	t.Helper()
	l, err := net.Listen("unix", descriptors.Path(socket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- descriptors.Serve(ctx, func(container string) ([]*os.File, error) {
			if container == "none" {
				return nil, errors.New("gone")
			}
			r, w, err := os.Pipe()
			if err == nil {
				_, err = w.WriteString(content)
			}
			return []*os.File{r}, errors.Join(err, w.Close())
		}, slog.New(slog.DiscardHandler))(l)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// starting is a monitor that notes what it is to start.
type starting struct {
	goRunc.ProcessMonitor
	args []string
	read string
}

func (s *starting) Start(c *exec.Cmd) (chan goRunc.Exit, error) {
	s.args = c.Args
	for _, f := range c.ExtraFiles {
		content, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		s.read += string(content)
	}
	return nil, nil
}

// creating is a runc that starts `runc create`, after something else.
type creating struct {
	*runc
	monitor goRunc.ProcessMonitor
}

func (c *creating) Create(ctx context.Context, r *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	for _, args := range [][]string{
		{"--root", "/r", "start", r.ID}, {"create", "other"}, {"--root", "/r", "create", "--bundle", r.Bundle, r.ID},
	} {
		if _, err := c.monitor.Start(exec.Command("runc", args...)); err != nil {
			return nil, err
		}
	}
	return c.runc.Create(ctx, r)
}

// The container that the daemon has descriptors for inherits them, and no other process of runc's
// does.
func TestDescriptorsAreInherited(t *testing.T) {
	socket := daemonSocket(t, answer(&nodeapi.DescribeResponse{Descriptors: []string{"db"}}))
	handing(t, socket, "a session")
	started := &starting{}
	inner := &creating{runc: &runc{}}
	s := newService(inner, socket, "test")
	defer s.Close(t.Context())
	inner.monitor = s.Monitor(started)
	dir := bundle(t, plain)
	if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: dir}); err != nil {
		t.Fatal(err)
	}
	want := []string{"runc", "--root", "/r", "create", "--preserve-fds", "1", "--bundle", dir, "a"}
	if diff := cmp.Diff(want, started.args); diff != "" || started.read != "a session" {
		t.Errorf("runc reads %q (-want +got):\n%s", started.read, diff)
	}
	if !strings.Contains(inner.config, `"HEADSTART_DESCRIPTORS=db"`) {
		t.Errorf("runc saw %s, which names no descriptors", inner.config)
	}
	// They are the container's alone.
	_, err := inner.monitor.Start(exec.Command("runc", "create", "a"))
	if err != nil || slices.Contains(started.args, "--preserve-fds") {
		t.Errorf("again with %v, %v", started.args, err)
	}
}

// Without its descriptors a container, also a job's, has all else that it is described with, and the log says why.
func TestDescriptorsThatAreMissing(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, socket string) (id string){
		"no socket":    func(*testing.T, string) string { return "a" },
		"none of them": func(t *testing.T, socket string) string { handing(t, socket, ""); return "none" },
		"a file": func(t *testing.T, socket string) string {
			if err := os.WriteFile(filepath.Join(filepath.Dir(socket), "descriptors.sock"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return "a"
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := ownDirectory(t, "default_fire-x_u-1")
			r := newS3Rig(t, func(ctx context.Context, q *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				d, err := describesS3(ctx, q)
				d.Mounts = []*nodeapi.Mount{{Source: source, Destination: "/headstart/input", ReadOnly: true}}
				d.Descriptors = []string{"db"}
				return d, err
			})
			env, reason := r.created(t, prepare(t, r.socket), s3Config(t, func(spec map[string]any) {
				spec["annotations"].(map[string]string)["headstart.dev/input"] = "s3://videos/a"
			}))
			if url(env) == "" || !slices.Contains(env, "HEADSTART_A=1") || r.inner.input != source {
				t.Errorf("environment %q, and runc mounts %q", env, r.inner.input)
			}
			if reason != "DescriptorsMissing" || strings.Contains(r.inner.config, "HEADSTART_DESCRIPTORS") {
				t.Errorf("%s, environment %q", reason, env)
			}
		})
	}
}

// asContainerd starts processes as its monitor does: the thread is held for the start alone.
type asContainerd struct{ goRunc.ProcessMonitor }

func (asContainerd) StartLocked(c *exec.Cmd) (chan goRunc.Exit, error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	return nil, c.Start()
}

// A process that ends with the shim does not end with a thread that was in another network namespace.
func TestAProcessOutlivesThreads(t *testing.T) {
	s := newService(&runc{}, "", "test")
	defer s.Close(t.Context())
	c := exec.Command("sleep", "60")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if _, err := s.Monitor(asContainerd{}).StartLocked(c); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := nsthread.Run("", func() error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); !strings.Contains(err.Error(), "killed") { // and not terminated
		t.Errorf("the process: %v", err)
	}
}
