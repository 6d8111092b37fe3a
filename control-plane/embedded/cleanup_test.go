package embedded

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestLocks(t *testing.T) {
	dir := t.TempDir()
	options := func(run, state string) Options {
		return Options{RunDir: filepath.Join(dir, run), StateDir: filepath.Join(dir, state)}
	}
	take := func(o Options) *Platform {
		t.Helper()
		locks, err := takeLocks(o)
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
		_, err := takeLocks(options(run, tt.state))
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
	_, err := takeLocks(Options{RunDir: dir, StateDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "--run-dir "+dir) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Error(err)
	}
}
