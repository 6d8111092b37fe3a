package sandboxes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

func pod(name, container string) *nodeapi.Pod {
	return &nodeapi.Pod{Namespace: "default", Name: name, Uid: "u-1", Container: container}
}

func (r *podRig) describe(sandbox string, p *nodeapi.Pod) (*nodeapi.DescribeResponse, error) {
	return r.Describe(r.t.Context(), &nodeapi.DescribeRequest{Sandbox: sandbox, Pod: p})
}

func (r *podRig) described(sandbox string, p *nodeapi.Pod) *nodeapi.DescribeResponse {
	r.t.Helper()
	d, err := r.describe(sandbox, p)
	if err != nil {
		r.t.Fatal(err)
	}
	return d
}

func (r *podRig) gone(sandbox string, p *nodeapi.Pod) {
	r.t.Helper()
	if _, err := r.Gone(r.t.Context(), &nodeapi.GoneRequest{Sandbox: sandbox, Pod: p}); err != nil {
		r.t.Error(err)
	}
}

// All containers of a pod have the same, whether or not its Service is annotated already.
func TestContainersOfAPod(t *testing.T) {
	r := newPodRig(t)
	want := r.described("a", pod("fire-x", "a"))
	if diff := cmp.Diff(want, r.described("b", pod("fire-x", "b")), protocmp.Transform()); diff != "" {
		t.Errorf("another container (-want +got):\n%s", diff)
	}
	if dir, known := r.Inputs(one); dir != nil || known {
		t.Error("a pod that nobody announced has inputs")
	}
	r.has(podReady("10.0.0.1:80"))
	dir, known := r.Inputs(one)
	if !known || dir == nil {
		t.Fatalf("inputs at %v, %v", dir, known)
	}
	if err := dir.Input.WriteFile("request", nil, 0o444); err != nil {
		t.Error(err)
	}
	if got := names(t, want.GetMounts()[0].GetSource()); !slices.Equal(got, []string{"request"}) {
		t.Errorf("the containers see %v", got)
	}
}

// A container that ends before its shim has fetched its descriptors gets none later.
func TestDescriptorsGoWithTheContainer(t *testing.T) {
	open := func() (*os.File, error) { return os.Open(os.DevNull) }
	own := []sandboxes.Descriptor{{Name: "db", Open: open}}
	r := newPodRigWith(t, &provider{name: "pool", need: sandboxes.Need{Descriptors: own}})
	r.described("a", pod("fire-x", "a"))
	r.described("b", pod("fire-x", "b"))
	r.gone("a", pod("fire-x", "a"))
	if got, err := r.Descriptors("a"); err == nil {
		t.Errorf("of a container that is gone: %v", got)
	}
	got, err := r.Descriptors("b")
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	_ = got[0].Close()
}

// Without the shim, a pod has no directory, and is known all the same.
func TestAPodThatNeverAsked(t *testing.T) {
	r := newPodRig(t)
	r.has(podReady("10.0.0.1:80"))
	if dir, known := r.Inputs(one); dir != nil || !known {
		t.Errorf("%v, %v", dir, known)
	}
}

// The shim's spans belong to the request that waits for the pod.
func TestDescribeTellsTheTrace(t *testing.T) {
	otel.SetTextMapPropagator(propagation.TraceContext{})
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := newPodRig(t)
	r.has(podStarting(""))
	ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent})
	if !trace.SpanContextFromContext(ctx).IsValid() {
		t.Fatal(ctx)
	}
	ended := make(chan error, 1)
	go func() { _, err := r.Ready(ctx, one); ended <- err }()
	for r.described("a", pod("fire-x", "a")).GetTraceparent() != traceparent { // until it waits
		time.Sleep(time.Millisecond)
	}
	r.has(podReady("10.0.0.1:80"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A request's word may be here before its pod is known, and the sandbox be made before that.
func TestARequestIsExpectedBeforeItsPod(t *testing.T) {
	for name, begin := range map[string]func(r *podRig, traceparent string) (wait func() error){
		"the control plane's word": func(r *podRig, traceparent string) func() error {
			r.Expect(&nodeapi.Expect{Instance: one, Traceparent: traceparent})
			return func() error { return nil }
		},
		"the request itself": func(r *podRig, traceparent string) func() error {
			ctx := propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": traceparent})
			ended := make(chan error, 1)
			go func() { _, err := r.Ready(ctx, one); ended <- err }()
			for r.described("a", pod("fire-x", "a")).GetTraceparent() == "" { // until it waits
				time.Sleep(time.Millisecond)
			}
			return func() error { return <-ended }
		},
	} {
		t.Run(name, func(t *testing.T) {
			trace := newTrace()
			traceparent := "00-" + trace + "-00f067aa0ba902b7-01"
			r := newPodRig(t)
			wait := begin(r, traceparent)
			if got := r.described("a", pod("fire-x", "a")).GetTraceparent(); got != traceparent {
				t.Errorf("the shim hears of %q", got)
			}
			r.has(podStarting(""))
			if got := r.described("a", pod("fire-x", "a")).GetTraceparent(); got != traceparent {
				t.Errorf("when the pod is known the shim hears of %q", got)
			}
			r.has(podReady("10.0.0.1:80"))
			if err := wait(); err != nil {
				t.Error(err)
			}
			if got := ended(trace); len(got) != 2 || got[1].Name() != "runtime.start" {
				t.Errorf("spans are %v", got)
			}
		})
	}
}

func TestPodsThatAreRefused(t *testing.T) {
	r := newPodRig(t)
	for name, c := range map[string]struct {
		sandbox string
		pod     *nodeapi.Pod
		want    codes.Code
	}{
		"no pod":            {"a", nil, codes.NotFound},
		"half a pod":        {"a", &nodeapi.Pod{Namespace: "default", Name: "fire"}, codes.InvalidArgument},
		"a path":            {"a", &nodeapi.Pod{Namespace: "..", Name: "fire", Uid: "u"}, codes.InvalidArgument},
		"a path as uid":     {"a", &nodeapi.Pod{Namespace: "default", Name: "fire", Uid: "u/../x"}, codes.InvalidArgument},
		"two pods' id":      {"a", &nodeapi.Pod{Namespace: "default", Name: "fire_x", Uid: "u"}, codes.InvalidArgument},
		"a path as sandbox": {"../a", pod("fire-x", "a"), codes.Internal},
		"no sandbox":        {"", pod("fire-x", "a"), codes.Internal},
	} {
		if _, err := r.describe(c.sandbox, c.pod); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if got := names(t, r.dir); len(got) != 0 {
		t.Errorf("made %v", got)
	}
}

// A pod has no end of containers that start again and again, but no more at a time than a
// pod has.
func TestContainersAreLimited(t *testing.T) {
	r := newPodRig(t)
	for n := range 1000 {
		_, err := r.describe(strconv.Itoa(n), pod("fire-x", "a"))
		if status.Code(err) == codes.ResourceExhausted {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("a pod has 1000 containers")
}

// The longest names that Kubernetes allows make a directory, too.
func TestLongNames(t *testing.T) {
	r := newPodRig(t)
	p := &nodeapi.Pod{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), Uid: strings.Repeat("u", 36)}
	id := p.GetNamespace() + "_" + p.GetName() + "_" + p.GetUid()
	d := r.described("a", p)
	if _, err := os.Stat(d.GetMounts()[0].GetSource()); err != nil || d.GetEnv()["HEADSTART_INSTANCE"] != id {
		t.Errorf("%v, of %s", err, d.GetEnv()["HEADSTART_INSTANCE"])
	}
	r.has(&nodeapi.InstanceStatus{Id: id, Phase: nodeapi.Phase_PHASE_READY})
	if dir, _ := r.Inputs(id); dir == nil {
		t.Error("it has no inputs")
	}
	r.gone("a", p)
	r.has()
	if left := names(t, r.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// The directory goes with the pod: when it has left the set, and none of its containers is
// there.
func TestDirectoriesGo(t *testing.T) {
	x := pod("fire-x", "a")
	for name, c := range map[string]struct {
		steps func(*podRig)
		stays bool
	}{
		"never a function's":            {steps: func(r *podRig) { r.gone("a", x) }},
		"with another container":        {steps: func(r *podRig) { r.described("b", x); r.gone("a", x) }, stays: true},
		"container, then pod":           {steps: func(r *podRig) { r.has(podStarting("")); r.gone("a", x); r.has() }},
		"pod, then container":           {steps: func(r *podRig) { r.has(podStarting("")); r.has(); r.gone("a", x) }},
		"the pod alone":                 {steps: func(r *podRig) { r.has(podStarting("")); r.has() }, stays: true},
		"a container that starts again": {steps: func(r *podRig) { r.has(podStarting("")); r.gone("a", x) }, stays: true},
		"one whose successor was earlier": {stays: true,
			steps: func(r *podRig) { r.described("b", x); r.gone("a", x); r.gone("a", x) }},
		"after a restart": {stays: true,
			steps: func(r *podRig) { r.described("b", x); r.Close(); r.open(); r.gone("a", x) }},
		"after a restart, the last": {steps: func(r *podRig) { r.Close(); r.open(); r.gone("a", x) }},
		"of another pod":            {steps: func(r *podRig) { r.gone("a", pod("fire-y", "a")) }, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPodRig(t)
			r.described("a", x)
			c.steps(r)
			if left := names(t, r.dir); slices.Equal(left, []string{one}) != c.stays {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// Programs may call before a daemon that has just started knows whose they are.
func TestACallBeforeTheNewsOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newPodRig(t)
		asked := make(chan string)
		go func() { asked <- r.Caller(t.Context(), one) }()
		synctest.Wait()
		r.has(podReady("127.0.0.1:1"))
		if caller := <-asked; caller != "default/fire" {
			t.Errorf("the caller is %q", caller)
		}
	})
}

// What is left by pods that nobody knows goes at the first news, if it is very old while a
// container of theirs may run; the inputs of a daemon that was killed go at once.
func TestPodsAfterARestart(t *testing.T) {
	r := newPodRig(t)
	for n := range 3 {
		p := pod("fire-"+strconv.Itoa(n), "a")
		input := r.described("a", p).GetMounts()[0].GetSource()
		if err := os.WriteFile(filepath.Join(input, "request"), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	r.make("default_half-made_u-1/input")
	for n, age := range map[string]time.Duration{"default_fire-0_u-1": 60 * 24 * time.Hour,
		"default_fire-1_u-1": 60 * 24 * time.Hour,
		"default_fire-2_u-1": 24 * time.Hour, "default_half-made_u-1": 0} {
		old := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(r.dir, n), old, old); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	r.open()
	for _, n := range names(t, r.dir) {
		if left := names(t, filepath.Join(r.dir, n, "input")); len(left) != 0 {
			t.Errorf("%s has %v", n, left)
		}
	}
	r.has(&nodeapi.InstanceStatus{Id: "default_fire-0_u-1", Phase: nodeapi.Phase_PHASE_READY, Address: "10.0.0.1:80"})
	if left := names(t, r.dir); !slices.Equal(left, []string{"default_fire-0_u-1", "default_fire-2_u-1"}) {
		t.Errorf("left: %v", left)
	}
}

// make makes what a daemon has made for a pod before it was killed.
func (r *podRig) make(path string) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Join(r.dir, path), 0o700); err != nil {
		r.t.Fatal(err)
	}
}

// A daemon that is being replaced may be making a pod's directory: that is for it to end.
func TestTheOtherDaemonsDirectoriesStay(t *testing.T) {
	r := newPodRig(t)
	r.Close()
	r.configure.Succeeds = true
	r.open()
	r.make("default_new_u-1/input")
	r.make("default_old_u-1/input")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(r.dir, "default_old_u-1"), old, old); err != nil {
		t.Fatal(err)
	}
	r.has()
	if left := names(t, r.dir); !slices.Equal(left, []string{"default_new_u-1"}) {
		t.Errorf("left: %v", left)
	}
}

// A pod that was just forgotten may be remembered, however old it is.
func TestAPodComesBack(t *testing.T) {
	r := newPodRig(t)
	r.described("a", pod("fire-x", "a"))
	old := time.Now().Add(-2 * time.Hour)
	r.has(podReady("10.0.0.1:80"))
	if err := os.Chtimes(filepath.Join(r.dir, one), old, old); err != nil {
		t.Fatal(err)
	}
	before, _ := r.Inputs(one)
	r.has()
	r.Sweep()
	r.has(podReady("10.0.0.1:80"))
	if dir, known := r.Inputs(one); dir == nil || dir != before || !known {
		t.Errorf("%v, %v", dir, known)
	}
}

// Whatever ids hold, nothing outside of the directory is read, made or removed.
func FuzzPodsStayBelow(f *testing.F) {
	f.Add("default", "fire", "u", "a")
	f.Add("..", "..", "..", "../../x")
	f.Add("a/../..", "precious", "\x00", ".")
	f.Fuzz(func(t *testing.T, namespace, name, uid, sandbox string) {
		r := newPodRig(t)
		precious := filepath.Join(filepath.Dir(r.dir), "precious")
		if err := os.Mkdir(precious, 0o700); err != nil {
			t.Fatal(err)
		}
		p := &nodeapi.Pod{Namespace: namespace, Name: name, Uid: uid}
		id := namespace + "_" + name + "_" + uid
		d, err := r.describe(sandbox, p)
		if err == nil && filepath.Dir(filepath.Dir(d.GetMounts()[0].GetSource())) != r.dir {
			t.Errorf("it is at %s", d.GetMounts()[0].GetSource())
		}
		r.has(&nodeapi.InstanceStatus{Id: id}, &nodeapi.InstanceStatus{Id: name}, &nodeapi.InstanceStatus{Id: sandbox})
		for _, id := range []string{id, name, sandbox} {
			_, _ = r.Inputs(id)
		}
		_, _ = r.Gone(t.Context(), &nodeapi.GoneRequest{Sandbox: sandbox, Pod: p})
		r.has()
		if left := names(t, r.dir); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		if all := names(t, filepath.Dir(r.dir)); !slices.Equal(all, []string{"instances", "precious"}) {
			t.Errorf("beside it are %v", all)
		}
	})
}
