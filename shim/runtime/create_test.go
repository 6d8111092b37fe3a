package runtime_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const plain = `{"ociVersion":"1.0.2","process":{"env":["PATH=/bin"]}}`

func TestCreatePreparesTheBundle(t *testing.T) {
	source := ownDirectory(t, "a")
	socket := daemonSocket(t, func(_ context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
		return &nodeapi.DescribeResponse{
			Mounts: []*nodeapi.Mount{{Source: source, Destination: "/headstart/input", ReadOnly: true}},
			Env:    map[string]string{"HEADSTART_SANDBOX": r.GetSandbox()},
		}, nil
	})
	dir := bundle(t, plain)
	inner := &runc{}
	s := newService(inner, socket, "test")
	ctx, hook := logged(t)
	res, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: dir})
	if err != nil || res.GetPid() != 7 {
		t.Fatalf("Create = %v, %v, want runc's answer", res, err)
	}
	want := `{"mounts":[{"destination":"/headstart/input","type":"bind","source":"` + dir +
		`/headstart/input","options":["bind","ro","nosuid","nodev","noexec"]}],"ociVersion":"1.0.2",` +
		`"process":{"env":["PATH=/bin","HEADSTART_SANDBOX=a"]}}`
	if diff := cmp.Diff(want, inner.config); diff != "" {
		t.Errorf("config.json that runc saw (-want +got):\n%s", diff)
	}
	if inner.input != source {
		t.Errorf("runc mounts %q, want %q", inner.input, source)
	}
	if n := len(hook.AllEntries()); n != 0 {
		t.Errorf("%d log entries, want none", n)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("bundle holds %v, %v, want config.json alone", entries, err)
	}
	info, err := os.Stat(filepath.Join(dir, "config.json"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("config.json: %v, %v, want the mode that it had", info, err)
	}
}

// Whatever is wrong with the daemon, runc gets its call, with the bundle as it was, and
// the log says why.
func TestCreateWithoutTheDaemon(t *testing.T) {
	own := ownDirectory(t, "a")
	mount := &nodeapi.Mount{Source: own, Destination: "/headstart/input", ReadOnly: true}
	describes := func(source string, readOnly bool) func(*testing.T) string {
		m := &nodeapi.Mount{Source: source, Destination: "/headstart/a", ReadOnly: readOnly}
		return func(t *testing.T) string {
			return daemonSocket(t, answer(&nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{mount, m}}))
		}
	}
	for name, make := range map[string]func(path string) error{
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"link": func(path string) error { return os.Symlink("/etc", path) },
	} {
		if err := make(filepath.Join(own, name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		socket func(*testing.T) string
		reason string
	}{
		"no socket": {func(t *testing.T) string { return filepath.Join(directory(t), "s") }, "DaemonAway"},
		"socket of a daemon that died": {func(t *testing.T) string {
			path := filepath.Join(directory(t), "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l.SetUnlinkOnClose(false)
			l.Close()
			return path
		}, "DaemonAway"},
		"slow": {func(t *testing.T) string {
			return daemonSocket(t, func(ctx context.Context, _ *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}, "DaemonSlow"},
		"silent":            {func(t *testing.T) string { return raw(t, "") }, "DaemonSlow"},
		"speaks in tongues": {func(t *testing.T) string { return raw(t, "HTTP/1.1 200 OK\r\n\r\n") }, "DaemonAway"},
		"fails": {func(t *testing.T) string {
			return daemonSocket(t, func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				return nil, status.Error(codes.Internal, "no state")
			})
		}, "DescribeFailed"},
		"says too much": {func(t *testing.T) string {
			return daemonSocket(t, answer(&nodeapi.DescribeResponse{
				Env: map[string]string{"HEADSTART_A": strings.Repeat("a", 2<<20)},
			}))
		}, "DescribeFailed"},
		"describes what is not allowed": {func(t *testing.T) string {
			return daemonSocket(t, answer(&nodeapi.DescribeResponse{
				Mounts: []*nodeapi.Mount{mount}, Env: map[string]string{"LD_PRELOAD": "/x.so"},
			}))
		}, "DescriptionInvalid"},
		"describes what is not there":   {describes(own+"/gone", true), "MountSourceMissing"},
		"describes what is the node's":  {describes("/etc", true), "DescriptionInvalid"},
		"describes what is named alike": {describes("/etc/a", true), "DescriptionInvalid"},
		"describes a way out and back":  {describes(own+"/link/a", true), "DescriptionInvalid"},
		"describes another's":           {describes(ownDirectory(t, "b"), true), "DescriptionInvalid"},
		"describes what can be written": {describes(own, false), "DescriptionInvalid"},
		"describes a file":              {describes(own+"/file", true), "DescriptionInvalid"},
		"describes a way out":           {describes(own+"/link", true), "DescriptionInvalid"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := &runc{}
			s := newService(inner, tt.socket(t), "test")
			ctx, hook := logged(t)
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, plain)}); err != nil {
				t.Fatalf("Create: %v", err)
			}
			if diff := cmp.Diff(plain, inner.config); diff != "" {
				t.Errorf("config.json that runc saw (-want +got):\n%s", diff)
			}
			entry := hook.LastEntry()
			if entry == nil || entry.Level != logrus.WarnLevel || entry.Data["reason"] != tt.reason || entry.Data["sandbox"] != "a" {
				t.Errorf("log entry %+v, want a warning with reason %s", entry, tt.reason)
			}
		})
	}
}

func TestCreateWithABrokenBundle(t *testing.T) {
	inner := &runc{}
	s := newService(inner, daemonSocket(t, answer(nil)), "test")
	for name, dir := range map[string]string{
		"no bundle": "/nonexistent", "no config.json": directory(t), "no JSON": bundle(t, "{"),
	} {
		ctx, hook := logged(t)
		if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{ID: "a", Bundle: dir}); err != nil {
			t.Errorf("%s: Create: %v", name, err)
		}
		if entry := hook.LastEntry(); entry == nil || entry.Data["reason"] != "BundleUnreadable" {
			t.Errorf("%s: log entry %+v", name, entry)
		}
	}
	if len(inner.calls) != 3 {
		t.Errorf("runc was called with %v, want three creates", inner.calls)
	}
}

// The sandboxes that are not ours start as they would without Headstart, in silence.
func TestCreateOfOthers(t *testing.T) {
	asked := 0
	socket := daemonSocket(t, func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
		asked++
		return nil, status.Error(codes.NotFound, "not one of ours")
	})
	const pause = `{ "annotations": {"io.kubernetes.cri.container-type":"sandbox"} }`
	tests := []struct {
		name, config string
		r            *taskAPI.CreateTaskRequest
		asked        int
	}{
		{"unknown to the daemon", " " + plain, &taskAPI.CreateTaskRequest{ID: "a"}, 1},
		{"pause container", pause, &taskAPI.CreateTaskRequest{ID: "b"}, 0},
		{"restored from a checkpoint", " " + plain, &taskAPI.CreateTaskRequest{ID: "c", Checkpoint: "/checkpoint"}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			asked = 0
			inner := &runc{}
			s := newService(inner, socket, "test")
			ctx, hook := logged(t)
			tt.r.Bundle = bundle(t, tt.config)
			if _, err := s.Create(ctx, tt.r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.config, inner.config); diff != "" {
				t.Errorf("config.json that runc saw (-want +got):\n%s", diff)
			}
			if asked != tt.asked {
				t.Errorf("the daemon was asked %d times, want %d", asked, tt.asked)
			}
			for _, entry := range hook.AllEntries() {
				if entry.Level < logrus.DebugLevel {
					t.Errorf("logged %q", entry.Message)
				}
			}
		})
	}
}

// ownDirectory is one of a sandbox.
func ownDirectory(t *testing.T, id string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// raw serves a socket that says text to whoever connects, and nothing more.
func raw(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(directory(t), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
				io.Copy(io.Discard, c) // until the client goes
			})
		}
	})
	t.Cleanup(func() { l.Close(); served.Wait() })
	return path
}
