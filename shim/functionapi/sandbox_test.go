package functionapi_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// Any user of the sandbox may use its socket, and the directory above keeps the others away.
func TestTheSocketIsForItsSandbox(t *testing.T) {
	r := newRig(t, nil)
	info, err := os.Lstat(filepath.Join(r.dir, "fire-1", "headstart.sock"))
	if err != nil || info.Mode().Type() != os.ModeSocket || info.Mode().Perm() != 0o666 {
		t.Errorf("%v, %v", info, err)
	}
	r.open("fire-1", "default") // again, as for a pod's next container
	if got := files(t, filepath.Join(r.dir, "fire-1")); !slices.Equal(got, []string{"headstart.sock"}) {
		t.Errorf("%v", got)
	}
}

func TestNothingIsLeft(t *testing.T) {
	r := newRig(t, nil)
	r.Close("fire-1")
	r.Close("fire-1")
	r.Close("unknown")
	r.stop()
	for id := range namespaces {
		if left := files(t, filepath.Join(r.dir, id)); len(left) != 0 {
			t.Errorf("%s has %v", id, left)
		}
	}
	root, err := os.OpenRoot(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Open("late-1", "default", root); err == nil {
		t.Error("a server that has ended opens sockets")
	}
}

// A daemon that is killed leaves its sockets, and the next one takes their places.
func TestAfterAKill(t *testing.T) {
	r := newRig(t, nil)
	path := filepath.Join(r.dir, "fire-1", "headstart.sock")
	if err := os.Link(path, path+".kept"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	for _, name := range []string{"headstart.sock", "previous.sock"} {
		if err := os.Link(path+".kept", filepath.Join(r.dir, "fire-1", name)); err != nil {
			t.Fatal(err)
		}
	}
	again := next(t, r.dir, false, nil)
	again.begin("fire-1", id(1), whole(content), 0)
	if got := body(t, again.get("fire-1", "/input/"+id(1))); got != content {
		t.Errorf("%q", got)
	}
	if got := files(t, filepath.Join(r.dir, "fire-1")); !slices.Equal(got, []string{"headstart.sock", "headstart.sock.kept"}) {
		t.Errorf("%v", got)
	}
}

// During an update two daemons have a sandbox: the new one answers, also for the requests that
// the old one still has, and what was begun with the old one goes on.
func TestADaemonTakesOver(t *testing.T) {
	old := newRig(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "old") })
	in := sized(10)
	end := old.begin("fire-1", id(1), in, 0)
	in.come("01234")
	kept := old.client("fire-1")
	begun, err := kept.Get("http://headstart/input/" + id(1))
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Body.Close()

	now := next(t, old.dir, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "new") })
	now.functions = old.functions
	now.begin("fire-1", id(2), whole("later"), 0)
	if got := body(t, now.ask("fire-1", http.MethodPost, "/call/fire", nil)); got != "new" {
		t.Errorf("a call goes to the %s daemon", got)
	}
	if got := body(t, now.get("fire-1", "/input/"+id(2))); got != "later" {
		t.Errorf("%q", got)
	}
	if got := body(t, now.get("fire-1", "/input/"+id(1), "Range", "bytes=1-3")); got != "123" {
		t.Errorf("the old one's request: %q", got)
	}
	wantProblem(t, now.get("fire-2", "/input/"+id(1)), http.StatusNotFound, "RequestUnknown", "")
	in.come("56789")
	in.end(nil)
	if got := body(t, begun); got != content {
		t.Errorf("what was begun: %q", got)
	}

	end()
	old.stop()
	wantProblem(t, now.get("fire-1", "/input/"+id(1)), http.StatusNotFound, "RequestUnknown", "")
	if got := files(t, filepath.Join(old.dir, "fire-1")); !slices.Equal(got, []string{"headstart.sock"}) {
		t.Errorf("%v", got)
	}
	if got := body(t, now.get("fire-1", "/input/"+id(2))); got != "later" {
		t.Errorf("when the old one is gone: %q", got)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {})
	r.begin("fire-1", id(1), whole(content), 0)
	_ = body(t, r.get("fire-1", "/input/"+id(1), "Range", "bytes=0-3"))
	_ = body(t, r.get("fire-2", "/input/"+id(1)))
	_ = body(t, r.ask("fire-1", http.MethodPost, "/call/fire", nil))
	_ = body(t, r.ask("fire-1", http.MethodPost, "/call/nothing", nil))
	r.stop()
	want := map[string]float64{"headstart_function_sockets": 0, "headstart_function_calls_total OK": 1, "headstart_function_calls_total FunctionUnknown": 1,
		"headstart_function_calls_in_flight": 0, "headstart_function_reads_total OK": 1, "headstart_function_reads_total RequestUnknown": 1, "headstart_function_read_bytes_total": 4}
	got := values(t, r.registry)
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
}

func values(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return got
}

// Somebody may wait for the next request of an instance, and hears its trace, and not another instance's.
func TestTheNextRequest(t *testing.T) {
	r := newRig(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	next := func(ctx context.Context, instance string) chan string {
		heard := make(chan string, 1)
		go func() { heard <- r.Next(ctx, instance) }()
		return heard
	}
	heard, other := next(t.Context(), "fire-1"), next(ctx, "fire-2")
	for late := time.Now().Add(patience); len(heard) == 0 && time.Now().Before(late); time.Sleep(time.Millisecond) {
		r.Begin("fire-1", sandboxes.Delivery{Traceparent: "a trace"})()
	}
	if trace := <-heard; trace != "a trace" {
		t.Errorf("the trace is %q", trace)
	}
	if cancel(); <-other != "" {
		t.Error("another instance has a trace")
	}
}
