//go:build integration

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

func TestRuntime(t *testing.T) {
	n := newNode(t)
	sandboxestest.Run(t, func(*testing.T) sandboxestest.Node {
		return sandboxestest.Node{
			Open:  func(t *testing.T) (sandboxes.Containers, func()) { return n.open(t) },
			Image: testImage,
			Left:  n.left,
		}
	})
	noLinks(t)
}

// noLinks: with the sandboxes go their links to the bridge.
func noLinks(t *testing.T) {
	t.Helper()
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Type() == "veth" {
			t.Errorf("link %s is left", l.Attrs().Name)
		}
	}
}

// running starts a program that listens for nobody.
func (n *node) running(t *testing.T, r *Runtime, s sandboxes.Spec) sandboxes.Container {
	t.Helper()
	sb, err := r.Create(t.Context(), s)
	if err == nil {
		err = sb.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func (n *node) nothing(t *testing.T, id string) {
	t.Helper()
	eventually(t, func() string {
		if left := n.left(t, id); len(left) > 0 {
			return "left: " + strings.Join(left, ", ")
		}
		return ""
	})
}

// eventually waits until wrong returns nothing.
func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		what := wrong()
		if what == "" {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal(what)
		}
	}
}

func ended(t *testing.T, sb sandboxes.Container) {
	t.Helper()
	select {
	case <-sb.Exited():
	case <-time.After(patience):
		t.Fatal("the end of the program was not told")
	}
}

func TestSpecIsHeeded(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	s := n.spec("spec")
	s.Command, s.Args = []string{"/programs", "serve"}, []string{"8080"}
	s.Env = map[string]string{"GREETING": "hello"}
	s.CPULimitMillis, s.MemoryLimit = 1500, 64<<20
	sb := n.running(t, r, s)
	container, err := n.client.LoadContainer(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := container.Spec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	limits := spec.Linux.Resources
	if *limits.CPU.Quota != 150_000 || *limits.CPU.Period != 100_000 || *limits.Memory.Limit != s.MemoryLimit {
		t.Errorf("limits: CPU %d of %d, memory %d", *limits.CPU.Quota, *limits.CPU.Period, *limits.Memory.Limit)
	}
	if !spec.Process.NoNewPrivileges || spec.Process.User.UID == 0 || spec.Linux.Seccomp == nil {
		t.Error("the program may do more than a function should")
	}
	eventually(t, func() string {
		const want = "GREETING is hello\n"
		if got, _ := os.ReadFile(r.logs.path(s.Function)); string(got) != want {
			return "the log: " + string(got)
		}
		return ""
	})
	if err := sb.Remove(t.Context(), patience); err != nil {
		t.Error(err)
	}
	if got := sb.Output(); got != "GREETING is hello\n" {
		t.Errorf("its output is %q", got)
	}
	n.nothing(t, s.ID)
}

// What a program says before it ends at once is all there when its sandbox is removed.
func TestTheLastWordsOfAProgram(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	for i := range 10 {
		s := n.spec(fmt.Sprint("words-", i), "exit", "3")
		s.Env = map[string]string{"GREETING": fmt.Sprint(i), "COMPLAINT": "no database"}
		sb := n.running(t, r, s)
		ended(t, sb)
		if err := sb.Remove(t.Context(), 0); err != nil {
			t.Error(err)
		}
		// Each comes by a pipe of its own.
		got, greeting := sb.Output(), fmt.Sprintf("GREETING is %d\n", i)
		if got != greeting+"no database\n" && got != "no database\n"+greeting {
			t.Errorf("its output is %q", got)
		}
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	s := n.spec("absent")
	s.Command = []string{"/absent"}
	sb, err := r.Create(t.Context(), s)
	if err == nil {
		err = sb.Start(t.Context())
		if err := sb.Remove(t.Context(), patience); err != nil {
			t.Error(err)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "/absent") {
		t.Errorf("%v, want an error that names the program", err)
	}
	n.nothing(t, s.ID)
}

// A shim that dies takes its program along, and somebody must hear of it.
func TestShimDies(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	sb := n.running(t, r, n.spec("orphan", "serve", "8080"))
	if err := unix.Kill(shimOf(t, sb.ID()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, sb)
	if err := sb.Remove(t.Context(), patience); err != nil {
		t.Error(err)
	}
	n.nothing(t, sb.ID())
}

// Programs go on without containerd, and their ends are heard of when it is back.
func TestContainerdRestarts(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	var ends []sandboxes.Container
	for _, id := range []string{"before", "after"} {
		ends = append(ends, n.running(t, r, n.spec(id, "serve", "8080")))
	}
	n.stop(t)
	n.start(t, os.Getenv(binEnv))
	for _, sb := range ends {
		select {
		case <-sb.Exited():
			t.Error("told to have ended")
		default:
		}
		if err := sb.Remove(t.Context(), patience); err != nil {
			t.Error(err)
		}
		ended(t, sb)
		n.nothing(t, sb.ID())
	}
}

// What is asked while containerd restarts waits for it.
func TestCreateWaitsForContainerd(t *testing.T) {
	n := newNode(t)
	n.stop(t)
	r, end := n.open(t)
	defer end()
	type made struct {
		sb  sandboxes.Container
		err error
	}
	create := make(chan made, 1)
	go func() {
		sb, err := r.Create(t.Context(), n.spec("patient", "serve", "8080"))
		create <- made{sb, err}
	}()
	n.start(t, os.Getenv(binEnv))
	got := <-create
	if got.err != nil {
		t.Fatal(got.err)
	}
	if err := got.sb.Remove(t.Context(), 0); err != nil {
		t.Error(err)
	}
	n.nothing(t, "patient")
	n.stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := r.Create(ctx, n.spec("impatient", "serve", "8080")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of its time", err)
	}
	n.start(t, os.Getenv(binEnv))
	n.nothing(t, "impatient")
}

// After a reboot there are names of namespaces, leases and containers, and nothing that
// runs. The same goes for a daemon that was killed between a name and its mount.
func TestReboot(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	sb := n.running(t, r, n.spec("booted", "serve", "8080"))
	if err := unix.Kill(shimOf(t, sb.ID()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(t, sb)
	end()
	if err := unix.Unmount(n.path("headstart/netns/booted"), unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path("headstart/netns/named"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r, end = n.open(t)
	defer end()
	if running, err := r.List(t.Context()); err != nil || len(running) > 0 {
		t.Errorf("%v, %v, want nothing that runs", running, err)
	}
	n.nothing(t, "booted")
	n.nothing(t, "named")
}

// No thread is left in a sandbox's network namespace: it would keep the namespace.
func TestNoThreadStaysInANamespace(t *testing.T) {
	n := newNode(t)
	r, end := n.open(t)
	defer end()
	own := namespaceOf(t, "/proc/self/task/"+strconv.Itoa(unix.Getpid())+"/ns/net")
	for range 32 {
		if _, err := r.net.newNamespace("threads"); err != nil {
			t.Fatal(err)
		}
		if err := r.net.removeNamespace("threads"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		threads, err := filepath.Glob("/proc/self/task/*/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			if _, err := os.Readlink(thread); err == nil && namespaceOf(t, thread) != own {
				return thread + " is in another namespace"
			}
		}
		return ""
	})
}

func namespaceOf(t *testing.T, path string) string {
	t.Helper()
	name, err := os.Readlink(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return name
}
