package uplink_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the machine may take for what takes it milliseconds.
const patience = 30 * time.Second

// stream is one that the node has opened; the test speaks for the control plane.
type stream struct {
	t *testing.T
	nodeapi.ControlPlane_ConnectServer
	end chan error
}

// controlPlane hands its streams to the test.
type controlPlane struct {
	nodeapi.UnimplementedControlPlaneServer
	t       *testing.T
	streams chan *stream
	dial    func() (uplink.Conn, error)
	pulse   pulse
}

// pulse says that a control plane is there, while it does not hang.
type pulse struct {
	health.UnimplementedHealthServer
	mu    sync.Mutex
	hangs chan struct{} // closed when it does not any more; nil: it does not
	asked int           // how often
}

func (p *pulse) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// hang has it hang until it is told to go on.
func (p *pulse) hang() (goOn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hangs := make(chan struct{})
	p.hangs = hangs
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hangs = nil
		close(hangs)
	}
}

func (p *pulse) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	p.mu.Lock()
	hangs := p.hangs
	p.asked++
	p.mu.Unlock()
	if hangs != nil {
		select {
		case <-hangs:
		case <-ctx.Done():
		}
	}
	return &health.HealthCheckResponse{}, nil
}

// serveControlPlane serves one until the test's end.
func serveControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	c := &controlPlane{t: t, streams: make(chan *stream)}
	server := grpc.NewServer()
	nodeapi.RegisterControlPlaneServer(server, c)
	health.RegisterHealthServer(server, &c.pulse)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c.dial = func() (uplink.Conn, error) {
		return grpc.NewClient("passthrough:///control-plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: patience}),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	}
	return c
}

// directory has the control planes by their addresses.
type directory struct {
	mu    sync.Mutex
	all   map[string]func() (uplink.Conn, error)
	spare string // leads to any
}

func (d *directory) Addresses(context.Context) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.all)), func(a string) bool { return a == d.spare }), nil
}

func (d *directory) Any() string { return d.spare }

func (d *directory) Dial(address string) (uplink.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all[address]()
}

// only is a directory of one control plane.
func only(dial func() (uplink.Conn, error)) *directory {
	return &directory{all: map[string]func() (uplink.Conn, error){"one": dial}}
}

func (c *controlPlane) Connect(s nodeapi.ControlPlane_ConnectServer) error {
	mine := &stream{t: c.t, ControlPlane_ConnectServer: s, end: make(chan error, 1)}
	select {
	case c.streams <- mine:
	case <-s.Context().Done():
		return s.Context().Err()
	}
	select {
	case err := <-mine.end:
		return err
	case <-s.Context().Done():
		return s.Context().Err()
	}
}

// rig is an uplink and the control plane that it has.
type rig struct {
	*uplink.Uplink
	t       *testing.T
	handler *handler
	cp      *controlPlane
	version string // is added to what the node says of itself
	stop    context.CancelFunc
	stopped chan struct{}
	// registrations are how many streams there were.
	registrations *atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cp := serveControlPlane(t)
	return newRigOf(t, cp, only(cp.dial))
}

// newRigOf is a rig whose cp is one of the directory's.
func newRigOf(t *testing.T, cp *controlPlane, d uplink.Directory) *rig {
	t.Helper()
	r := &rig{
		t: t, handler: &handler{calls: make(chan string, 100)}, registrations: &atomic.Int64{}, cp: cp,
		stopped: make(chan struct{}),
	}
	r.Uplink = uplink.New(d, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
			<-r.stopped
		}
	})
	return r
}

// start runs the uplink.
func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.stop = cancel
	go func() {
		defer close(r.stopped)
		r.Run(ctx, r.register, r.handler)
	}()
}

func (r *rig) register() *nodeapi.Register {
	reg := registration(int(r.registrations.Add(1)))
	reg.Version += r.version
	reg.Parts = false // which the uplink itself says
	return reg
}

// run runs the uplink and returns its first stream, registered.
func (r *rig) run() *stream {
	r.t.Helper()
	r.start()
	return r.registered(1)
}

// registered returns the next stream, after what each begins with.
func (r *rig) registered(n int, ended ...*nodeapi.InstanceStatus) *stream {
	r.t.Helper()
	s := r.opened()
	want := registration(n)
	want.Instances = append(want.Instances, ended...)
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: want}})
	if m := s.recv(); m.GetLoad() == nil {
		r.t.Errorf("after the registration came %v, want the load", m)
	}
	return s
}

func (r *rig) opened() *stream {
	r.t.Helper()
	select {
	case s := <-r.cp.streams:
		return s
	case <-time.After(patience):
		r.t.Fatal("no stream was opened")
		return nil
	}
}

func registration(n int) *nodeapi.Register {
	return &nodeapi.Register{Version: "v" + strconv.Itoa(n), PeerAddress: "192.0.2.1:7000", Parts: true,
		Instances: []*nodeapi.InstanceStatus{{Id: "one", Function: "default/fire", Phase: nodeapi.Phase_PHASE_READY}}}
}

func (s *stream) recv() *nodeapi.NodeMessage {
	s.t.Helper()
	type received struct {
		m   *nodeapi.NodeMessage
		err error
	}
	next := make(chan received, 1)
	go func() {
		m, err := s.Recv()
		next <- received{m, err}
	}()
	select {
	case got := <-next:
		if got.err != nil {
			s.t.Fatal(got.err)
		}
		return got.m
	case <-time.After(patience):
		s.t.Fatal("no message came")
		return nil
	}
}

func (s *stream) want(want *nodeapi.NodeMessage) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.recv(), protocmp.Transform()); diff != "" {
		s.t.Fatalf("message (-want +got):\n%s", diff)
	}
}

func (s *stream) say(m *nodeapi.ControlMessage) {
	s.t.Helper()
	if err := s.Send(m); err != nil {
		s.t.Error(err)
	}
}

// handler tells what it was called with.
type handler struct {
	cacheCalls atomic.Int64
	calls      chan string

	mu   sync.Mutex
	keys []string // as told last
	told int      // how often
}

func (h *handler) Keys(m *nodeapi.Keys) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys, h.told = nil, h.told+1
	for _, key := range m.GetKeys() {
		h.keys = append(h.keys, string(key))
	}
}

func (h *handler) Functions(f *nodeapi.Functions) {
	h.calls <- "functions " + strconv.Itoa(len(f.GetFunctions()))
}
func (h *handler) Start(s *nodeapi.StartInstance)       { h.calls <- "start " + s.GetId() }
func (h *handler) Stop(s *nodeapi.StopInstance)         { h.calls <- "stop " + s.GetId() }
func (h *handler) Withdraw(s *nodeapi.WithdrawInstance) { h.calls <- "withdraw " + s.GetId() }
func (h *handler) Instances(i *nodeapi.Instances) {
	h.calls <- "instances " + strconv.Itoa(len(i.GetInstances()))
}
func (h *handler) Neighbours(m *nodeapi.Neighbours) {
	h.calls <- fmt.Sprintf("neighbours %d", len(m.GetNeighbours()))
}
func (h *handler) Site(m *nodeapi.Site) { h.calls <- fmt.Sprintf("site %d", len(m.GetMembers())) }
func (h *handler) Passes(m *nodeapi.Passes) {
	h.calls <- fmt.Sprintf("passes %d", len(m.GetPasses()))
}

func (h *handler) Triggers(m *nodeapi.Triggers) {
	h.calls <- fmt.Sprintf("triggers %d", len(m.GetTriggers()))
}
func (h *handler) Confirm(c *nodeapi.Confirm) {
	h.calls <- "confirm " + strconv.FormatInt(c.GetId(), 10)
}
func (h *handler) Expect(e *nodeapi.Expect) { h.calls <- "expect " + e.GetRequest() }

func activate(request string) *nodeapi.Activate {
	return &nodeapi.Activate{Request: request, Function: "default/fire", Input: "s3://bucket/key"}
}

func asks(request string) *nodeapi.NodeMessage {
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: activate(request)}}
}

func event(reason string) *nodeapi.Event {
	return &nodeapi.Event{Function: "default/fire", Reason: reason}
}

func tells(e *nodeapi.Event) *nodeapi.NodeMessage {
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: e}}
}

func status(id string, phase nodeapi.Phase) *nodeapi.InstanceStatus {
	return &nodeapi.InstanceStatus{Id: id, Function: "default/fire", Phase: phase}
}

func reports(s *nodeapi.InstanceStatus) *nodeapi.NodeMessage {
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Instance{Instance: s}}
}

func binds(request, instance string) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: &nodeapi.Bound{Request: request, Instance: instance}}}
}

func refuses(r *nodeapi.Refused) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Refused{Refused: r}}
}

func (h *handler) Allow(*nodeapi.Allowances) {}

func (h *handler) CacheCall(m *nodeapi.CacheCall, answer func(*nodeapi.CacheAnswer)) {
	h.cacheCalls.Add(1)
	answer(&nodeapi.CacheAnswer{Id: m.GetId(), Entries: []*nodeapi.CacheEntry{{Reference: strings.Repeat("k", 4<<10)}}})
}
