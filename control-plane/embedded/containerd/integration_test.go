//go:build integration

package containerd

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// binaryEnv names the containerd to test with; without it the one in PATH is taken.
const binaryEnv = "HEADSTART_CONTAINERD"

// space is the containerd namespace of these tests.
const space = "hst7"

// machine is a private containerd.
type machine struct {
	Paths
	dir   string
	group *process.Group
	pid   int
}

func binary(t *testing.T) string {
	t.Helper()
	name := os.Getenv(binaryEnv)
	if name == "" {
		name = "containerd"
	}
	found, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("no containerd (install it, or name it in %s): %v", binaryEnv, err)
	}
	return found
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// place makes the directories, and sees at the end that all is gone that was ever in
// them or is named after them.
func place(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", space) // short, for the sockets
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir, Paths: Paths{
		Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state"), Socket: filepath.Join(dir, "c.sock"),
	}}
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), Config(m.Paths), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(SweepShims(deadline(t), m.State), SweepMounts(dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *machine) start(t *testing.T) {
	t.Helper()
	var log strings.Builder
	m.group = process.New(func(process.Exit) {})
	err := m.group.Start(deadline(t), process.Spec{
		Name: "containerd", Path: binary(t), Args: []string{"--config", filepath.Join(m.dir, "config.toml")}, Log: &log,
		Ready: func(ctx context.Context) error { return WaitReady(ctx, m.Socket) },
	})
	if err != nil {
		t.Fatal(err)
	}
	m.pid = m.group.Status()[0].PID
	group := m.group
	t.Cleanup(func() {
		group.Stop(deadline(t))
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// kill ends containerd as a crash would, and waits until it is gone.
func (m *machine) kill(t *testing.T) {
	t.Helper()
	if err := unix.Kill(m.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.group.Stop(deadline(t))
}

func (m *machine) client(t *testing.T) (context.Context, *client.Client) {
	t.Helper()
	c, err := client.New(m.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return namespaces.WithNamespace(deadline(t), space), c
}

// run starts a container that holds on: deaf to signals, with processes in sessions of
// their own. It returns the shim's and the container's first process.
func (m *machine) run(t *testing.T, id string) (shim, init int) {
	t.Helper()
	ctx, c := m.client(t)
	s := c.SnapshotService(Snapshotter)
	// A lease, because nothing else holds the layer before its child exists.
	ctx, release, err := c.WithLease(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := release(ctx); err != nil {
			t.Error(err)
		}
	}()
	// One layer below, so that the root is an overlay. An image's layers stay when
	// containers go, so the second run of a name finds it.
	if _, err = s.Stat(ctx, id+"-base"); errdefs.IsNotFound(err) {
		if _, err = s.Prepare(ctx, id+"-extract", ""); err == nil {
			err = s.Commit(ctx, id+"-base", id+"-extract")
		}
	}
	if err == nil {
		_, err = s.Prepare(ctx, id, id+"-base")
	}
	if err != nil {
		t.Fatal(err)
	}
	var binds []specs.Mount
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		binds = append(binds, specs.Mount{Type: "bind", Source: dir, Destination: dir, Options: []string{"rbind", "ro"}})
	}
	script := `trap "" TERM; setsid sleep 1000 & (setsid sh -c "sleep 1000 & sleep 1000" &); while :; do sleep 1; done`
	container, err := c.NewContainer(ctx, id,
		client.WithSnapshotter(Snapshotter), client.WithSnapshot(id),
		client.WithRuntime("io.containerd.runc.v2", nil),
		client.WithNewSpec(oci.WithProcessArgs("/bin/sh", "-c", script), oci.WithMounts(binds)))
	if err != nil {
		t.Fatal(err)
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	table, err := process.Table()
	if err != nil {
		t.Fatal(err)
	}
	init = int(task.Pid())
	for _, e := range table {
		if e.PID == init {
			shim = e.Parent
		}
	}
	if !isShim(shim, m.dir) {
		t.Fatalf("process %d is not the shim of %d", shim, init)
	}
	return shim, init
}

// remains is what a containerd leaves on the machine when it is killed.
type remains struct{ Processes, Mounts, Files []string }

// look finds by other means than the package's own: names of the container, and files
// and mounts by where they are.
func (m *machine) look(t *testing.T) remains {
	t.Helper()
	var r remains
	table, err := process.Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		proc := "/proc/" + strconv.Itoa(e.PID)
		cmdline, _ := os.ReadFile(proc + "/cmdline")
		cgroup, _ := os.ReadFile(proc + "/cgroup")
		root, _ := os.Readlink(proc + "/root")
		cwd, _ := os.Readlink(proc + "/cwd")
		if strings.Contains(string(cmdline)+root+cwd, m.dir) || strings.Contains(string(cgroup), "/"+space+"/") {
			r.Processes = append(r.Processes, strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, m.dir) {
			r.Mounts = append(r.Mounts, line)
		}
	}
	patterns := []string{m.State + "/io.containerd.runtime.v2.task/*", "/run/containerd/runc/" + space,
		"/sys/fs/cgroup/" + space, "/sys/fs/cgroup/*/" + space}
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		r.Files = append(r.Files, found...)
	}
	return r
}

// sockets lists where the shims listen.
func (m *machine) sockets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(m.State + "/io.containerd.runtime.v2.task/*/*/address")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		address, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		socket := strings.TrimPrefix(string(address), "unix://")
		if _, err := os.Lstat(socket); err != nil {
			t.Fatal(err)
		}
		found = append(found, socket)
	}
	return found
}

func areGone(t *testing.T, files []string) {
	t.Helper()
	for _, f := range files {
		if _, err := os.Lstat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func (m *machine) sweepTwice(t *testing.T) {
	t.Helper()
	for range 2 {
		if err := SweepShims(deadline(t), m.State); err != nil {
			t.Error(err)
		}
		if err := SweepMounts(m.dir); err != nil {
			t.Error(err)
		}
	}
}

func TestAKilledContainerdIsSweptAway(t *testing.T) {
	for what, alsoKill := range map[string]func(t *testing.T, shim int){
		"with shims alive": func(*testing.T, int) {},
		"with a dead shim": func(t *testing.T, shim int) {
			if err := unix.Kill(shim, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := place(t)
			m.start(t)
			shim, init := m.run(t, "hst7-one")
			m.run(t, "hst7-two")
			listening := m.sockets(t)
			if len(listening) != 2 {
				t.Fatalf("shim sockets %v", listening)
			}
			m.kill(t)
			alsoKill(t, shim)
			if err := unix.Kill(init, 0); err != nil {
				t.Fatalf("the container died with containerd: %v", err)
			}
			if r := m.look(t); len(r.Processes) < 4 || len(r.Mounts) < 2 || len(r.Files) < 3 {
				t.Fatalf("the test does not see what is there: %+v", r)
			}
			m.sweepTwice(t)
			if d := cmp.Diff(remains{}, m.look(t)); d != "" {
				t.Errorf("left behind:\n%s", d)
			}
			areGone(t, listening)
		})
	}
}

func TestAContainerdStartsAgainAfterASweep(t *testing.T) {
	m := place(t)
	m.start(t)
	m.run(t, "hst7-one")
	m.kill(t)
	m.sweepTwice(t)
	m.start(t)
	if err := Cleanup(deadline(t), m.Socket, space); err != nil {
		t.Fatal(err)
	}
	m.run(t, "hst7-one") // the same name is free again
	if err := Cleanup(deadline(t), m.Socket, space); err != nil {
		t.Error(err)
	}
}

func TestCleanupEmptiesANamespace(t *testing.T) {
	m := place(t)
	m.start(t)
	m.run(t, "hst7-one")
	m.run(t, "hst7-two")
	listening := m.sockets(t)
	ctx, c := m.client(t)
	// A container that never ran, and another namespace, which is not ours to empty.
	if _, err := c.NewContainer(ctx, "hst7-idle", client.WithNewSpec()); err != nil {
		t.Fatal(err)
	}
	other := namespaces.WithNamespace(ctx, space+"other")
	root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "test"})
	if _, err := c.SnapshotService(Snapshotter).Prepare(other, "kept", "", root); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Cleanup(ctx, m.Socket, space); err != nil {
			t.Error(err)
		}
	}
	if left, err := c.Containers(ctx); len(left) > 0 || err != nil {
		t.Errorf("containers %v, %v", left, err)
	}
	err := c.SnapshotService(Snapshotter).Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		t.Errorf("snapshot %s is left", info.Name)
		return nil
	}, "kind==active")
	if err != nil {
		t.Error(err)
	}
	if _, err := c.SnapshotService(Snapshotter).Stat(other, "kept"); err != nil {
		t.Errorf("another namespace's snapshot: %v", err)
	}
	m.group.Stop(deadline(t))
	areGone(t, listening)
	m.sweepTwice(t)
	if d := cmp.Diff(remains{}, m.look(t)); d != "" {
		t.Errorf("left behind:\n%s", d)
	}
	if err := Cleanup(deadline(t), m.Socket, space); err == nil {
		t.Error("cleaned up without a containerd")
	}
}

func TestStackedAndSharedMountsAreSwept(t *testing.T) {
	dir := t.TempDir()
	outside := t.TempDir()
	mountAt := func(source, target, kind string, flags uintptr) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(target, 0o700), unix.Mount(source, target, kind, flags, "")); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, d := range []string{outside + "/sub", outside} {
			if err := unix.Unmount(d, unix.MNT_DETACH); err != nil {
				t.Errorf("%s: the original was unmounted with its copy: %v", d, err)
			}
		}
	})
	// A shared tree outside, bound below: its parts must stay where they are.
	mountAt("hst7", outside, "tmpfs", 0)
	if err := unix.Mount("", outside, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	mountAt("hst7", outside+"/sub", "tmpfs", 0)
	mountAt(outside, dir+"/a b/copy", "", unix.MS_BIND|unix.MS_REC)
	mountAt("hst7", dir+"/twice", "tmpfs", 0)
	mountAt("hst7", dir+"/twice", "tmpfs", 0)
	mountAt("hst7", dir+"/twice/deep", "tmpfs", 0)
	busy, err := os.Create(dir + "/twice/deep/open")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := SweepMounts(link); err != nil {
			t.Error(err)
		}
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	if left := below(mounts, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
