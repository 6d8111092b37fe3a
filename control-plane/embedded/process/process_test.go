package process_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// parentEnv makes the test binary a supervisor that a test can kill.
const parentEnv = "HST7_PROCESS_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		g := process.New(func(process.Exit) {})
		err := g.Start(context.Background(), shell("child", "echo $$; exec sleep 1000", os.Stdout))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func shell(name, script string, log io.Writer) process.Spec {
	return process.Spec{Name: name, Path: "/bin/sh", Args: []string{"-c", script}, Log: log}
}

// times are not compared: they are the clock's.
var times = cmpopts.IgnoreFields(process.Status{}, "Since", "ExitedAt")

func context10(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// lines is a log that a test can wait on.
type lines struct {
	w    *io.PipeWriter
	scan *bufio.Scanner
}

func newLines(t *testing.T) *lines {
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	return &lines{w: w, scan: bufio.NewScanner(r)}
}

func (l *lines) Write(p []byte) (int, error) { return l.w.Write(p) }

func (l *lines) next(t *testing.T) string {
	t.Helper()
	if !l.scan.Scan() {
		t.Fatalf("log ended: %v", l.scan.Err())
	}
	return l.scan.Text()
}

func (l *lines) pid(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(l.next(t))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// buffer is a log that several children may share.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func alive(t *testing.T, pid int) bool {
	t.Helper()
	table, err := process.Table()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table {
		if e.PID == pid {
			return true
		}
	}
	return false
}

// opened is a readiness that ends when the child opens the named pipe for writing.
func opened(t *testing.T) (path string, ready func(context.Context) error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "ready")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func(context.Context) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return f.Close()
	}
}

func TestStopGoesBackwards(t *testing.T) {
	log := &buffer{}
	g := process.New(func(process.Exit) {})
	for _, name := range []string{"one", "two", "three"} {
		path, ready := opened(t)
		spec := shell(name, `trap "echo `+name+`; exit 0" TERM; : >`+path+`; while :; do sleep 0.01; done`, log)
		spec.Ready = ready
		if err := g.Start(context10(t), spec); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range g.Status() {
		if s.State != process.Running || !alive(t, s.PID) {
			t.Errorf("%+v", s)
		}
	}
	g.Stop(context10(t))
	g.Stop(context10(t)) // again changes nothing
	if got := log.String(); got != "three\ntwo\none\n" {
		t.Errorf("stopped: %q", got)
	}
	want := []process.Status{
		{Name: "one", State: process.Ended, LastExit: "exit status 0"},
		{Name: "two", State: process.Ended, LastExit: "exit status 0"},
		{Name: "three", State: process.Ended, LastExit: "exit status 0"},
	}
	if d := cmp.Diff(want, g.Status(), times); d != "" {
		t.Error(d)
	}
	if err := g.Start(context10(t), shell("late", "exit 0", nil)); !errors.Is(err, process.ErrStopped) {
		t.Errorf("start after stop: %v", err)
	}
}

func TestAChildThatFailsToStartSaysWhy(t *testing.T) {
	never := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refused := func(context.Context) error { return errors.New("no such luck") }
	for what, c := range map[string]struct {
		spec process.Spec
		want []string
	}{
		"ends with an error": {
			process.Spec{Path: "/bin/sh", Args: []string{"-c", "echo cannot bind >&2; exit 3"}, Ready: never, Restart: true},
			[]string{"starting x", "exit status 3", "cannot bind"},
		},
		"ends too early": {
			process.Spec{Path: "/bin/sh", Args: []string{"-c", "echo bye"}, Ready: never},
			[]string{"ended before it was ready: exit status 0", "bye"},
		},
		"is never ready": {
			process.Spec{Path: "/bin/sh", Args: []string{"-c", "exec sleep 1000"}, Ready: refused},
			[]string{"waiting until it is ready: no such luck"},
		},
		"is not a program": {
			process.Spec{Path: "/absent/program", Restart: true},
			[]string{"/absent/program", "no such file"},
		},
		"has no such namespace": {
			process.Spec{Path: "/bin/sh", NetNS: "/absent/namespace", Restart: true},
			[]string{"network namespace", "/absent/namespace"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			g := process.New(func(process.Exit) {})
			c.spec.Name = "x"
			err := g.Start(context10(t), c.spec)
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
			if s := g.Status(); len(s) != 0 {
				t.Errorf("the group keeps %+v", s)
			}
		})
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	log := newLines(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pid int
	spec := shell("stubborn", `trap "" TERM; echo $$; while :; do sleep 0.01; done`, log)
	spec.Ready = func(ctx context.Context) error {
		pid = log.pid(t)
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	g := process.New(func(process.Exit) {})
	if err := g.Start(ctx, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("start: %v", err)
	}
	if alive(t, pid) {
		t.Error("the child lives on")
	}
}

func TestADeadChildIsStartedAgain(t *testing.T) {
	exits := make(chan process.Exit, 16)
	g := process.New(func(e process.Exit) { exits <- e })
	log := newLines(t)
	spec := shell("phoenix", "echo $$; exec sleep 1000", log)
	spec.Restart = true
	if err := g.Start(context10(t), spec); err != nil {
		t.Fatal(err)
	}
	first := log.pid(t)
	if err := unix.Kill(first, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := <-exits; e.PID != first || e.Stopping || e.Restart != 50*time.Millisecond || e.Err == nil {
		t.Errorf("exit: %+v", e)
	}
	second := log.pid(t)
	for g.Status()[0].State != process.Running { // its log may be faster than its status
		runtime.Gosched()
	}
	want := []process.Status{{Name: "phoenix", State: process.Running, PID: second, Restarts: 1, LastExit: "signal: killed"}}
	if d := cmp.Diff(want, g.Status(), times); d != "" {
		t.Error(d)
	}
	if s := g.Status()[0]; s.ExitedAt.IsZero() || !s.Since.After(s.ExitedAt) {
		t.Errorf("it ended at %s and runs since %s", s.ExitedAt, s.Since)
	}
	g.Stop(context10(t))
	if e := <-exits; e.PID != second || !e.Stopping || e.Restart >= 0 {
		t.Errorf("exit: %+v", e)
	}
	if alive(t, second) {
		t.Error("the child lives on")
	}
}

func TestStopDoesNotWaitForARestart(t *testing.T) {
	waiting := make(chan struct{})
	var once sync.Once
	g := process.New(func(e process.Exit) {
		if e.Restart >= time.Second { // the delay has grown
			once.Do(func() { close(waiting) })
		}
	})
	spec := shell("mayfly", "exit 1", nil)
	spec.Restart = true
	if err := g.Start(context10(t), spec); err != nil {
		t.Fatal(err)
	}
	<-waiting
	g.Stop(context10(t))
	if s := g.Status()[0]; s.State != process.Ended || s.LastExit != "exit status 1" || s.Restarts < 4 {
		t.Errorf("%+v", s)
	}
}

func TestNothingOfAProcessGroupSurvives(t *testing.T) {
	deaf := `trap "" TERM; `
	orphan := `sh -c 'trap "" TERM; echo $$; while :; do sleep 0.01; done' & `
	for what, c := range map[string]struct {
		script string
		stop   func(*testing.T, *process.Group)
	}{
		"polite child, deaf grandchild": {
			orphan + "wait", func(t *testing.T, g *process.Group) { g.Stop(context10(t)) },
		},
		"deaf child": {
			deaf + orphan + "while :; do sleep 0.01; done", func(t *testing.T, g *process.Group) { g.Stop(context10(t)) },
		},
		"deaf child, no time left": {
			deaf + orphan + "while :; do sleep 0.01; done", func(t *testing.T, g *process.Group) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				g.Stop(ctx)
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			log := newLines(t)
			g := process.New(func(process.Exit) {})
			spec := shell("x", c.script, log)
			spec.StopTimeout = 50 * time.Millisecond
			if strings.Contains(what, "no time") {
				spec.StopTimeout = time.Hour
			}
			if err := g.Start(context10(t), spec); err != nil {
				t.Fatal(err)
			}
			grandchild, child := log.pid(t), g.Status()[0].PID
			c.stop(t, g)
			// SIGKILL is sent; an orphan's end is init's to reap.
			awaitEnd(t, grandchild)
			if alive(t, child) {
				t.Error("the child lives on")
			}
		})
	}
}

// awaitEnd returns when the process is dead, or fails the test.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
	}
	if n != 1 || err != nil {
		t.Errorf("process %d lives on: %v", pid, err)
	}
}

func TestAKilledSupervisorTakesItsChildrenWithIt(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	child, atoiErr := strconv.Atoi(strings.TrimSpace(line))
	if err := errors.Join(err, atoiErr, parent.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	awaitEnd(t, child)
}

// The parent-death signal belongs to a thread. Threads that come and go must not
// take children with them.
func TestChildrenOutliveTheThreadsAroundThem(t *testing.T) {
	ended := make(chan process.Exit, 1)
	g := process.New(func(e process.Exit) { ended <- e })
	if err := g.Start(context10(t), shell("x", "exec sleep 1000", nil)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { runtime.LockOSThread() }) // ends its thread
	}
	wg.Wait()
	select {
	case e := <-ended:
		t.Errorf("ended: %+v", e)
	default:
	}
	g.Stop(context10(t))
	if e := <-ended; !e.Stopping {
		t.Errorf("%+v", e)
	}
}

func TestStopEnvironmentAndArguments(t *testing.T) {
	log := &buffer{}
	path, ready := opened(t)
	g := process.New(func(process.Exit) {})
	err := g.Start(context10(t), process.Spec{
		Name: "x", Path: "/bin/sh", Env: []string{"COLOUR=green"}, Log: log, Ready: ready,
		Args: []string{
			"-c",
			`trap "echo stopped; exit" TERM; echo $COLOUR $HOME $1; : >` + path + `; while :; do /bin/sleep 0.01; done`,
			"sh", "arg",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.Stop(context10(t))
	if got := log.String(); got != "green arg\nstopped\n" {
		t.Errorf("%q", got)
	}
}

// failing is a log on a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestAFullLogDiskDoesNotKillTheChild(t *testing.T) {
	path, ready := opened(t)
	g := process.New(func(process.Exit) {})
	spec := shell("x", "echo lost; echo lost; : >"+path+"; exec sleep 1000", failing{})
	spec.Ready = ready
	if err := g.Start(context10(t), spec); err != nil {
		t.Fatal(err)
	}
	if s := g.Status()[0]; s.State != process.Running {
		t.Errorf("%+v", s)
	}
	g.Stop(context10(t))
}
