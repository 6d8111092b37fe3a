package sandboxes_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

func TestRestartKeepsWhatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving()...)
		r.start("two", r.serving()...)
		one, two := r.ready("one"), r.ready("two")
		synctest.Wait()
		before, err := os.Stat(filepath.Join(r.path, "one", "input"))
		if err != nil {
			t.Fatal(err)
		}
		dir, _ := r.set.Inputs("one")
		if err := dir.Input.WriteFile("request", []byte("of the daemon that ended"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.reported = nil
		began := time.Now()
		r.restart()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		r.wantReported() // the registration tells
		r.wantStatuses(isReady("one", one), isReady("two", two))
		if at := r.ready("one"); at != one {
			t.Errorf("ready at %s, want %s", at, one)
		}

		// The sandbox sees the same directory, without what nobody waits for.
		dir, _ = r.set.Inputs("one")
		inputs := dir.Input
		after, err := inputs.Stat(".")
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("another directory: %v", err)
		}
		if _, err := inputs.Stat("request"); !os.IsNotExist(err) {
			t.Errorf("the input of a request that is gone: %v", err)
		}
		if err := inputs.WriteFile("next", nil, 0o600); err != nil {
			t.Error(err)
		}

		// They are watched as before.
		r.node.Exit("one", 1)
		r.set.Stop("two", time.Second)
		synctest.Wait()
		if len(r.reported) != 2 {
			t.Errorf("reported %v", r.reported)
		}
		r.wantNothing("one")
	})
}

// An instance that runs but is not ready when its daemon is killed is not taken for
// one that is.
func TestRestartAfterAKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving(time.Hour)...)
		synctest.Wait()
		if len(r.node.Sandboxes()) != 1 {
			t.Fatal("it does not run")
		}
		killed := r.set // it cannot close
		r.open()
		r.wantNothing("one")
		killed.Close()
	})
}

// An instance whose program ended while no daemon was there is no instance any more.
func TestRestartRemovesWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving()...)
		r.ready("one")
		synctest.Wait()
		r.set.Close()
		r.node.Exit("one", 1)
		r.reported = nil
		r.open()
		r.wantReported()
		r.wantNothing("one")
	})
}

// How a job ended is no reason not to start, whatever is noted of it.
func TestRestartWithANoteThatCannotBeRead(t *testing.T) {
	r := newRig(t)
	r.set.Close()
	for name, text := range map[string]string{"torn": `{"id": "to`, "later": `{"id": "later", "reason": "JobFailed", "more": 1}`} {
		if err := os.MkdirAll(filepath.Join(r.path, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(r.path, name, "ended.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.open()
	r.wantReported(&nodeapi.InstanceStatus{Id: "later", Reason: "JobFailed"})
	r.wantNothing("torn")
	r.wantNothing("later")
}

// A daemon that was killed may leave anything half-made.
func TestRestartRemovesTheRest(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(dir string) error{
		"no directory": func(dir string) error { return os.Remove(dir) },
		// Its program runs, but may never be ready.
		"not ready yet": func(dir string) error { return os.Mkdir(filepath.Join(dir, "input"), 0o755) },
		"torn": func(dir string) error {
			if err := os.Mkdir(filepath.Join(dir, "input"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"po`), 0o600)
		},
		"no inputs": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"port":80}`), 0o600)
		},
		"inputs elsewhere": func(dir string) error {
			if err := os.Symlink(outside, filepath.Join(dir, "input")); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"port":80}`), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.set.Close()
				sb, err := r.node.Create(t.Context(), sandboxes.Spec{ID: "one", Function: function, Image: sandboxestest.Image,
					Args: r.serving()})
				if err != nil {
					t.Fatal(err)
				}
				if err := sb.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				dir := filepath.Join(r.path, "one")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := prepare(dir); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Join(r.path, "gone", "input", "request"), 0o700); err != nil {
					t.Fatal(err)
				}
				r.open()
				r.wantReported()
				r.wantNothing("one")
				if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A daemon's end waits for nothing but its own clean-up.
func TestCloseIsPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		slow := r.message("pulled")
		slow.Function.Image = sandboxestest.SlowImage
		r.set.Start(slow)
		r.start("starting", r.serving(time.Hour)...)
		r.start("stopping", r.stubborn()...)
		r.start("ready", r.stubborn()...)
		at := r.ready("ready")
		r.ready("stopping")
		r.set.Stop("stopping", time.Hour)
		waiting := make(chan error, 1)
		go func() {
			_, err := r.set.Ready(t.Context(), "pulled")
			waiting <- err
		}()
		synctest.Wait()
		began := time.Now()
		r.set.Close()
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		if err := <-waiting; err == nil || err.Error() != "DaemonStopping: the node's daemon is being stopped" {
			t.Errorf("who waits is told %v", err)
		}
		if diff := cmp.Diff([]string{"ready"}, r.node.Sandboxes()); diff != "" {
			t.Errorf("sandboxes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"ready"}, r.files()); diff != "" {
			t.Errorf("files (-want +got):\n%s", diff)
		}
		r.start("too-late", r.serving()...)
		r.wantStatuses(isReady("ready", at))
		r.open()
		r.wantStatuses(isReady("ready", at))
	})
}

// Whatever comes at the same time, each instance is told of in order, and nothing is
// left of those that ended.
func TestAllAtOnce(t *testing.T) {
	const count = 40
	node, port := sandboxestest.NewMemory(94), porttest.Free(t)
	var mu sync.Mutex
	told := map[string][]nodeapi.Phase{}
	set, err := sandboxes.OpenLocal(t.Context(), sandboxes.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)},
		node, func(s *nodeapi.InstanceStatus) {
			mu.Lock()
			defer mu.Unlock()
			told[s.GetId()] = append(told[s.GetId()], s.GetPhase())
		})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, node: node, port: port, set: set}
	programs := [][]string{r.serving(), r.stubborn(), {"exit", "1"}, r.serving(time.Millisecond), {"none"}}
	var all sync.WaitGroup
	for i := range count {
		id := "i" + strconv.Itoa(i)
		m := r.message(id, programs[i%len(programs)]...)
		all.Go(func() { set.Start(m) })
		all.Go(func() { _, _ = set.Ready(t.Context(), id) })
		all.Go(func() {
			_, _ = set.Ready(t.Context(), id)
			set.Stop(id, time.Millisecond)
		})
		all.Go(func() {
			set.Statuses()
			_, _ = set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: id})
			if dir, _ := set.Inputs(id); dir != nil {
				_ = dir.Input.WriteFile("request", nil, 0o600)
			}
		})
	}
	all.Wait()
	for i := range count {
		set.Stop("i"+strconv.Itoa(i), time.Millisecond)
	}
	deadline := time.After(patience)
	for len(node.Sandboxes()) > 0 || len(set.Statuses()) > 0 {
		select {
		case <-time.After(time.Millisecond):
		case <-deadline:
			t.Fatalf("left: %v", node.Sandboxes())
		}
	}
	set.Close()
	for id, phases := range told {
		last := phases[len(phases)-1]
		if phases[0] != nodeapi.Phase_PHASE_STARTING || last != nodeapi.Phase_PHASE_STOPPED &&
			last != nodeapi.Phase_PHASE_FAILED || len(phases) > 3 {
			t.Errorf("%s was told as %v", id, phases)
		}
	}
	if len(told) != count {
		t.Errorf("told of %d instances, want %d", len(told), count)
	}
}
