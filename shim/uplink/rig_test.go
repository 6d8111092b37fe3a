package uplink_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
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
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	r := &rig{t: t, handler: &handler{calls: make(chan string, 100)}, cp: &controlPlane{t: t, streams: make(chan *stream)}, stopped: make(chan struct{})}
	server := grpc.NewServer()
	nodeapi.RegisterControlPlaneServer(server, r.cp)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///control-plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}, MinConnectTimeout: patience}),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	registrations := 0
	r.Uplink = uplink.New(nodeapi.NewControlPlaneClient(conn), func() *nodeapi.Register {
		registrations++
		reg := registration(registrations)
		reg.Version += r.version
		return reg
	}, r.handler, slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
			<-r.stopped
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
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
		r.Run(ctx)
	}()
}

// run runs the uplink and returns its first stream, registered.
func (r *rig) run() *stream {
	r.t.Helper()
	r.start()
	return r.registered(1)
}

// registered returns the next stream, after what each begins with.
func (r *rig) registered(n int) *stream {
	r.t.Helper()
	s := r.opened()
	s.want(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: registration(n)}})
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
	return &nodeapi.Register{Version: "v" + strconv.Itoa(n), PeerAddress: "192.0.2.1:7000",
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
type handler struct{ calls chan string }

func (h *handler) Functions(f *nodeapi.Functions) {
	h.calls <- "functions " + strconv.Itoa(len(f.GetFunctions()))
}
func (h *handler) Start(s *nodeapi.StartInstance) { h.calls <- "start " + s.GetId() }
func (h *handler) Stop(s *nodeapi.StopInstance)   { h.calls <- "stop " + s.GetId() }
func (h *handler) Instances(i *nodeapi.Instances) {
	h.calls <- "instances " + strconv.Itoa(len(i.GetInstances()))
}
func (h *handler) Neighbours(m *nodeapi.Neighbours) {
	h.calls <- fmt.Sprintf("neighbours %d", len(m.GetNeighbours()))
}

func (h *handler) Triggers(m *nodeapi.Triggers) {
	h.calls <- fmt.Sprintf("triggers %d", len(m.GetTriggers()))
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
