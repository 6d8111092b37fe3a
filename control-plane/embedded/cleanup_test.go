package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

func platform(t *testing.T) *Platform {
	t.Helper()
	dir := t.TempDir()
	return &Platform{o: Options{RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state")}}
}

func mkdir(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeftNodes(t *testing.T) {
	p := platform(t)
	if got, err := p.leftNodes(); err != nil || len(got) != 0 {
		t.Errorf("nothing is there: %v, %v", got, err)
	}
	mkdir(t, p.run("edge/containerd"), p.run("cloud/containerd"), p.run("pki"), p.state("edge"), p.state("old"))
	got, err := p.leftNodes()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"cloud", "edge", "old"}, got); d != "" {
		t.Error(d)
	}
}

// A killed platform may have had another state directory: its shims go all the same.
func TestShimsAreSweptWithANewStateDir(t *testing.T) {
	p := platform(t)
	work := p.run("edge/containerd/work")
	mkdir(t, work)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shim := exec.Command(self)
	shim.Args = []string{"containerd-shim-headstart-v2"}
	shim.Dir, shim.Env = work, append(os.Environ(), idle+"=1")
	stdin, err := shim.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	if err := shim.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.sweepNodes(t.Context()); err != nil {
		t.Error(err)
	}
	stdin.Close() // a shim that was spared ends by itself
	if err := shim.Wait(); err == nil {
		t.Error("the shim was not killed")
	}
}

// A start that is interrupted kills containerd, which then leaves its socket. There is nothing to
// ask it for, and the user reads that nothing is left.
func TestAContainerdThatNeverServedIsNotAsked(t *testing.T) {
	p := platform(t)
	p.o.Progress = func(string) {}
	p.containerds = process.New(func(process.Exit) {})
	run := p.run("edge")
	bin := t.TempDir()
	mkdir(t, run, filepath.Join(p.o.StateDir, "log"))
	if err := os.WriteFile(filepath.Join(bin, "containerd"), []byte("#!/bin/sh\nexec sleep 60\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	socket := filepath.Join(run, "containerd.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if err := p.startContainerd(
		ctx, network.Node{Name: "edge"}, run, p.state("edge"),
	); !errors.Is(err, context.Canceled) {
		t.Errorf("it says: %v", err)
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	options := func(run, state string) Options {
		return Options{Name: "of" + run + state, RunDir: filepath.Join(dir, run), StateDir: filepath.Join(dir, state)}
	}
	take := func(o Options) *Platform {
		t.Helper()
		locks, err := takeLocks(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		return &Platform{o: o, locks: locks}
	}
	first := take(options("a", "state-a"))
	for run, tt := range map[string]struct{ state, flag string }{
		"b": {"state-a", "--state-dir " + first.o.StateDir},
		"a": {"state-b", "--run-dir " + first.o.RunDir},
	} {
		_, err := takeLocks(dir, options(run, tt.state))
		if err == nil || !strings.Contains(err.Error(), "a platform is running with "+tt.flag+" already") {
			t.Errorf("%s, %s: %v", run, tt.state, err)
		}
	}
	second := take(options("b", "state-b")) // what was refused has kept no lock
	info, err := os.Stat(filepath.Join(first.o.StateDir, lockName))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	for _, p := range []*Platform{first, second} {
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(p.o.RunDir); !os.IsNotExist(err) {
			t.Errorf("run directory: %v", err)
		}
	}
	again := take(first.o)
	if err := again.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// The name is what is swept by, so a second platform of it is refused in other directories, too,
// before it touches anything; and nothing of the lock stays.
func TestANameIsTakenOnce(t *testing.T) {
	dir, locks := t.TempDir(), t.TempDir()
	options := func(name, at string) Options {
		return Options{Name: name, RunDir: filepath.Join(dir, "run-"+at), StateDir: filepath.Join(dir, "state-"+at)}
	}
	killed := filepath.Join(locks, "headstart-hs.lock")
	if err := os.WriteFile(killed, []byte(strings.Repeat("of a platform that was killed", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := takeLocks(locks, options("hs", "a"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = takeLocks(locks, options("hs", "b"))
	for _, want := range []string{"--name hs is running already", fmt.Sprintf("process %d", os.Getpid()), options("", "a").RunDir, "start another one with --name"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "killed") {
		t.Errorf("it has another platform's words: %v", err)
	}
	if _, err := os.Stat(options("", "b").StateDir); !os.IsNotExist(err) {
		t.Errorf("the one that is refused has made its directory: %v", err)
	}
	other, err := takeLocks(locks, options("hs1", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(letGo(first), letGo(other)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(locks); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// However many start and end at the same time, one has the name.
func TestANameIsNeverTakenTwice(t *testing.T) {
	dir := t.TempDir()
	var holders, most, taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				l, err := takeName(dir, Options{Name: "hs"})
				if err != nil {
					continue
				}
				taken.Add(1)
				if n := holders.Add(1); n > 1 {
					most.Store(n)
				}
				holders.Add(-1)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most.Load() > 0 || taken.Load() == 0 {
		t.Errorf("%d had it at a time, of %d", most.Load(), taken.Load())
	}
}

// Nodes start at the same time, and each opens logs.
func TestLogsAreOpenedConcurrently(t *testing.T) {
	const logs = 50
	p := platform(t)
	var wg sync.WaitGroup
	for i := range logs {
		wg.Go(func() { p.log(fmt.Sprint("process-", i)) })
	}
	wg.Wait()
	if len(p.logs) != logs {
		t.Errorf("%d logs are known, want %d", len(p.logs), logs)
	}
}

func TestARunDirectoryOfOthersIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	theirs := filepath.Join(dir, "theirs")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := takeLocks(t.TempDir(), Options{RunDir: dir, StateDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "--run-dir "+dir) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}
