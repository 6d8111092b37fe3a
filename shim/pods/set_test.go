package pods_test

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
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/pods"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	one = "default_fire-x_u-1"
	// patience is how long the machine may take for what takes it milliseconds.
	patience = 30 * time.Second
)

// rig is a set and what it knows of one function.
type rig struct {
	*pods.Set
	t        *testing.T
	dir      string
	memory   *staging.Memory // nil: the node buffers nothing in memory
	function *nodeapi.Function
	sockets  *sockets // nil: pods get none
	succeeds bool     // another daemon is there
	jobs     *jobs
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), "instances"), function: &nodeapi.Function{Name: "default/fire"}}
	r.open()
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	config := pods.Config{Dir: r.dir, Memory: r.memory, Succeeds: r.succeeds, OTLP: "unix:/run/otlp.sock", Log: slog.New(slog.DiscardHandler),
		Functions: func(name string) *nodeapi.Function {
			if name != r.function.GetName() {
				return nil
			}
			return r.function
		}}
	if r.jobs != nil {
		config.Jobs = r.jobs
	}
	if r.sockets != nil {
		config.Sockets = r.sockets
	}
	set, err := pods.Open(config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Set = set
}

// has says that the node has these pods and no others.
func (r *rig) has(all ...*nodeapi.InstanceStatus) { r.Set.Set(&nodeapi.Instances{Instances: all}) }

func starting(address string) *nodeapi.InstanceStatus {
	return &nodeapi.InstanceStatus{Id: one, Function: "default/fire", Phase: nodeapi.Phase_PHASE_STARTING, Address: address}
}

func ready(address string) *nodeapi.InstanceStatus {
	s := starting(address)
	s.Phase = nodeapi.Phase_PHASE_READY
	return s
}

// wait asks for the pod in the background.
func (r *rig) wait() <-chan answer {
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
	at  ingress.Endpoint
	err error
}

func at(address string) ingress.Endpoint {
	return ingress.Endpoint{Address: netip.MustParseAddrPort(address)}
}

func wantReady(t *testing.T, got answer, want ingress.Endpoint) {
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
		want     ingress.Endpoint
		waits    bool // before the last step
	}{
		"the platform says so":          {steps: []*nodeapi.InstanceStatus{starting(""), ready(nowhere)}, want: at(nowhere), waits: true},
		"it was so before":              {steps: []*nodeapi.InstanceStatus{ready(nowhere)}, want: at(nowhere)},
		"it takes connections":          {steps: []*nodeapi.InstanceStatus{starting(""), starting(serving)}, want: at(serving), waits: true},
		"it answers":                    {function: path("/healthz"), steps: []*nodeapi.InstanceStatus{starting(serving)}, want: at(serving)},
		"it answers with an error":      {function: path("/healthz"), steps: []*nodeapi.InstanceStatus{starting(failing), ready(failing)}, want: at(failing), waits: true},
		"it goes somewhere else":        {steps: []*nodeapi.InstanceStatus{starting(nowhere), starting(serving)}, want: at(serving), waits: true},
		"only the platform can tell":    {function: func(f *nodeapi.Function) { f.PlatformReadiness = true }, steps: []*nodeapi.InstanceStatus{starting(serving), ready(serving)}, want: at(serving), waits: true},
		"a sidecar takes connections":   {steps: []*nodeapi.InstanceStatus{sidecar(starting(serving)), sidecar(ready(serving))}, want: ingress.Endpoint{Address: netip.MustParseAddrPort(serving), MeshSNI: "sni"}, waits: true},
		"the function is not known":     {function: func(f *nodeapi.Function) { f.Name = "default/other" }, steps: []*nodeapi.InstanceStatus{starting(serving), ready(serving)}, want: at(serving), waits: true},
		"the platform says so, nowhere": {steps: []*nodeapi.InstanceStatus{ready(""), ready(nowhere)}, want: at(nowhere), waits: true},
		"it is no address":              {steps: []*nodeapi.InstanceStatus{starting("fire:80"), starting("0.0.0.0:80"), starting("10.0.0.1:0"), ready(nowhere)}, want: at(nowhere), waits: true},
		"it failed, then it was mended": {steps: []*nodeapi.InstanceStatus{failed("ImageUnavailable"), starting(serving)}, want: at(serving)},
		"it was, and is not any more":   {steps: []*nodeapi.InstanceStatus{ready(nowhere), starting(nowhere), starting(serving)}, want: at(serving), waits: true},
		"IPv6, as the platform says":    {steps: []*nodeapi.InstanceStatus{ready("[::1]:80")}, want: at("[::1]:80")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
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
	s := starting("")
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
		"failed":           {[]*nodeapi.InstanceStatus{failed("ImageUnavailable")}, 502, "ImageUnavailable", "spec"},
		"too late":         {[]*nodeapi.InstanceStatus{failed("ReadyTimeout")}, 504, "ReadyTimeout", "spec"},
		"without a reason": {[]*nodeapi.InstanceStatus{{Id: one, Phase: nodeapi.Phase_PHASE_FAILED}}, 502, "SandboxFailed", ""},
		"gone":             {nil, 503, "InstanceGone", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.has(starting("127.0.0.1:1"))
			waiting := r.wait()
			r.has(c.last...)
			wantProblem(t, (<-waiting).err, c.status, c.title, c.field)
		})
	}
}

// A request may be ahead of the news of its pod, but not for long.
func TestAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		waiting := r.wait()
		time.Sleep(time.Second)
		r.has(ready("10.0.0.1:80"))
		wantReady(t, <-waiting, at("10.0.0.1:80"))
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it waited %v", waited)
		}
		_, err := r.Ready(t.Context(), "default_other_u-2")
		wantProblem(t, err, 503, "InstanceGone", "")
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("it waited %v", waited-time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.Ready(ctx, "default_other_u-2"); err != context.Canceled {
			t.Errorf("whoever goes away: %v", err)
		}
	})
}

// A pod that nobody waits for is not asked, however long it takes; many who wait are one
// probe.
func TestProbesAreForThoseWhoWait(t *testing.T) {
	r := newRig(t)
	r.function.ProbePath = "/"
	failing, asked := listen(t, http.StatusServiceUnavailable)
	r.has(starting(failing))
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
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r.function.ProbePath = "/"
	r.has(starting(l.Addr().String()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := r.Ready(ctx, one); ended <- err }()
	c, err := l.Accept() // it is being asked
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Close()
	r.has(starting("127.0.0.1:1")) // starts no probe any more
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
