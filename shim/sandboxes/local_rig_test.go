package sandboxes_test

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	function     = "default/fire"
	readyTimeout = time.Minute
	traceparent  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

// rig is a set on a node in memory, with the control plane's ear.
type rig struct {
	t    *testing.T
	node *sandboxestest.Memory
	path string
	port uint16
	set  *sandboxes.Local
	// configure is what the set is made of.
	configure sandboxes.Config

	mu       sync.Mutex
	reported []*nodeapi.InstanceStatus
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, node: sandboxestest.NewMemory(92), path: filepath.Join(t.TempDir(), "instances"),
		port: porttest.Free(t)}
	r.configure = r.config()
	r.open()
	t.Cleanup(func() {
		r.set.Close()
		if _, err := r.node.List(t.Context()); err != nil {
			t.Error(err)
		}
		for _, id := range r.node.Sandboxes() { // they outlive the set
			r.node.Exit(id, 0)
		}
	})
	return r
}

func (r *rig) open() {
	r.t.Helper()
	set, err := sandboxes.OpenLocal(r.t.Context(), r.configure, r.node, func(s *nodeapi.InstanceStatus) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reported = append(r.reported, s)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.set = set
}

func (r *rig) config() sandboxes.Config {
	return sandboxes.Config{Dir: r.path, OTLP: "unix:/run/otlp.sock", Log: slog.New(slog.DiscardHandler)}
}

func (r *rig) describe(id string) (*nodeapi.DescribeResponse, error) {
	return r.set.Describe(r.t.Context(), &nodeapi.DescribeRequest{Sandbox: id})
}

// restart is the daemon's.
func (r *rig) restart() {
	r.t.Helper()
	r.set.Close()
	r.open()
}

// serving is a program that listens after the duration, or at once.
func (r *rig) serving(after ...time.Duration) []string {
	args := []string{"serve", strconv.Itoa(int(r.port))}
	for _, a := range after {
		args = append(args, a.String())
	}
	return args
}

func (r *rig) stubborn() []string { return []string{"stubborn", strconv.Itoa(int(r.port))} }

func (r *rig) message(id string, args ...string) *nodeapi.StartInstance {
	return &nodeapi.StartInstance{Id: id, Traceparent: traceparent, Function: &nodeapi.Function{
		Name: function, Image: sandboxestest.Image, Args: args, Port: int32(r.port),
		ReadyTimeout: durationpb.New(readyTimeout)}}
}

func (r *rig) start(id string, args ...string) { r.set.Start(r.message(id, args...)) }

// ready waits for an instance that has to become it.
func (r *rig) ready(id string) netip.AddrPort {
	r.t.Helper()
	addr, err := r.set.Ready(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return addr.Address
}

func inPhase(id string, phase nodeapi.Phase) *nodeapi.InstanceStatus {
	return &nodeapi.InstanceStatus{Id: id, Function: function, Phase: phase}
}

func starting(id string) *nodeapi.InstanceStatus { return inPhase(id, nodeapi.Phase_PHASE_STARTING) }
func stopped(id string) *nodeapi.InstanceStatus  { return inPhase(id, nodeapi.Phase_PHASE_STOPPED) }

func isReady(id string, at netip.AddrPort) *nodeapi.InstanceStatus {
	s := inPhase(id, nodeapi.Phase_PHASE_READY)
	s.Address = at.String()
	return s
}

func (r *rig) wantReported(want ...*nodeapi.InstanceStatus) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.reported, protocmp.Transform()); diff != "" {
		r.t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func (r *rig) wantStatuses(want ...*nodeapi.InstanceStatus) {
	r.t.Helper()
	got := r.set.Statuses()
	slices.SortFunc(got, func(a, b *nodeapi.InstanceStatus) int { return strings.Compare(a.GetId(), b.GetId()) })
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		r.t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// wantNothing: neither sandboxes nor files nor answers.
func (r *rig) wantNothing(id string) {
	r.t.Helper()
	r.wantNoRest(id)
	r.wantStatuses()
}

// wantNoRest says nothing of the registration, which lists a job until its end is told.
func (r *rig) wantNoRest(id string) {
	r.t.Helper()
	if left := r.node.Sandboxes(); len(left) > 0 {
		r.t.Errorf("sandboxes left: %v", left)
	}
	if left := r.files(); len(left) > 0 {
		r.t.Errorf("files left: %v", left)
	}
	if d, err := r.describe(id); grpcstatus.Code(err) != codes.NotFound {
		r.t.Errorf("described as %v, %v", d, err)
	}
	if dir, known := r.set.Inputs(id); dir != nil || known {
		r.t.Errorf("inputs at %v", dir)
	}
}

func (r *rig) files() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
