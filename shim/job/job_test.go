package job_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	id      = "default_digest-x_u-1"
	content = "frames"
)

var object = source.Reference{Scheme: source.SchemeS3, Bucket: "videos", Key: "1"}

// rig is a node with one store that has one object, and a sandbox's directory.
type rig struct {
	*job.Set
	store  *sourcetest.Memory
	buffer *buffer.Buffer
	dir    *staging.Dir
	path   string

	mu         sync.Mutex
	deliveries map[string]sandboxes.Delivery
	functions  []string
}

// Begin implements sandboxes.Deliveries.
func (d deliveries) Begin(instance string, of sandboxes.Delivery) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deliveries[instance] = of
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.deliveries, instance)
	}
}

type deliveries struct{ *rig }

// Ended implements objects.Metrics.
func (r *rig) Ended(o objects.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.functions = append(r.functions, o.Function)
}

// Evicted implements objects.Metrics.
func (*rig) Evicted(string) {}

func newRig(t *testing.T) *rig {
	t.Helper()
	buf, err := buffer.Open(filepath.Join(t.TempDir(), "b"), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{store: &sourcetest.Memory{}, buffer: buf, path: t.TempDir(), deliveries: map[string]sandboxes.Delivery{}}
	r.store.Put(object, "", []byte(content))
	root, err := os.OpenRoot(r.path)
	if err != nil {
		t.Fatal(err)
	}
	r.dir = &staging.Dir{Input: root}
	sources := func(string, string) (source.Source, error) { return r.store, nil }
	fetches := objects.New(objects.Config{Sources: sources, Buffer: buf, Age: time.Hour, Metrics: r})
	r.Set = job.New(job.Config{Objects: fetches, Deliveries: deliveries{r}, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		r.Close()
		if err := fetches.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if len(r.deliveries) != 0 {
			t.Errorf("sockets still serve %v", r.deliveries)
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
		r.dir.Close()
	})
	return r
}

func about() *nodeapi.Job {
	return &nodeapi.Job{Id: id, Name: "default/digest", Store: "edge", Input: object.String(), InputLimit: 1 << 20, ReadyTimeout: durationpb.New(time.Minute)}
}

// delivery is the socket's, nil for none.
func (r *rig) delivery() sandboxes.Input {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deliveries[id].Inputs[""]
}

func (r *rig) need(t *testing.T, id string) sandboxes.Need {
	t.Helper()
	need, err := r.Bring(sandboxes.Sandbox{ID: id, Namespace: "default", Job: true, Inputs: r.dir})
	if err != nil || need.Wait != sandboxes.WaitFail || need.Env["HEADSTART_INPUT"] != "/headstart/input/job" {
		t.Errorf("it needs %+v, %v", need, err)
	}
	return need
}

// stage waits as the start of the job's program does.
func (r *rig) stage(t *testing.T, id string) error {
	t.Helper()
	return r.need(t, id).Await(t.Context())
}

// Other sandboxes need nothing of it.
func TestASandboxThatIsNoJob(t *testing.T) {
	r := newRig(t)
	need, err := r.Bring(sandboxes.Sandbox{ID: id, Inputs: r.dir})
	if err != nil || need.Wait != sandboxes.WaitNo || len(need.Env)+len(need.Mounts) != 0 {
		t.Errorf("it needs %+v, %v", need, err)
	}
}

func (r *rig) staged(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.path, job.Name))
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// The input is there, whole, when Stage returns, for all containers of the job; what it takes
// of the node goes with the job, and is the namespace's.
func TestStage(t *testing.T) {
	r := newRig(t)
	r.Begin(t.Context(), about(), nil)
	for range 2 {
		if err := r.stage(t, id); err != nil || r.staged(t) != content {
			t.Fatal(err)
		}
	}
	if r.functions[0] != "default/(jobs)" || len(r.functions) != 1 {
		t.Errorf("fetched for %v", r.functions)
	}
	if used := r.buffer.Used(); used == 0 {
		t.Error("the file's bytes are not counted")
	}
	r.Release(id)
	if used := r.buffer.Used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
	if r.staged(t) != content {
		t.Error("the file went before its directory")
	}
}

// A program that reads by the socket has its bytes before the input is whole.
func TestTheSocketHasItWhileItComes(t *testing.T) {
	r := newRig(t)
	r.Begin(t.Context(), about(), nil)
	r.mu.Lock()
	d := r.deliveries[id]
	r.mu.Unlock()
	from, err := d.Inputs[""].NewReader(t.Context())
	if err != nil || d.Request != job.Name || d.Traceparent != r.need(t, id).Traceparent {
		t.Fatalf("delivery %+v, %v", d, err)
	}
	got, err := io.ReadAll(from)
	from.Close()
	if err != nil || string(got) != content {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*nodeapi.Job)
		want   string
	}{
		"missing":   {func(j *nodeapi.Job) { j.Input = "s3://videos/other" }, "InputNotFound"},
		"malformed": {func(j *nodeapi.Job) { j.Input = "s3://videos/../x" }, "InputReferenceMalformed"},
		"too large": {func(j *nodeapi.Job) { j.InputLimit = 2 }, "InputTooLarge"},
		"refused": {func(j *nodeapi.Job) {
			j.Refused = &nodeapi.Refused{Status: 422, Reason: "AnnotationsRefused", Message: "headstart.dev/store: no", Field: "headstart.dev/store"}
		}, "AnnotationsRefused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			j := about()
			c.change(j)
			r.Begin(t.Context(), j, nil)
			err := r.stage(t, id)
			if got := problem.Of(err).Title; got != c.want {
				t.Errorf("got %v", err)
			}
			if files, _ := os.ReadDir(r.path); len(files) != 0 || r.buffer.Used() != 0 {
				t.Errorf("left: %v, %d bytes", files, r.buffer.Used())
			}
		})
	}
}

// A container that is started again after a failure has another try.
func TestAnotherContainerTriesAgain(t *testing.T) {
	r := newRig(t)
	r.store.Delete(object)
	r.Begin(t.Context(), about(), nil)
	if err := r.stage(t, id); problem.Of(err).Title != "InputNotFound" {
		t.Fatal(err)
	}
	r.store.Put(object, "", []byte(content))
	if err := r.stage(t, id); err != nil || r.staged(t) != content {
		t.Error(err)
	}
}

// What an earlier daemon has staged is neither fetched again nor touched.
func TestWhatIsStagedStays(t *testing.T) {
	r := newRig(t)
	if err := os.WriteFile(filepath.Join(r.path, job.Name), []byte("earlier"), 0o444); err != nil {
		t.Fatal(err)
	}
	r.Begin(t.Context(), about(), r.dir)
	if err := r.stage(t, id); err != nil || r.staged(t) != "earlier" || len(r.functions) != 0 {
		t.Errorf("%v, fetched for %v", err, r.functions)
	}
}

// Nothing hangs: not for a store that hangs, nor for a job that nobody announces, nor for one
// that ends meanwhile.
func TestEveryWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.store.Before = func(ctx context.Context, _ source.Reference, _ int64) error { <-ctx.Done(); return ctx.Err() }
		began := time.Now()
		r.Begin(t.Context(), about(), nil)
		err := r.stage(t, id)
		if p := problem.Of(err); p.Title != "StoreTimeout" || time.Since(began) != time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := r.stage(t, "default_other_u-2"); problem.Of(err).Title != "JobUnknown" || time.Since(began) != 15*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ended := make(chan error)
		go func() { ended <- r.stage(t, id) }()
		synctest.Wait()
		r.Release(id)
		if err := <-ended; problem.ReasonOf(err) != problem.ReasonInstanceGone {
			t.Error(err)
		}
	})
}

// A sandbox may be ahead of the news of its job, and so may a program that reads by its socket.
func TestAJobIsAnnouncedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		staged, known := make(chan error), make(chan error)
		go func() { staged <- r.stage(t, id) }()
		go func() {
			err := r.Await(t.Context(), id)
			if r.delivery() == nil {
				t.Error("when the job is known the socket has no input")
			}
			known <- err
		}()
		synctest.Wait()
		r.Begin(t.Context(), about(), nil)
		if err := <-known; err != nil {
			t.Error(err)
		}
		if err := <-staged; err != nil || r.staged(t) != content {
			t.Error(err)
		}
	})
}

// A program that reads by its socket is told why it has no input, within a bounded time.
func TestAJobThatHasNoInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		refused := about()
		refused.Refused = &nodeapi.Refused{Status: 422, Reason: "AnnotationsRefused", Message: "headstart.dev/store: no", Field: "headstart.dev/store"}
		r.Begin(t.Context(), refused, nil)
		if p := problem.Of(r.Await(t.Context(), id)); p.Title != "AnnotationsRefused" || p.Status != 422 {
			t.Errorf("%+v", p)
		}
		began := time.Now()
		if err := r.Await(t.Context(), "default_other_u-2"); problem.Of(err).Title != "JobUnknown" || time.Since(began) != 15*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}
