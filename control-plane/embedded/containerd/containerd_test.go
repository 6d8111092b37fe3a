package containerd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// containerd's client dials on, for at most its timeout, after its caller has left.
		goleak.IgnoreAnyFunction("github.com/containerd/containerd/v2/pkg/dialer.timeoutDialer.func1"))
}

func TestConfig(t *testing.T) {
	got := string(Config(Paths{Root: "/var/hs/root", State: `/run/h "s"/state`, Socket: "/run/hs/c.sock"}))
	want := `version = 2
root = "/var/hs/root"
state = "/run/h \"s\"/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]

[grpc]
  address = "/run/hs/c.sock"
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestWaitReadyEndsWithItsContext(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "c.sock")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WaitReady(ctx, socket); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), socket) {
		t.Errorf("no socket: %v", err)
	}
	// Somebody listens there and never says a word.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel = context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- WaitReady(ctx, socket) }()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	cancel()
	if err := <-done; err == nil {
		t.Error("a mute socket is ready")
	}
}

func TestMountsBelow(t *testing.T) {
	const table = `22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 0:30 / /run/hs/a\040b/rootfs rw shared:3 - overlay overlay rw,lowerdir=/x
31 30 0:31 / /run/hs/a\040b/rootfs/proc rw shared:3 master:1 - proc proc rw
32 27 0:31 / /run/hs rw - tmpfs tmpfs rw
33 27 0:31 / /run/hsx/rootfs rw - tmpfs tmpfs rw
34 27 0:31 / /run/hs/a\040b/rootfs rw - tmpfs tmpfs rw
35 27 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
`
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/run/hs/a b/rootfs/proc", "/run/hs/a b/rootfs"}
	if d := cmp.Diff(want, below(mounts, "/run/hs")); d != "" {
		t.Error(d)
	}
}

// All that is in the cgroup gets killed: it has to be the container's own.
func TestOnlyAContainersOwnCgroupCounts(t *testing.T) {
	for spec, want := range map[string]string{
		`{"linux":{"cgroupsPath":"/headstart/f1"}}`:       "/headstart/f1",
		`{"linux":{"cgroupsPath":"/a/b/f1"}}`:             "/a/b/f1",
		`{"linux":{"cgroupsPath":"/"}}`:                   "",
		`{"linux":{"cgroupsPath":""}}`:                    "",
		`{"linux":{"cgroupsPath":"/f1"}}`:                 "",
		`{"linux":{"cgroupsPath":"/headstart"}}`:          "",
		`{"linux":{"cgroupsPath":"/headstart/f1/"}}`:      "",
		`{"linux":{"cgroupsPath":"/headstart/../f1"}}`:    "",
		`{"linux":{"cgroupsPath":"headstart/f1"}}`:        "",
		`{"linux":{"cgroupsPath":"system.slice:cri:f1"}}`: "",
		`{"linux":{"cgroupsPath":"/headstart/other"}}`:    "",
		`{"linux":{"cgroupsPath":7}}`:                     "",
		`{"linux":{"cgroupsPath":"/headstart/f1"`:         "",
		``: "",
	} {
		if got := ownCgroup([]byte(spec), "f1"); got != want {
			t.Errorf("%s: %q", spec, got)
		}
	}
}

func FuzzOwnCgroup(f *testing.F) {
	f.Add([]byte(`{"linux":{"cgroupsPath":"/headstart/f1"}}`), "f1")
	f.Add([]byte(`{"linux":{"cgroupsPath":"/.."}}`), "..")
	f.Fuzz(func(t *testing.T, spec []byte, id string) {
		if c := ownCgroup(spec, id); c != "" && (strings.Count(c, "/") < 2 || filepath.Clean(c) != c || filepath.Base(c) != id) {
			t.Errorf("%q for %q", c, id)
		}
	})
}

func TestOnlyAShimsSocketIsRemoved(t *testing.T) {
	for address, want := range map[string]string{
		"unix:///run/containerd/s/0a1b":   "/run/containerd/s/0a1b",
		"unix:///run/containerd/s/0a1b\n": "/run/containerd/s/0a1b",
		"unix:///run/containerd/s/../x":   "",
		"unix:///run/containerd/s/":       "",
		"unix:///etc/passwd":              "",
		"/run/containerd/s/0a1b":          "",
		"vsock://1:2":                     "",
		"":                                "",
	} {
		if got := shimSocket(address); got != want {
			t.Errorf("%q: %q", address, got)
		}
	}
}

func TestRuncDirectory(t *testing.T) {
	for options, want := range map[string]string{
		``:                      "/run/containerd/runc",
		`{}`:                    "/run/containerd/runc",
		`{"root":"/run/other"}`: "/run/other",
		`{"root":"relative"}`:   "/run/containerd/runc",
		`{"root":"/run/other"`:  "/run/containerd/runc",
	} {
		if got := runcDir([]byte(options)); got != want {
			t.Errorf("%s: %q", options, got)
		}
	}
}

func TestCgroupMembership(t *testing.T) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	_, place, _ := strings.Cut(strings.TrimSpace(strings.Split(string(own), "\n")[0]), "/")
	place = "/" + place
	for cgroup, want := range map[string]bool{place: true, place + "/below": false, "/nobody/has/this": false} {
		if got := inCgroup(os.Getpid(), []string{cgroup}); got != want {
			t.Errorf("%s: %v, want %v", cgroup, got, want)
		}
	}
}

func TestBundlesAreFoundHoweverIncomplete(t *testing.T) {
	state := filepath.Join(t.TempDir(), "a [*]") // no pattern
	for file, content := range map[string]string{
		"ns/full/config.json":    `{"linux":{"cgroupsPath":"/ns/full"}}`,
		"ns/full/options.json":   `{"root":"/run/other"}`,
		"ns/full/address":        "unix:///run/containerd/s/0a",
		"ns/half/config.json":    `{"linux":`,
		"ns/half/bootstrap.json": `{"version":`,
		"ns/new/bootstrap.json":  `{"version":3,"address":"unix:///run/containerd/s/0b","protocol":"ttrpc"}`,
	} {
		name := filepath.Join(state, taskDir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := listBundles(state)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(state, taskDir, "ns")
	want := []bundle{
		{dir + "/full", "ns", "full", "/ns/full", "/run/containerd/s/0a", "/run/other/ns/full"},
		{dir + "/half", "ns", "half", "", "", "/run/containerd/runc/ns/half"},
		{dir + "/new", "ns", "new", "", "/run/containerd/s/0b", "/run/containerd/runc/ns/new"},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(bundle{})); d != "" {
		t.Error(d)
	}
}

func TestSweepingNothingDoesNothing(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent")} {
		if err := SweepShims(t.Context(), dir); err != nil {
			t.Errorf("shims: %v", err)
		}
		if err := SweepMounts(dir); err != nil {
			t.Errorf("mounts: %v", err)
		}
	}
}

// Only shims by name and place are swept: this test's own process works below the
// directory, and has no such name.
func TestOthersAreNoShims(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if isShim(os.Getpid(), filepath.Dir(dir)) {
		t.Error("the test is taken for a shim")
	}
	table := []process.Entry{{PID: os.Getpid(), Parent: os.Getppid()}}
	if found := leftovers(filepath.Dir(dir), nil)(table); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
