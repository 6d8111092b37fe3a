package sandboxes_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	one = "default_fire-x_u-1"
	// patience is how long the machine may take for what takes it milliseconds.
	patience = 30 * time.Second
)

// podRig is a set and what it knows of one function.
type podRig struct {
	*sandboxes.Kubelet
	t        *testing.T
	dir      string
	function *nodeapi.Function
	// configure is what the set is made of.
	configure sandboxes.Config
	jobs      *jobs
}

func newPodRig(t *testing.T) *podRig {
	t.Helper()
	r := &podRig{t: t, dir: filepath.Join(t.TempDir(), "instances"), function: &nodeapi.Function{Name: "default/fire"}}
	r.configure = r.config()
	r.open()
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *podRig) config() sandboxes.Config {
	return sandboxes.Config{Dir: r.dir, OTLP: "unix:/run/otlp.sock", Log: slog.New(slog.DiscardHandler)}
}

func (r *podRig) open() {
	r.t.Helper()
	set, err := sandboxes.OpenKubelet(r.configure, func(name string) *nodeapi.Function {
		if name != r.function.GetName() {
			return nil
		}
		return r.function
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Kubelet = set
}

// has says that the node has these pods and no others.
func (r *podRig) has(all ...*nodeapi.InstanceStatus) {
	r.Instances(&nodeapi.Instances{Instances: all})
}

func podStarting(address string) *nodeapi.InstanceStatus {
	return &nodeapi.InstanceStatus{Id: one, Function: "default/fire", Phase: nodeapi.Phase_PHASE_STARTING,
		Address: address}
}

func podReady(address string) *nodeapi.InstanceStatus {
	s := podStarting(address)
	s.Phase = nodeapi.Phase_PHASE_READY
	return s
}

// wait asks for the pod in the background.
func (r *podRig) wait() <-chan answer {
	answers := make(chan answer, 1)
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	go func() {
		defer cancel()
		at, err := r.Ready(ctx, one)
		answers <- answer{at, err}
	}()
	return answers
}

type answer struct {
	at  sandboxes.Endpoint
	err error
}

func at(address string) sandboxes.Endpoint {
	return sandboxes.Endpoint{Address: netip.MustParseAddrPort(address)}
}

func wantReady(t *testing.T, got answer, want sandboxes.Endpoint) {
	t.Helper()
	if diff := cmp.Diff(want, got.at, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" || got.err != nil {
		t.Errorf("%v (-want +got):\n%s", got.err, diff)
	}
}

func wantProblem(t *testing.T, err error, status int, title, field string) {
	t.Helper()
	if p := problem.Of(err); err == nil || p.Status != status || p.Title != title || p.Field != field || p.Detail == "" {
		t.Errorf("%v, want %d %s of field %q", err, status, title, field)
	}
}

// listen serves status on every path, and counts.
func listen(t *testing.T, status int) (address string, asked *atomic.Int32) {
	t.Helper()
	asked = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "ok")
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://"), asked
}

// A pod is ready when it answers this node's probe or when the platform says so, whichever
// is first.
func TestReady(t *testing.T) {
	serving, _ := listen(t, http.StatusOK)
	failing, _ := listen(t, http.StatusServiceUnavailable)
	const nowhere = "127.0.0.1:1"
	sidecar := func(s *nodeapi.InstanceStatus) *nodeapi.InstanceStatus { s.MeshSni = "sni"; return s }
	for name, c := range map[string]struct {
		function func(*nodeapi.Function)
		steps    []*nodeapi.InstanceStatus
		want     sandboxes.Endpoint
		waits    bool // before the last step
	}{
		"the platform says so": {steps: []*nodeapi.InstanceStatus{podStarting(""), podReady(nowhere)},
			want: at(nowhere), waits: true},
		"it was so before": {steps: []*nodeapi.InstanceStatus{podReady(nowhere)}, want: at(nowhere)},
		"it takes connections": {steps: []*nodeapi.InstanceStatus{podStarting(""), podStarting(serving)},
			want: at(serving), waits: true},
		"it answers": {function: path("/healthz"),
			steps: []*nodeapi.InstanceStatus{podStarting(serving)}, want: at(serving)},
		"it answers with an error": {function: path("/healthz"),
			steps: []*nodeapi.InstanceStatus{podStarting(failing), podReady(failing)}, want: at(failing), waits: true},
		"it goes somewhere else": {steps: []*nodeapi.InstanceStatus{podStarting(nowhere), podStarting(serving)},
			want: at(serving), waits: true},
		"only the platform can tell": {function: func(f *nodeapi.Function) { f.PlatformReadiness = true },
			steps: []*nodeapi.InstanceStatus{podStarting(serving), podReady(serving)}, want: at(serving), waits: true},
		"a sidecar takes connections": {waits: true,
			steps: []*nodeapi.InstanceStatus{sidecar(podStarting(serving)), sidecar(podReady(serving))},
			want:  sandboxes.Endpoint{Address: netip.MustParseAddrPort(serving), MeshSNI: "sni"}},
		"the function is not known": {function: func(f *nodeapi.Function) { f.Name = "default/other" },
			steps: []*nodeapi.InstanceStatus{podStarting(serving), podReady(serving)}, want: at(serving), waits: true},
		"the platform says so, nowhere": {steps: []*nodeapi.InstanceStatus{podReady(""), podReady(nowhere)},
			want: at(nowhere), waits: true},
		"it is not an address": {want: at(nowhere), waits: true, steps: []*nodeapi.InstanceStatus{
			podStarting("fire:80"), podStarting("0.0.0.0:80"), podStarting("10.0.0.1:0"), podReady(nowhere)}},
		"it failed, then it was fixed": {want: at(serving),
			steps: []*nodeapi.InstanceStatus{failed("ImageUnavailable"), podStarting(serving)}},
		"it was, and is not any more": {want: at(serving), waits: true,
			steps: []*nodeapi.InstanceStatus{podReady(nowhere), podStarting(nowhere), podStarting(serving)}},
		"IPv6, as the platform says": {steps: []*nodeapi.InstanceStatus{podReady("[::1]:80")}, want: at("[::1]:80")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPodRig(t)
			if c.function != nil {
				c.function(r.function)
			}
			last := len(c.steps) - 1
			for _, s := range c.steps[:last] {
				r.has(s)
			}
			if c.waits {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // probes had their time
				if at, err := r.Ready(ctx, one); err == nil {
					t.Errorf("it is ready at %v", at)
				}
				cancel()
			}
			waiting := r.wait()
			r.has(c.steps[last])
			if c.steps[0].GetPhase() == nodeapi.Phase_PHASE_FAILED {
				<-waiting // it may have been in time for the failure
				waiting = r.wait()
			}
			wantReady(t, <-waiting, c.want)
		})
	}
}

func path(p string) func(*nodeapi.Function) {
	return func(f *nodeapi.Function) { f.ProbePath = p }
}

func failed(reason string) *nodeapi.InstanceStatus {
	s := podStarting("")
	s.Phase, s.Reason, s.Message, s.Field = nodeapi.Phase_PHASE_FAILED, reason, "it is so", "spec"
	return s
}

// Those who wait for a pod that fails, or goes, hear why.
func TestNotReady(t *testing.T) {
	for name, c := range map[string]struct {
		last         []*nodeapi.InstanceStatus
		status       int
		title, field string
	}{
		"failed":   {[]*nodeapi.InstanceStatus{failed("ImageUnavailable")}, 502, "ImageUnavailable", "spec"},
		"too late": {[]*nodeapi.InstanceStatus{failed("ReadyTimeout")}, 504, "ReadyTimeout", "spec"},
		"without a reason": {[]*nodeapi.InstanceStatus{{Id: one, Phase: nodeapi.Phase_PHASE_FAILED}},
			502, "SandboxFailed", ""},
		"gone": {nil, 503, "InstanceGone", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newPodRig(t)
			r.has(podStarting("127.0.0.1:1"))
			waiting := r.wait()
			r.has(c.last...)
			wantProblem(t, (<-waiting).err, c.status, c.title, c.field)
		})
	}
}

// A pod that nobody waits for is not asked, however long it takes; many who wait are one
// probe.
func TestProbesAreForThoseWhoWait(t *testing.T) {
	r := newPodRig(t)
	r.function.ProbePath = "/"
	failing, asked := listen(t, http.StatusServiceUnavailable)
	r.has(podStarting(failing))
	ctx, cancel := context.WithCancel(t.Context())
	const waiters = 50
	ended := make(chan error, waiters)
	for range waiters {
		go func() { _, err := r.Ready(ctx, one); ended <- err }()
	}
	for asked.Load() < 5 {
		time.Sleep(time.Millisecond)
	}
	if n := asked.Load(); n > 40 {
		t.Errorf("it was asked %d times while it was one's turn to be asked 5 times", n)
	}
	cancel()
	for range waiters {
		<-ended
	}
	select {
	case <-r.Unasked():
	case <-time.After(patience):
		t.Error("it is still asked")
	}
}

// Close ends the probes of those who wait still.
func TestCloseWhileSomebodyWaits(t *testing.T) {
	r := newPodRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r.function.ProbePath = "/"
	r.has(podStarting(l.Addr().String()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := r.Ready(ctx, one); ended <- err }()
	c, err := l.Accept() // it is being asked
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Close()
	r.has(podStarting("127.0.0.1:1")) // starts no probe any more
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	r.open()
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
