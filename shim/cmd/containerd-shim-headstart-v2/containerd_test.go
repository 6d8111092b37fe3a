//go:build integration || cluster

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/runtime"
)

// patience is how long a real process may take for what takes it milliseconds.
const patience = 30 * time.Second

// node is a private containerd, with the shim of this package in its PATH.
type node struct {
	dir    string
	make   making
	probe  string // the program that runs in the sandboxes
	log    *journal
	cmd    *exec.Cmd
	client *containerd.Client
}

// making is what tells one containerd from another.
type making struct {
	containerd string // the program
	// config is what follows the directories in its configuration, %s in it the node's
	// directory.
	config string
	// prepare makes what the configuration names, nil for nothing.
	prepare func(dir string) error
}

// plain is the machine's own, without the kubelet's interface.
var plain = making{containerd: "containerd", config: `version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
`}

// newNode starts a containerd of the machine's own.
func newNode(t *testing.T) *node { return makeNode(t, plain) }

// makeNode starts a containerd; it ends with the test, which fails if anything is left
// of it.
func makeNode(t *testing.T, m making) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test starts containers: run it as root")
	}
	for _, program := range []string{m.containerd, "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("this test needs %s (Debian: apt-get install containerd runc)", program)
		}
	}
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	n := &node{dir: dir, make: m, probe: filepath.Join(dir, "probe"), log: newJournal()}
	t.Cleanup(func() {
		n.stop(t)
		if left := mounts(t, dir); len(left) > 0 {
			t.Errorf("mounts left: %v", left)
			return // removing the directory would reach through them
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	build(t, "./testdata/probe", n.probe)
	if m.prepare != nil {
		if err := m.prepare(dir); err != nil {
			t.Fatal(err)
		}
	}
	n.start(t)
	return n
}

// start starts containerd on n's directories, whatever is in them already.
func (n *node) start(t *testing.T) {
	t.Helper()
	config := fmt.Sprintf("root = %q\nstate = %q\n", n.path("root"), n.path("state")) +
		strings.ReplaceAll(n.make.config, "%s", n.dir) + fmt.Sprintf("[grpc]\naddress = %q\n", n.path("c.sock"))
	if err := os.WriteFile(n.path("config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command(n.make.containerd, "-c", n.path("config.toml"))
	n.cmd.Env = append(
		os.Environ(), "PATH="+n.path("bin")+":"+shimDir(t)+":"+os.Getenv("PATH"), runtime.SocketVariable+"="+n.path("node.sock"),
		runtime.RootsVariable+"="+n.path("sandboxes")+":"+n.path("pods")+":"+n.path("memory"),
	)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client, err := containerd.New(n.path("c.sock"), containerd.WithDefaultNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	n.client = client
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if ok, err := client.IsServing(ctx); !ok {
		t.Fatalf("containerd does not serve: %v\n%s", err, n.log.String())
	}
}

// stop ends containerd; its shims live on.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.client.Close(); err != nil {
		t.Error(err)
	}
	if err := n.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("containerd: %v\n%s", err, n.log.String())
	}
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// serve serves what register registers on the socket of that name in n's directory.
func (n *node) serve(t *testing.T, name string, register func(*grpc.Server)) {
	t.Helper()
	l, err := net.Listen("unix", n.path(name))
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
}

// sandbox is one running probe.
type sandbox struct {
	container containerd.Container
	task      containerd.Task
	requests  *io.PipeWriter
	views     *json.Decoder
	shim      int // process id
	socket    string
}

// view is what the probe says it sees.
type view struct {
	Env        []string
	Files      map[string]string
	Dir, Write string
	Inherited  map[string]string
	Mounts     map[string]string
}

// sandbox starts a probe; opts make its image and snapshot, default is a root directory
// with nothing but the probe.
func (n *node) sandbox(t *testing.T, id string, opts ...containerd.NewContainerOpts) *sandbox {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), "test")
	if opts == nil {
		rootfs := n.path(id + ".rootfs")
		if err := errors.Join(os.Mkdir(rootfs, 0o755), os.Link(n.probe, filepath.Join(rootfs, "probe"))); err != nil {
			t.Fatal(err)
		}
		opts = append(opts, containerd.WithNewSpec(oci.WithRootFSPath(rootfs), oci.WithProcessArgs("/probe")))
	}
	container, err := n.client.NewContainer(ctx, id, append(opts, containerd.WithRuntime(name, nil))...)
	if err != nil {
		t.Fatal(err)
	}
	in, requests := io.Pipe()
	views, out := io.Pipe()
	probe, err := container.NewTask(ctx, cio.NewCreator(cio.WithStreams(in, out, out), cio.WithFIFODir(n.path("fifo"))))
	if err != nil {
		t.Fatalf("NewTask: %v\n%s", err, n.log.String())
	}
	if err := probe.Start(ctx); err != nil {
		t.Fatal(err)
	}
	s := &sandbox{container: container, task: probe, requests: requests, views: json.NewDecoder(views), shim: shimOf(t, id, n.path("c.sock"))}
	address, err := os.ReadFile(filepath.Join(n.dir, "state/io.containerd.runtime.v2.task/test", id, "address"))
	if err != nil {
		t.Fatal(err)
	}
	s.socket = strings.TrimPrefix(string(address), "unix://")
	return s
}

func (s *sandbox) view(t *testing.T) view {
	t.Helper()
	var v view
	if err := s.views.Decode(&v); err != nil {
		t.Fatalf("reading what the probe sees: %v", err)
	}
	return v
}

// look asks the probe what it sees now.
func (s *sandbox) look(t *testing.T) view {
	t.Helper()
	if _, err := io.WriteString(s.requests, "\n"); err != nil {
		t.Fatal(err)
	}
	return s.view(t)
}

// remove kills the probe, deletes the sandbox, and checks that its shim is gone with its
// socket.
func (s *sandbox) remove(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), "test"), patience)
	defer cancel()
	gone := watch(t, s.shim)
	if _, err := s.task.Delete(ctx, containerd.WithProcessKill); err != nil {
		t.Errorf("deleting the task: %v", err)
	}
	if err := s.container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		t.Errorf("deleting the container: %v", err)
	}
	gone("the shim")
	if _, err := os.Stat(s.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the shim's socket is left: %v", err)
	}
}

// watch returns a function that waits for the end of a process, now running. A process
// whose parent has died may stay a zombie: that is its end, too.
func watch(t *testing.T, pid int) func(what string) {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(pidfd) })
	return func(what string) {
		t.Helper()
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
		if n != 1 {
			t.Errorf("%s still runs: %v", what, err)
		}
	}
}

// shimOf finds the process id of the shim of a sandbox.
func shimOf(t *testing.T, id, address string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	want := "\x00-id\x00" + id + "\x00-address\x00" + address + "\x00"
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if err != nil || !strings.Contains(string(content), want) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
			return pid
		}
	}
	t.Fatalf("no shim runs for sandbox %s", id)
	return 0
}

// mounts returns the mount points below dir.
func mounts(t *testing.T, dir string) []string {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			found = append(found, fields[4])
		}
	}
	return found
}

// shimDir returns the directory with the shim: HEADSTART_BIN, or one to build it into.
var shimDir = func() func(*testing.T) string {
	var dir string
	return func(t *testing.T) string {
		t.Helper()
		if bin := os.Getenv("HEADSTART_BIN"); bin != "" {
			if _, err := os.Stat(filepath.Join(bin, "containerd-shim-headstart-v2")); err != nil {
				t.Fatalf("HEADSTART_BIN has to name a directory with the shim: %v", err)
			}
			return bin
		}
		if dir == "" {
			dir = filepath.Join(buildDir, "bin")
			build(t, ".", filepath.Join(dir, "containerd-shim-headstart-v2"))
		}
		return dir
	}
}()

// buildDir is where the shim is built, once for all tests.
var buildDir string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "hs")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		buildDir = dir
		return m.Run()
	}())
}

// build makes a static binary.
func build(t *testing.T, pkg, to string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-o", to, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", pkg, err, out)
	}
}
