package sandboxes_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging/stagingtest"
)

// world is a node with one sandbox, which one of the runtimes runs.
type world struct {
	*testing.T
	*sandboxes.Set
	config sandboxes.Config
	id     string

	// open starts the daemon.
	open func()
	// enter has the sandbox made, and ready; job is nil unless it is a job's.
	enter func(job *nodeapi.Job) *nodeapi.DescribeResponse
	// again is the answer to a shim that asks again.
	again func() *nodeapi.DescribeResponse
	// stage is asked before the program starts.
	stage func() error
	// leave ends the sandbox.
	leave func()
}

// restart is the daemon's.
func (w *world) restart() {
	w.Close()
	w.open()
}

func (w *world) dir(path ...string) string {
	return filepath.Join(append([]string{w.config.Dir}, path...)...)
}

// both runs a test with each of the runtimes.
func both(t *testing.T, test func(w *world)) {
	for name, start := range map[string]func(*testing.T) *world{"local": localWorld, "kubelet": kubeletWorld} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(start(t)) })
		})
	}
}

func localWorld(t *testing.T) *world {
	r := newRig(t)
	w := &world{T: t, id: "one", config: r.config()}
	r.set.Close()
	asked := func() *nodeapi.DescribeResponse {
		d, err := r.set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: w.id})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	w.again = asked
	w.open = func() {
		r.configure = w.config
		r.open()
		w.Set = r.set.Set
	}
	w.stage = func() error {
		_, err := r.set.Stage(t.Context(), &nodeapi.StageRequest{Sandbox: w.id})
		return err
	}
	w.enter = func(job *nodeapi.Job) *nodeapi.DescribeResponse {
		m := r.message(w.id, r.serving()...)
		if m.Job = job; job != nil {
			job.Id, m.Function.Port = w.id, 0
		}
		r.set.Start(m)
		synctest.Wait()
		r.ready(w.id)
		return asked()
	}
	w.leave = func() {
		r.set.Stop(w.id, 0)
		synctest.Wait()
	}
	w.open()
	return w
}

func kubeletWorld(t *testing.T) *world {
	r := newPodRig(t)
	w := &world{T: t, id: one, config: r.config()}
	r.Close()
	var announced *nodeapi.Instances
	asked := func() *nodeapi.DescribeResponse { return r.described("a", pod("fire-x", "a")) }
	w.again = asked
	w.open = func() {
		r.configure = w.config
		r.open()
		w.Set = r.Set
		if announced != nil {
			r.Instances(announced)
		}
	}
	w.stage = func() error { return r.stage("a", pod("fire-x", "a")) }
	w.enter = func(job *nodeapi.Job) *nodeapi.DescribeResponse {
		announced = &nodeapi.Instances{Instances: []*nodeapi.InstanceStatus{podReady("10.0.0.1:80")}}
		if job != nil {
			job.Id = w.id
			announced = &nodeapi.Instances{Jobs: []*nodeapi.Job{job}}
		}
		r.Instances(announced)
		return asked()
	}
	w.leave = func() {
		r.Instances(&nodeapi.Instances{})
		r.gone("a", pod("fire-x", "a"))
	}
	w.open()
	return w
}

// destinations are the mounts of a sandbox, which can write to none of them.
func destinations(w *world, d *nodeapi.DescribeResponse) (all []string) {
	w.Helper()
	for _, m := range d.GetMounts() {
		if all = append(all, m.GetDestination()); !m.GetReadOnly() {
			w.Errorf("%s can be written to", m.GetDestination())
		}
	}
	return all
}

// A sandbox sees one directory from its making to its end, over restarts of the daemon. What
// requests had there goes with the daemon that had them, and the directory with the sandbox.
func TestASandboxHasADirectory(t *testing.T) {
	both(t, func(w *world) {
		d := w.enter(nil)
		want := []*nodeapi.Mount{{Source: w.dir(w.id, "input"), Destination: "/headstart/input", ReadOnly: true},
			{Source: w.dir(w.id, "inputs"), Destination: "/headstart/inputs", ReadOnly: true}}
		env := map[string]string{
			"HEADSTART_INPUT_DIR": "/headstart/input", "HEADSTART_INPUTS_DIR": "/headstart/inputs",
			"HEADSTART_INSTANCE": w.id,
		}
		diff := cmp.Diff(want, d.GetMounts(), protocmp.Transform()) + cmp.Diff(env, d.GetEnv())
		if diff != "" || d.GetOtlpTarget() != "unix:/run/otlp.sock" {
			w.Errorf("described as %v (-want +got):\n%s", d, diff)
		}
		before, err := os.Stat(w.dir(w.id, "input"))
		if err != nil || before.Mode().Perm() != 0o755 {
			w.Errorf("the function's user cannot see it: %v, %v", before, err)
		}
		if info, err := os.Stat(w.dir()); err != nil || info.Mode().Perm() != 0o700 {
			w.Errorf("others can see it: %v, %v", info, err)
		}
		inputs, known := w.Inputs(w.id)
		if err := inputs.Input.WriteFile("request", nil, 0o600); err != nil || !known {
			w.Error(err)
		}
		w.restart()
		after, err := os.Stat(w.dir(w.id, "input"))
		if err != nil || !os.SameFile(before, after) || len(names(w.T, w.dir(w.id, "input"))) != 0 {
			w.Errorf("another directory, or an input of a request that is gone: %v", err)
		}
		w.leave()
		if inputs, known := w.Inputs(w.id); inputs != nil || known || len(names(w.T, w.dir())) != 0 {
			w.Errorf("left: %v", names(w.T, w.dir()))
		}
	})
}

// On a node that buffers in memory, a sandbox sees a directory there as well.
func TestInputsInMemory(t *testing.T) {
	both(t, func(w *world) {
		memory, path := stagingtest.Memory(w.T)
		w.config.Memory = memory
		w.restart()
		want := []string{"/headstart/input", "/headstart/inputs", "/headstart/memory"}
		d := w.enter(nil)
		if got := destinations(w, d); !slices.Equal(got, want) || d.GetMounts()[2].GetSource() != filepath.Join(path, w.id) {
			w.Fatalf("described as %v", d)
		}
		if info, err := os.Stat(filepath.Join(path, w.id)); err != nil || info.Mode().Perm() != 0o755 {
			w.Errorf("%v, %v", info, err)
		}
		inputs, _ := w.Inputs(w.id)
		if err := inputs.Memory.WriteFile("request", nil, 0o444); err != nil {
			w.Error(err)
		}
		if err := os.Mkdir(filepath.Join(path, "default_left_u-1"), 0o755); err != nil {
			w.Fatal(err)
		}
		w.restart()
		if got := destinations(w, w.again()); !slices.Equal(got, want) {
			w.Errorf("after a restart: %v", got)
		}
		if left := names(w.T, filepath.Join(path, w.id)); len(left) != 0 {
			w.Errorf("inputs of requests that are gone: %v", left)
		}
		if left := names(w.T, path); !slices.Equal(left, []string{w.id}) {
			w.Errorf("what a kill has left: %v", left)
		}
		w.leave()
		if left := append(names(w.T, path), names(w.T, w.dir())...); len(left) != 0 {
			w.Errorf("left: %v", left)
		}
	})
}

// Each named input has a directory of its own, which the function's user sees from when it is first
// used. A restart takes out what is left of requests that are gone.
func TestNamedInputs(t *testing.T) {
	both(t, func(w *world) {
		memory, path := stagingtest.Memory(w.T)
		w.config.Memory = memory
		w.restart()
		w.enter(nil)
		for range 2 {
			inputs, _ := w.Inputs(w.id)
			mask, err := inputs.For("mask")
			if err != nil || mask == nil {
				w.Fatalf("%v, %v", mask, err)
			}
			if again, err := inputs.For("mask"); again != mask || err != nil {
				w.Errorf("another one: %v", err)
			}
			if err := errors.Join(
				mask.Input.WriteFile("request", nil, 0o444), mask.Memory.WriteFile("request", nil, 0o444),
			); err != nil {
				w.Error(err)
			}
			for _, dir := range []string{
				w.dir(w.id, "inputs"), w.dir(w.id, "inputs", "mask"), filepath.Join(path, w.id, "inputs", "mask"),
			} {
				if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
					w.Errorf("%s: %v, %v", dir, info, err)
				}
			}
			w.restart()
			if left := append(
				names(w.T, w.dir(w.id, "inputs")), names(w.T, filepath.Join(path, w.id))...,
			); len(left) != 0 {
				w.Errorf("after a restart: %v", left)
			}
		}
		w.leave()
		if left := append(names(w.T, path), names(w.T, w.dir())...); len(left) != 0 {
			w.Errorf("left: %v", left)
		}
	})
}

// A sandbox from before there were named inputs sees none: its program would find no file.
func TestASandboxFromBeforeNamedInputs(t *testing.T) {
	both(t, func(w *world) {
		w.enter(nil)
		if err := os.Remove(w.dir(w.id, "inputs")); err != nil {
			w.Fatal(err)
		}
		w.restart()
		d := w.again()
		if got := destinations(w, d); !slices.Equal(got, []string{"/headstart/input"}) || d.GetEnv()["HEADSTART_INPUTS_DIR"] != "" {
			w.Errorf("described as %v", d)
		}
		inputs, _ := w.Inputs(w.id)
		if mask, err := inputs.For("mask"); mask != nil || err != nil {
			w.Errorf("%v, %v", mask, err)
		}
	})
}

// A sandbox that was made without memory has none later: it would see names that lead nowhere.
func TestASandboxFromBeforeMemory(t *testing.T) {
	both(t, func(w *world) {
		w.enter(nil)
		memory, path := stagingtest.Memory(w.T)
		w.config.Memory = memory
		w.restart()
		if got := destinations(w, w.again()); !slices.Equal(got, []string{"/headstart/input", "/headstart/inputs"}) {
			w.Errorf("described with %v", got)
		}
		if inputs, _ := w.Inputs(w.id); inputs == nil || inputs.Memory != nil {
			w.Errorf("inputs are at %+v", inputs)
		}
		if made := names(w.T, path); len(made) != 0 {
			w.Errorf("made: %v", made)
		}
	})
}

// A sandbox is described by the sum of its needs, which it has from before its making to its end,
// over restarts of the daemon.
func TestNeedsAreBrought(t *testing.T) {
	both(t, func(w *world) {
		env := map[string]string{"HEADSTART_SOCKET": "/headstart/socket/x"}
		socket := &provider{name: "socket", need: sandboxes.Need{Env: env}}
		volume := &provider{name: "volume"}
		w.config.Providers = []sandboxes.Provider{socket, volume}
		w.restart()
		d := w.enter(nil)
		want := []string{"/headstart/input", "/headstart/inputs", "/headstart/socket", "/headstart/volume"}
		if got := destinations(w, d); !slices.Equal(got, want) || d.GetEnv()["HEADSTART_SOCKET"] != env["HEADSTART_SOCKET"] {
			w.Errorf("described as %v", d)
		}
		source := d.GetMounts()[2].GetSource()
		if info, err := os.Stat(source); err != nil || info.Mode().Perm() != 0o755 || source != w.dir(w.id, "socket") {
			w.Errorf("the function's user cannot get to %s: %v, %v", source, info, err)
		}
		next := &provider{name: "socket"}
		w.config.Providers = []sandboxes.Provider{next}
		w.restart()
		for _, p := range []*provider{socket, next} {
			if got := p.brought(); !slices.Equal(got, []string{"default " + w.id}) {
				w.Errorf("brought to %v", got)
			}
		}
		w.leave()
		if got := next.brought(); len(got) != 0 || len(names(w.T, w.dir())) != 0 {
			w.Errorf("left: %v, %v", got, names(w.T, w.dir()))
		}
	})
}

// A need that cannot be brought is missing, and nothing else.
func TestANeedThatCannotBeBrought(t *testing.T) {
	both(t, func(w *world) {
		w.config.Providers = []sandboxes.Provider{&provider{failure: errors.New("no room")}, &provider{name: "volume"}}
		w.restart()
		if got := destinations(w, w.enter(nil)); !slices.Equal(got, []string{
			"/headstart/input", "/headstart/inputs", "/headstart/volume",
		}) {
			w.Errorf("described with %v", got)
		}
		if _, err := w.Ready(w.Context(), w.id); err != nil {
			w.Error(err)
		}
	})
}

// Nothing can be mounted in a sandbox that an earlier version has made without.
func TestASandboxFromBeforeANeed(t *testing.T) {
	both(t, func(w *world) {
		w.enter(nil)
		p := &provider{name: "volume"}
		w.config.Providers = []sandboxes.Provider{p}
		w.restart()
		if got := p.brought(); len(got) != 0 || slices.Contains(names(w.T, w.dir(w.id)), "volume") {
			w.Errorf("brought to %v", got)
		}
		if _, err := w.Ready(w.Context(), w.id); err != nil {
			w.Error(err)
		}
	})
}

// The start of a program waits for what it has to wait for, and fails only for what it cannot do
// without.
func TestTheStartWaits(t *testing.T) {
	missing := problem.New(http.StatusNotFound, "InputNotFound", "headstart.dev/input", "no such object")
	const internal = "Internal: the node could not handle the request; its log says why"
	for name, c := range map[string]struct {
		wait  sandboxes.Wait
		fails error
		want  string
		asked bool
	}{
		"no":                        {wait: sandboxes.WaitNo},
		"start, it comes":           {wait: sandboxes.WaitStart, asked: true},
		"start, it cannot be had":   {wait: sandboxes.WaitStart, fails: missing, asked: true},
		"fail, it comes":            {wait: sandboxes.WaitFail, asked: true},
		"fail, it cannot be had":    {wait: sandboxes.WaitFail, fails: missing, asked: true, want: missing.Error()},
		"fail, by the node's fault": {wait: sandboxes.WaitFail, fails: errors.New("/x: denied"), asked: true, want: internal},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(w *world) {
				asked := false
				w.config.Jobs = &jobs{}
				need := sandboxes.Need{Wait: c.wait, Await: func(context.Context) error {
					asked = true
					return c.fails
				}}
				w.config.Providers = []sandboxes.Provider{&provider{name: "volume", need: need}}
				w.restart()
				w.enter(&nodeapi.Job{Input: "s3://videos/a", BySocket: true})
				err := w.stage()
				if got := status.Convert(err); got.Message() != c.want || (err != nil) != (got.Code() == codes.FailedPrecondition) {
					w.Errorf("%v, want %q", err, c.want)
				}
				if asked != c.asked {
					w.Errorf("asked: %t", asked)
				}
			})
		})
	}
}

// A job keeps its input while the daemon is started again; it goes with the job.
func TestAJobsInput(t *testing.T) {
	both(t, func(w *world) {
		all := &jobs{}
		w.config.Jobs = all
		w.restart()
		d := w.enter(&nodeapi.Job{Input: "s3://videos/a", BySocket: true})
		if d.GetEnv()["HEADSTART_INPUT"] != "/headstart/input/job" || d.GetTraceparent() == "" {
			w.Errorf("described as %v", d)
		}
		if err := w.stage(); err != nil {
			w.Fatal(err)
		}
		w.restart()
		if left := names(w.T, w.dir(w.id, "input")); !slices.Equal(left, []string{"job"}) {
			w.Errorf("its input is %v", left)
		}
		w.leave()
		if left := names(w.T, w.dir()); len(left) != 0 || len(all.all()) != 0 && w.id == one {
			w.Errorf("left: %v, %v", left, all.all())
		}
	})
}

// A container gets the descriptors that it was described with, once, and none that cannot be opened.
func TestDescriptors(t *testing.T) {
	both(t, func(w *world) {
		var opened []*os.File
		fails := errors.New("no session")
		open := func() (*os.File, error) {
			if len(opened) == 3 {
				return nil, fails
			}
			f, err := os.Open(os.DevNull)
			opened = append(opened, f)
			return f, err
		}
		own := []sandboxes.Descriptor{{Name: "db", Open: open}, {Name: "cache", Open: open}}
		p := &provider{name: "pool", need: sandboxes.Need{Descriptors: own}}
		w.config.Providers = []sandboxes.Provider{p}
		w.restart()
		if d := w.enter(nil); !slices.Equal(d.GetDescriptors(), []string{"db", "cache"}) {
			w.Fatalf("described as %v", d)
		}
		container := "a"
		if w.id != one {
			container = w.id
		}
		if len(opened) != 0 {
			w.Error("they are open before anybody fetches them")
		}
		got, err := w.Descriptors(container)
		if err != nil || !slices.Equal(got, opened) {
			w.Errorf("got %v, %v", got, err)
		}
		if got, err := w.Descriptors(container); err == nil {
			w.Errorf("again: %v", got)
		}
		for _, f := range got {
			_ = f.Close()
		}
		w.again()
		if got, err := w.Descriptors(container); !errors.Is(err, fails) || got != nil {
			w.Errorf("got %v, %v", got, err)
		}
		if err := opened[2].Close(); err == nil {
			w.Error("the one that could be opened is left open")
		}
		w.again()
		w.leave()
		if got, err := w.Descriptors(container); err == nil || errors.Is(err, fails) {
			w.Errorf("of a sandbox that is gone: %v, %v", got, err)
		}
	})
}

// A request may be ahead of the news of its sandbox, but not for long.
func TestAnnouncement(t *testing.T) {
	both(t, func(w *world) {
		began := time.Now()
		ended := make(chan error, 1)
		go func() { _, err := w.Ready(w.Context(), w.id); ended <- err }()
		time.Sleep(time.Second)
		w.enter(nil)
		if err := <-ended; err != nil || time.Since(began) != time.Second {
			w.Errorf("after %s: %v", time.Since(began), err)
		}
		_, err := w.Ready(w.Context(), "default_other_u-2")
		if problem.ReasonOf(err) != problem.ReasonInstanceGone || time.Since(began) != 3*time.Second {
			w.Errorf("after %s: %v", time.Since(began)-time.Second, err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		cancel()
		if _, err := w.Ready(ctx, "default_other_u-2"); !errors.Is(err, context.Canceled) {
			w.Errorf("a request whose client goes away: %v", err)
		}
	})
}

// A file is no directory.
func TestOpenOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := sandboxes.Config{Dir: file, Log: slog.New(slog.DiscardHandler)}
	if _, err := sandboxes.OpenLocal(t.Context(), c, failing{}, nil); err == nil {
		t.Error("a file was taken for a directory")
	}
	if _, err := sandboxes.OpenKubelet(c, nil); err == nil {
		t.Error("a file was taken for a directory")
	}
}
