package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/runtime"
)

// s3Config is a pod's container that asks for a store's S3 API, and has an environment.
func s3Config(t *testing.T, change func(spec map[string]any), env ...string) string {
	t.Helper()
	spec := map[string]any{
		"process": map[string]any{"env": append([]string{"PATH=/bin"}, env...)},
		"linux":   map[string]any{"namespaces": []any{map[string]string{"type": "network", "path": "/run/netns/fire"}}},
		"annotations": map[string]string{"headstart.dev/s3": "edge", "io.kubernetes.cri.sandbox-namespace": "default",
			"io.kubernetes.cri.sandbox-name": "fire-x", "io.kubernetes.cri.sandbox-uid": "u-1"},
	}
	if change != nil {
		change(spec)
	}
	b, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func onHostNetwork(spec map[string]any) { delete(spec, "linux") }

// onHostNetworkByPath is how containerd says it.
func onHostNetworkByPath(spec map[string]any) {
	spec["linux"] = map[string]any{"namespaces": []any{map[string]string{"type": "network", "path": "/proc/self/ns/net"}}}
}

func withoutS3(spec map[string]any) {
	delete(spec["annotations"].(map[string]string), "headstart.dev/s3")
}
func ofNoPod(spec map[string]any) {
	spec["annotations"] = map[string]string{"headstart.dev/s3": "edge"}
}

// describing is what a daemon answers.
type describing = func(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error)

// describesS3 is a daemon's answer, a new one each time: the shim changes it.
func describesS3(context.Context, *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	return &nodeapi.DescribeResponse{Env: map[string]string{"HEADSTART_A": "1"}, Endpoints: []*nodeapi.Endpoint{{
		Name: "s3", Env: map[string]string{"AWS_ENDPOINT_URL_S3": "http://{address}", "AWS_REGION": "eu"}}}}, nil
}

// loopback has the endpoints of a shim, whatever their namespaces.
type loopback struct {
	fails error

	mu        sync.Mutex
	in        []string // the namespaces
	listeners []*net.TCPListener
}

func (lo *loopback) listen(_ context.Context, namespace string) (*net.TCPListener, error) {
	lo.mu.Lock()
	defer lo.mu.Unlock()
	lo.in = append(lo.in, namespace)
	if lo.fails != nil {
		return nil, lo.fails
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err == nil {
		lo.listeners = append(lo.listeners, l)
	}
	return l, err
}

// wantListened sees how often the shim has listened, in the sandbox's namespace only.
func (lo *loopback) wantListened(t *testing.T, times int) {
	t.Helper()
	lo.mu.Lock()
	defer lo.mu.Unlock()
	if want := slices.Repeat([]string{"/run/netns/fire"}, times); !slices.Equal(lo.in, want) {
		t.Errorf("the shim has listened in %q, want %q", lo.in, want)
	}
}

// wantClosed sees that the shim's listeners are closed.
func (lo *loopback) wantClosed(t *testing.T) {
	t.Helper()
	lo.mu.Lock()
	defer lo.mu.Unlock()
	for _, l := range lo.listeners {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s is still open: %v", l.Addr(), err)
		}
	}
}

// s3Daemon answers on endpoints with the name of the sandbox, and hears of containers that go without.
type s3Daemon struct {
	served, ended, left chan endpoints.Offer
}

func (d s3Daemon) Left(o endpoints.Offer) {
	select {
	case d.left <- o:
	default: // more than any test waits for
	}
}

func (d s3Daemon) Serve(ctx context.Context, o endpoints.Offer, l net.Listener) {
	d.served <- o
	defer func() { d.ended <- o }()
	var answering sync.WaitGroup
	defer answering.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		answering.Go(func() {
			defer c.Close()
			io.WriteString(c, o.Sandbox)
		})
	}
}

// serveEndpoints serves what a shim hands over beside the daemon's socket.
func serveEndpoints(t *testing.T, socket string) s3Daemon {
	t.Helper()
	d := s3Daemon{make(chan endpoints.Offer, 16), make(chan endpoints.Offer, 16), make(chan endpoints.Offer, 16)}
	l, err := net.Listen("unix", endpoints.Path(socket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- endpoints.Serve(ctx, d, slog.New(slog.DiscardHandler))(l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return d
}

// next is the next offer of c.
func next(t *testing.T, c <-chan endpoints.Offer) (o endpoints.Offer) {
	t.Helper()
	select {
	case o = <-c:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing happens")
	}
	return o
}

// s3Rig is a shim with a daemon that describes endpoints.
type s3Rig struct {
	*runtime.Service
	inner  *runc
	lo     *loopback
	daemon s3Daemon
	socket string
}

func newS3Rig(t *testing.T, describe describing) *s3Rig {
	t.Helper()
	socket := daemonSocket(t, describe)
	r := &s3Rig{inner: &runc{}, lo: &loopback{}, daemon: serveEndpoints(t, socket), socket: socket}
	r.Service = newService(r.inner, socket, "test")
	r.ListensBy(r.lo.listen)
	t.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// created is the environment of a container that runc creates, and why it is not as the daemon describes it.
func (r *s3Rig) created(t *testing.T, id, config string) (env []string, reason string) {
	t.Helper()
	ctx, hook := logged(t)
	if _, err := r.Create(ctx, &taskAPI.CreateTaskRequest{ID: id, Bundle: bundle(t, config)}); err != nil {
		t.Fatal(err)
	}
	for _, entry := range hook.AllEntries() {
		if why, is := entry.Data["reason"].(string); is {
			reason = why
		}
	}
	var spec struct{ Process struct{ Env []string } }
	if err := json.Unmarshal([]byte(r.inner.config), &spec); err != nil {
		t.Fatal(err)
	}
	return spec.Process.Env, reason
}

func (r *s3Rig) deleted(t *testing.T, id string) {
	t.Helper()
	if _, err := r.Delete(t.Context(), &taskAPI.DeleteRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
}

// url is where a program finds S3.
func url(env []string) string {
	for _, v := range env {
		if at, is := strings.CutPrefix(v, "AWS_ENDPOINT_URL_S3=http://"); is {
			return at
		}
	}
	return ""
}

// wantAnswer connects as a program does.
func wantAnswer(t *testing.T, address, want string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != want || err != nil {
		t.Errorf("answered %q, %v, want %q", got, err, want)
	}
}

// The containers of a pod find the daemon at one address, from the first one to the end of the last one.
func TestContainersShareAnEndpoint(t *testing.T) {
	asked := make(chan *nodeapi.DescribeRequest, 8)
	r := newS3Rig(t, func(ctx context.Context, q *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
		asked <- q
		return describesS3(ctx, q)
	})
	env, reason := r.created(t, "a", s3Config(t, nil))
	at := r.lo.listeners[0].Addr().String()
	want := []string{"PATH=/bin", "AWS_ENDPOINT_URL_S3=http://" + at, "AWS_REGION=eu", "HEADSTART_A=1"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("%s, environment (-want +got):\n%s", reason, diff)
	}
	if q := <-asked; q.GetS3() != "edge" {
		t.Errorf("asked for %v", q)
	}
	pod := endpoints.Offer{Sandbox: "default_fire-x_u-1", Name: "s3"}
	if got := next(t, r.daemon.served); got != pod {
		t.Errorf("offered %+v, want %+v", got, pod)
	}
	wantAnswer(t, at, pod.Sandbox)
	env, _ = r.created(t, "b", s3Config(t, nil, "AWS_REGION=us"))
	want = []string{"PATH=/bin", "AWS_REGION=us", "AWS_ENDPOINT_URL_S3=http://" + at, "HEADSTART_A=1"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("the second container's environment (-want +got):\n%s", diff)
	}
	r.lo.wantListened(t, 1)

	r.deleted(t, "a")
	wantAnswer(t, at, pod.Sandbox)
	// A container may be created again, under another id.
	if env, _ = r.created(t, "c", s3Config(t, nil)); url(env) != at {
		t.Errorf("the container that is created again finds S3 at %q, not at %q", url(env), at)
	}
	r.deleted(t, "b")
	wantAnswer(t, at, pod.Sandbox)
	r.deleted(t, "c")
	r.lo.wantClosed(t)
	if got := next(t, r.daemon.ended); got != pod {
		t.Errorf("ended %+v, want %+v", got, pod)
	}
	if c, err := net.Dial("tcp", at); err == nil {
		c.Close()
		t.Errorf("%s takes connections", at)
	}
	// The pod's next container has an endpoint again.
	env, _ = r.created(t, "d", s3Config(t, nil))
	next(t, r.daemon.served)
	wantAnswer(t, url(env), pod.Sandbox)
	r.lo.wantListened(t, 2)
}

// Sandboxes do not share an endpoint. One of no pod is the container.
func TestEachSandboxHasItsEndpoint(t *testing.T) {
	r := newS3Rig(t, describesS3)
	first, _ := r.created(t, "a", s3Config(t, nil))
	second, _ := r.created(t, "b", s3Config(t, ofNoPod))
	third, _ := r.created(t, "c", s3Config(t, ofNoPod))
	wantAnswer(t, url(first), "default_fire-x_u-1")
	wantAnswer(t, url(second), "b")
	wantAnswer(t, url(third), "c")
	r.lo.wantListened(t, 3)
	r.deleted(t, "b")
	wantAnswer(t, url(first), "default_fire-x_u-1")
	for range 3 {
		next(t, r.daemon.served)
	}
	if got := next(t, r.daemon.ended); got.Sandbox != "b" {
		t.Errorf("ended %+v", got)
	}
}

// A container with a way of its own gets nothing, and the daemon hears why. The rest of what is described it has.
func TestAContainerIsLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		config string
		env    []string
		left   endpoints.Offer
	}{
		"with credentials of its own": {s3Config(t, nil, "AWS_ACCESS_KEY_ID=x"), []string{"AWS_ACCESS_KEY_ID=x"},
			endpoints.Offer{Sandbox: "default_fire-x_u-1", Name: "s3", Left: "AWS_ACCESS_KEY_ID"}},
		"on the node's network, by its path": {s3Config(t, onHostNetworkByPath), nil,
			endpoints.Offer{Sandbox: "default_fire-x_u-1", Name: "s3", Left: "hostNetwork"}},
		"on the node's network": {s3Config(t, onHostNetwork), nil,
			endpoints.Offer{Sandbox: "default_fire-x_u-1", Name: "s3", Left: "hostNetwork"}},
		"of no pod": {s3Config(t, ofNoPod, "AWS_PROFILE=x"), []string{"AWS_PROFILE=x"},
			endpoints.Offer{Sandbox: "a", Name: "s3", Left: "AWS_PROFILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newS3Rig(t, describesS3)
			env, reason := r.created(t, "a", tt.config)
			want := slices.Concat([]string{"PATH=/bin"}, tt.env, []string{"HEADSTART_A=1"})
			if diff := cmp.Diff(want, env); diff != "" {
				t.Errorf("%s, environment (-want +got):\n%s", reason, diff)
			}
			if got := next(t, r.daemon.left); got != tt.left {
				t.Errorf("told %+v, want %+v", got, tt.left)
			}
			r.lo.wantListened(t, 0)
			// Another container of the pod is none of that one's business.
			env, _ = r.created(t, "b", s3Config(t, nil))
			wantAnswer(t, url(env), "default_fire-x_u-1")
			r.deleted(t, "a")
			wantAnswer(t, url(env), "default_fire-x_u-1")
		})
	}
}

// A daemon that is not there to be told, or to serve, keeps nothing from starting or ending.
func TestEndpointsWithoutTheDaemon(t *testing.T) {
	lo, inner := &loopback{}, &runc{}
	s := newService(inner, daemonSocket(t, describesS3), "test")
	s.ListensBy(lo.listen)
	r := &s3Rig{Service: s, inner: inner, lo: lo}
	env, reason := r.created(t, "a", s3Config(t, nil))
	if url(env) == "" || reason != "" {
		t.Errorf("environment %q, %s", env, reason)
	}
	if env, reason = r.created(t, "b", s3Config(t, onHostNetwork)); url(env) != "" || reason != "" {
		t.Errorf("environment %q, %s", env, reason)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	lo.wantClosed(t)
}

// A container that does not come to be, or not as it is described, has no listener.
func TestEndpointsOfContainersWithout(t *testing.T) {
	for name, tt := range map[string]struct {
		id       string
		describe describing
		config   func(map[string]any)
		fails    error // to listen
		reason   string
		listened int
	}{
		"not created":            {id: "broken", describe: describesS3, listened: 1},
		"not created, of no pod": {id: "broken", describe: describesS3, config: ofNoPod, listened: 1},
		"without mounts": {id: "a", reason: "DescriptionInvalid", listened: 1,
			describe: func(ctx context.Context, q *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
				d, err := describesS3(ctx, q)
				d.Mounts = []*nodeapi.Mount{{Source: "/etc", Destination: "/headstart/input", ReadOnly: true}}
				return d, err
			}},
		"without a listener": {id: "a", reason: "EndpointFailed", describe: describesS3, listened: 1,
			fails: &os.PathError{Op: "open", Path: "/run/netns/fire", Err: syscall.ENOENT}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newS3Rig(t, tt.describe)
			r.lo.fails = tt.fails
			config := s3Config(t, tt.config)
			if tt.id == "broken" {
				q := &taskAPI.CreateTaskRequest{ID: tt.id, Bundle: bundle(t, config)}
				if _, err := r.Create(t.Context(), q); !errors.Is(err, errRunc) {
					t.Fatal(err)
				}
			} else if env, reason := r.created(t, tt.id, config); reason != tt.reason || url(env) != "" {
				t.Errorf("%s, environment %q", reason, env)
			}
			r.lo.wantListened(t, tt.listened)
			r.lo.wantClosed(t)
			if tt.fails != nil {
				return
			}
			// It may come to be later on.
			r.lo.in = nil
			if env, reason := r.created(t, "again", s3Config(t, nil)); tt.reason == "" && url(env) == "" {
				t.Errorf("again: %s, environment %q", reason, env)
			}
		})
	}
}

// A job that waits for its input is not made without what it is described with.
func TestAJobWhoseEndpointFails(t *testing.T) {
	r := newS3Rig(t, describesS3)
	r.lo.fails = errors.New("no such namespace")
	config := s3Config(t, func(spec map[string]any) {
		spec["annotations"].(map[string]string)["headstart.dev/input"] = "s3://videos/a"
	})
	_, err := r.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, config)})
	if err == nil || !strings.Contains(err.Error(), "EndpointFailed") || len(r.inner.calls) != 0 {
		t.Errorf("got %v; runc was called with %v", err, r.inner.calls)
	}
}

// What is restored from a checkpoint has the environment of that, and no endpoint.
func TestARestoredContainerHasNoEndpoint(t *testing.T) {
	r := newS3Rig(t, describesS3)
	q := &taskAPI.CreateTaskRequest{ID: "a", Checkpoint: "/checkpoint", Bundle: bundle(t, s3Config(t, nil))}
	if _, err := r.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	r.lo.wantListened(t, 0)
}

// With the shim all its endpoints end, and it ends when the daemon knows that.
func TestCloseEndsEndpoints(t *testing.T) {
	socket := daemonSocket(t, describesS3)
	on, err := net.Listen("unix", endpoints.Path(socket))
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	handed := make(chan net.Conn)
	go func() {
		c, err := on.Accept()
		if err != nil {
			t.Error(err)
		}
		handed <- c
	}()
	lo := &loopback{}
	s := newService(&runc{}, socket, "test")
	s.ListensBy(lo.listen)
	q := &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, s3Config(t, nil))}
	if _, err := s.Create(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	c := <-handed
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 1024)
	n, err := c.Read(said)
	if want := `{"sandbox":"default_fire-x_u-1","name":"s3"}`; string(said[:n]) != want || err != nil {
		t.Errorf("the daemon hears %q, %v, want %q", said[:n], err, want)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	lo.wantClosed(t)
	if n, err := c.Read(said); err != io.EOF {
		t.Errorf("the daemon hears %q, %v, want the end", said[:n], err)
	}
}

// A compromised daemon has the shim listen in no sandbox that does not ask for it, and not on the node; and it tells a
// program nothing by an endpoint but what that is there for.
func TestAttackOfTheDaemonByEndpoints(t *testing.T) {
	one := func(name, variable, value string) *nodeapi.Endpoint {
		return &nodeapi.Endpoint{Name: name, Env: map[string]string{variable: value}}
	}
	var many []*nodeapi.Endpoint
	for range 1 << 14 {
		many = append(many, one("s3", "AWS_REGION", ""))
	}
	tell := one("s3", "AWS_ENDPOINT_URL_S3", "http://{address}")
	unknown := one("ssh", "AWS_REGION", "x")
	own := "AWS_ACCESS_KEY_ID=x"
	for name, tt := range map[string]struct {
		all      []*nodeapi.Endpoint
		config   string
		listened int
	}{
		"unknown":               {[]*nodeapi.Endpoint{unknown}, s3Config(t, nil), 0},
		"unknown, on the node":  {[]*nodeapi.Endpoint{unknown}, s3Config(t, onHostNetwork), 0},
		"one that is, and not":  {[]*nodeapi.Endpoint{tell, unknown}, s3Config(t, nil), 0},
		"many":                  {many, s3Config(t, nil), 0},
		"many, of one with own": {many, s3Config(t, nil, own), 0},
		"not asked for":         {[]*nodeapi.Endpoint{tell}, s3Config(t, withoutS3), 0},
		"not asked for, by one with own": {
			[]*nodeapi.Endpoint{tell}, s3Config(t, withoutS3, own), 0,
		},
		"not asked for, on the node": {[]*nodeapi.Endpoint{tell}, s3Config(t, func(spec map[string]any) {
			withoutS3(spec)
			onHostNetwork(spec)
		}), 0},
		"a loader":    {[]*nodeapi.Endpoint{one("s3", "LD_PRELOAD", "/x.so")}, s3Config(t, nil), 1},
		"credentials": {[]*nodeapi.Endpoint{one("s3", "AWS_ACCESS_KEY_ID", "x")}, s3Config(t, nil), 1},
		"smuggled":    {[]*nodeapi.Endpoint{one("s3", "AWS_REGION", "x\x00LD_PRELOAD=/x.so")}, s3Config(t, nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newS3Rig(t, answer(&nodeapi.DescribeResponse{
				Env: map[string]string{"HEADSTART_A": "1"}, Endpoints: tt.all}))
			_, reason := r.created(t, "a", tt.config)
			if diff := cmp.Diff(tt.config, r.inner.config); diff != "" || reason != "DescriptionInvalid" {
				t.Errorf("%s, config.json that runc saw (-want +got):\n%s", reason, diff)
			}
			r.lo.wantListened(t, tt.listened)
			r.lo.wantClosed(t)
			if n := len(r.daemon.left); n > 0 {
				t.Errorf("the daemon was told %d times of a container that goes without", n)
			}
		})
	}
}

// describesOutput is a daemon's answer that also takes outputs.
func describesOutput(ctx context.Context, q *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	d, err := describesS3(ctx, q)
	d.Endpoints[0].Output = true
	return d, err
}

// pauseConfig is the first container of the pod.
func pauseConfig(spec map[string]any) {
	spec["annotations"].(map[string]string)["io.kubernetes.cri.container-type"] = "sandbox"
}

// The containers of a pod share a directory of outputs, which is in the pause container's bundle: it outlives each of the
// others. The daemon has it while one of them is there.
func TestContainersShareOutputs(t *testing.T) {
	r := newS3Rig(t, describesOutput)
	pause := bundle(t, s3Config(t, pauseConfig))
	if _, err := r.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "pause", Bundle: pause}); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(pause, "headstart-output")
	if _, err := os.Stat(at); err == nil {
		t.Error("nobody has asked for outputs yet")
	}
	for range 2 { // the pod's containers may all end, and come again
		for _, id := range []string{"a", "b"} {
			env, reason := r.created(t, id, s3Config(t, nil))
			var has struct {
				Mounts []struct{ Source, Destination string }
			}
			if err := json.Unmarshal([]byte(r.inner.config), &has); err != nil {
				t.Fatal(err)
			}
			if reason != "" || !slices.Contains(env, "HEADSTART_OUTPUT_DIR=/headstart/output") || len(has.Mounts) != 1 ||
				has.Mounts[0].Source != at || has.Mounts[0].Destination != "/headstart/output" {
				t.Errorf("%s: %s, environment %q, mounts %+v", id, reason, env, has.Mounts)
			}
		}
		got := next(t, r.daemon.served)
		if got.Output == nil || got.Sandbox != "default_fire-x_u-1" {
			t.Errorf("offered %+v", got)
		}
		r.deleted(t, "a")
		if _, err := os.Stat(at); err != nil {
			t.Error(err)
		}
		r.deleted(t, "b")
		next(t, r.daemon.ended)
		if _, err := os.Stat(at); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the last container: %v", err)
		}
	}
}

// Sandboxes of no pod have each their own, in their own bundle.
func TestEachSandboxHasItsOutputs(t *testing.T) {
	r := newS3Rig(t, describesOutput)
	for _, id := range []string{"a", "b"} {
		if env, reason := r.created(t, id, s3Config(t, ofNoPod)); reason != "" || !slices.Contains(env, "HEADSTART_OUTPUT_DIR=/headstart/output") {
			t.Errorf("%s: %s, environment %q", id, reason, env)
		}
		if got := next(t, r.daemon.served); got.Output == nil || got.Sandbox != id {
			t.Errorf("offered %+v", got)
		}
	}
}

// A container with credentials of its own has no outputs either, and where the directory cannot be made there is nothing.
func TestWithoutOutputs(t *testing.T) {
	r := newS3Rig(t, describesOutput)
	env, _ := r.created(t, "a", s3Config(t, nil, "AWS_ACCESS_KEY_ID=x"))
	if slices.Contains(env, "HEADSTART_OUTPUT_DIR=/headstart/output") {
		t.Errorf("environment %q", env)
	}
	next(t, r.daemon.left)
	taken := bundle(t, s3Config(t, ofNoPod))
	if err := os.Mkdir(filepath.Join(taken, "headstart-output"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, hook := logged(t)
	if _, err := r.Create(ctx, &taskAPI.CreateTaskRequest{ID: "b", Bundle: taken}); err != nil {
		t.Fatal(err)
	}
	if len(hook.AllEntries()) == 0 || hook.LastEntry().Data["reason"] != "EndpointFailed" || strings.Contains(r.inner.config, "HEADSTART_OUTPUT_DIR") {
		t.Errorf("%v, %s", hook.LastEntry(), r.inner.config)
	}
	r.lo.wantClosed(t)
}

func limited(bytes int64) func(map[string]any) {
	return func(spec map[string]any) {
		spec["linux"].(map[string]any)["resources"] = map[string]any{"memory": map[string]any{"limit": bytes}}
	}
}

// The directory is as large as the memory of the container that has most.
func TestOutputsGrowWithTheContainers(t *testing.T) {
	r := newS3Rig(t, describesOutput)
	is := &memory{}
	r.Service = newServiceWith(r.inner, r.socket, "test", links{is})
	r.ListensBy(r.lo.listen)
	for i, limit := range []int64{16 << 20, 256 << 20, 64 << 20, 0, 1 << 30} {
		if _, reason := r.created(t, fmt.Sprint("c", i), s3Config(t, limited(limit))); reason != "" {
			t.Error(reason)
		}
	}
	if want := []int64{16 << 20, 256 << 20, 0}; !slices.Equal(is.sizes, want) {
		t.Errorf("sizes %d, want %d", is.sizes, want)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Where nothing can be mounted, or the bundle of the pod's first container has gone, containers start without.
func TestOutputsThatCannotBeMade(t *testing.T) {
	r := newS3Rig(t, describesOutput)
	is := &memory{fails: errors.New("no memory")}
	r.Service = newServiceWith(r.inner, r.socket, "test", links{is})
	r.ListensBy(r.lo.listen)
	first := bundle(t, s3Config(t, pauseConfig))
	if _, err := r.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "pause", Bundle: first}); err != nil {
		t.Fatal(err)
	}
	if env, reason := r.created(t, "a", s3Config(t, nil)); reason != "EndpointFailed" || url(env) != "" {
		t.Errorf("%s, environment %q", reason, env)
	}
	if left, err := os.ReadDir(first); err != nil || len(left) != 1 {
		t.Errorf("left in the bundle: %v, %v", left, err)
	}
	is.fails, is.sizes = nil, nil
	if env, reason := r.created(t, "b", s3Config(t, nil)); reason != "" || !slices.Contains(env, "HEADSTART_OUTPUT_DIR=/headstart/output") {
		t.Errorf("%s, environment %q", reason, env)
	}
	if err := os.Remove(filepath.Join(first, "headstart-output")); err != nil {
		t.Fatal(err)
	}
	if env, reason := r.created(t, "c", s3Config(t, nil)); reason != "" || url(env) == "" || slices.Contains(env, "HEADSTART_OUTPUT_DIR=/headstart/output") {
		t.Errorf("%s, environment %q", reason, env)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
