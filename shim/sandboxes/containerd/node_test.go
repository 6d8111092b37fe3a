//go:build integration

package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// patience is how long a real process may take for what takes it milliseconds.
	patience = 30 * time.Second
	// insideEnv marks the process that runs the tests, in a network namespace of its own:
	// the bridge and all that is attached to it goes with it.
	insideEnv = "HEADSTART_TEST_INSIDE"
	// binEnv names the directory with the shim, as `make build` fills it.
	binEnv = "HEADSTART_BIN"

	cniPlugins = "/usr/lib/cni"
	testImage  = "headstart.test/programs:1"
)

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "the loopback device:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the child dies with the thread that forked it
	inside := exec.Command("/proc/self/exe", os.Args[1:]...)
	inside.Env = append(os.Environ(), insideEnv+"=1")
	inside.Stdout, inside.Stderr = os.Stdout, os.Stderr
	inside.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: unix.SIGKILL}
	if err := inside.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "tests in a network namespace (they need root):", err)
		os.Exit(1)
	}
}

// node is a private containerd with the shim in its PATH, and an image of programs.
type node struct {
	dir    string
	log    bytes.Buffer
	cmd    *exec.Cmd
	client *client.Client
}

// newNode starts a containerd; it ends with the test, which fails if anything is left.
func newNode(t *testing.T) *node {
	t.Helper()
	bin := os.Getenv(binEnv)
	if _, err := os.Stat(filepath.Join(bin, "containerd-shim-headstart-v2")); err != nil {
		t.Fatalf("%s has to name a directory with the shim, as `make build` fills it: %v", binEnv, err)
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "bridge")); err != nil {
		t.Fatalf("this test needs Debian's package containernetworking-plugins: %v", err)
	}
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	n := &node{dir: dir}
	t.Cleanup(func() {
		n.stop(t)
		if left := mountsOf(t, dir); len(left) > 0 {
			t.Errorf("mounts left: %v", left)
			return // removing the directory would reach through them
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n.start(t, bin)
	n.importImage(t)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// start starts containerd on n's directories, whatever is in them already.
func (n *node) start(t *testing.T, bin string) {
	t.Helper()
	config := fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
address = %q
`, n.path("root"), n.path("state"), n.path("c.sock"))
	if err := os.WriteFile(n.path("config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	n.cmd = exec.Command("containerd", "-c", n.path("config.toml"))
	n.cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	n.cmd.Stdout, n.cmd.Stderr = &n.log, &n.log
	n.cmd.WaitDelay = patience // shims that outlive it hold its log
	if err := n.cmd.Start(); err != nil {
		t.Fatalf("this test needs Debian's packages containerd and runc: %v", err)
	}
	var err error
	if n.client, err = client.New(n.path("c.sock"), client.WithDefaultNamespace(Namespace)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if ok, err := n.client.IsServing(ctx); !ok {
		t.Fatalf("containerd does not serve: %v", err)
	}
}

// stop ends containerd; sandboxes live on.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if err := n.client.Close(); err != nil {
		t.Error(err)
	}
	if err := n.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := n.cmd.Wait(); err != nil || t.Failed() {
		t.Logf("containerd: %v\n%s", err, &n.log)
	}
}

// programs is the image as an archive, built once.
var programs = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "hs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "programs")
	build := exec.Command("go", "build", "-o", binary, "./testdata/programs")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return exec.Command("go", "run", "github.com/headstart-mesh/headstart/e2e/functions/ociimage/cmd/ociimage", "-ref",
		testImage, "-binary", binary).Output()
})

func (n *node) importImage(t *testing.T) {
	t.Helper()
	archive, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.client.Import(t.Context(), bytes.NewReader(archive)); err != nil {
		t.Fatalf("importing the image: %v", err)
	}
}

// open returns a runtime on n, as a daemon's start does.
func (n *node) open(t *testing.T) (*Runtime, func()) {
	t.Helper()
	r, err := New(Config{Socket: n.path("c.sock"), StateDir: n.path("headstart"), PluginDir: cniPlugins, Bridge: "hstest0",
		PodSubnet: netip.MustParsePrefix("10.199.99.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	return r, func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (n *node) spec(id string, args ...string) sandboxes.Spec {
	return sandboxes.Spec{ID: id, Function: "default/" + id, Image: testImage, Args: args}
}

// left names what there is of a sandbox.
func (n *node) left(t *testing.T, id string) []string {
	t.Helper()
	var found []string
	add := func(what string, err error) {
		if err == nil {
			found = append(found, what)
		}
	}
	_, err := n.client.LoadContainer(t.Context(), id)
	if !errdefs.IsNotFound(err) {
		add("container", err)
	}
	_, err = n.client.SnapshotService(snapshotter).Stat(t.Context(), id)
	add("snapshot", err)
	_, err = os.Stat(filepath.Join(n.dir, "state/io.containerd.runtime.v2.task", Namespace, id))
	add("task", err)
	_, err = os.Stat(n.path("headstart/netns/" + id))
	add("network namespace", err)
	found = append(found, mountsOf(t, id)...)
	for _, pattern := range []string{"/sys/fs/cgroup/headstart/" + id, "/sys/fs/cgroup/*/headstart/" + id,
		n.path("headstart/cni/results/*" + id + "*")} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	leases, err := filepath.Glob(n.path("headstart/ipam/headstart/*.*.*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases {
		if owner, err := os.ReadFile(lease); err == nil && strings.Contains(string(owner), id) {
			found = append(found, lease)
		}
	}
	if pid := shimOf(t, id); pid != 0 {
		found = append(found, "shim "+strconv.Itoa(pid))
	}
	return found
}

// shimOf returns the process id of a sandbox's shim, 0 for none.
func shimOf(t *testing.T, id string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		content, err := os.ReadFile(line)
		if errors.Is(err, fs.ErrNotExist) || !strings.Contains(string(content), "\x00-id\x00"+id+"\x00") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line))); err == nil {
			return pid
		}
	}
	return 0
}

// mountsOf returns the mount points with part in their path.
func mountsOf(t *testing.T, part string) []string {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(info)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(fields[4], part) {
			found = append(found, "mount "+fields[4])
		}
	}
	return found
}
