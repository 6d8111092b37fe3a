// Package nodes is the control plane's side of its streams with the nodes.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// outboxSize is how many messages wait for one node. A node that takes none for that
// long is cut off; it registers anew and is told everything again.
const outboxSize = 4096

// activationsMost is how many activations of one node wait at a time: as many requests
// as a gateway has open to its daemon. Further ones wait in the stream.
const activationsMost = 8192

// Handler acts on what the nodes say. For one node its methods are called one after
// the other: Joined, what one stream says in its order, Left; then perhaps Joined again.
// They must not block. Activate may until its context ends; calls of it run side by side,
// between Joined and Left.
type Handler interface {
	Joined(node string, r *nodeapi.Register)
	Left(node string)
	Instance(node string, s *nodeapi.InstanceStatus)
	// Activate returns a Bound or a Refused.
	Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage
	Load(node string, inFlight map[string]int32)
	Event(node string, e *nodeapi.Event)
}

// Server implements nodeapi.ControlPlaneServer.
type Server struct {
	nodeapi.UnimplementedControlPlaneServer
	handler Handler
	log     *slog.Logger
	serving sync.WaitGroup

	mu        sync.Mutex
	latest    map[string]*stream // of each node, until the handler knows that it has left
	joined    map[string]*stream // those that messages can be sent by
	functions *nodeapi.Functions
}

type stream struct {
	node     string
	register *nodeapi.Register
	outbox   chan *nodeapi.ControlMessage
	cancel   context.CancelCauseFunc
	before   *stream       // the node's previous one, if that may still have something to say
	gone     chan struct{} // closed when the handler hears no more of this one
}

var (
	errReplaced = errors.New("the node opened another stream")
	errSlow     = errors.New("the node does not take its messages")
)

// ErrNotConnected means that a message has no stream to go by.
var ErrNotConnected = errors.New("the node is not connected")

// New returns a server; SetHandler comes before it serves.
func New(log *slog.Logger) *Server {
	return &Server{log: log, latest: map[string]*stream{}, joined: map[string]*stream{}, functions: &nodeapi.Functions{}}
}

// SetHandler names who acts on the nodes' messages. The handler usually sends by the
// server itself, hence the two steps.
func (s *Server) SetHandler(h Handler) { s.handler = h }

// Wait returns when the handler hears no more of streams that have ended. It is called
// after the gRPC server has stopped and its handlers have returned.
func (s *Server) Wait() { s.serving.Wait() }

// Connect implements nodeapi.ControlPlaneServer.
func (s *Server) Connect(c nodeapi.ControlPlane_ConnectServer) error {
	node, err := peertls.Peer(c.Context())
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	first, err := c.Recv()
	if err != nil {
		return err
	}
	if first.GetRegister() == nil {
		return status.Error(codes.InvalidArgument, "the first message must be a Register")
	}
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	st := &stream{node: node, register: first.GetRegister(), outbox: make(chan *nodeapi.ControlMessage, outboxSize), cancel: cancel, gone: make(chan struct{})}
	s.replace(st)
	// Only this method's return interrupts a Send or a Recv that hangs, so neither may
	// be done here.
	ended := make(chan error, 2)
	s.serving.Go(func() { ended <- st.forward(ctx, c) })
	s.serving.Go(func() { ended <- s.receive(ctx, st, c) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return status.Error(codes.Aborted, context.Cause(ctx).Error())
	}
}

// replace makes st the node's stream and ends the one before.
func (s *Server) replace(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.before = s.latest[st.node]; st.before != nil {
		st.before.cancel(errReplaced)
	}
	s.latest[st.node] = st
}

// forward sends what is in the outbox.
func (st *stream) forward(ctx context.Context, c nodeapi.ControlPlane_ConnectServer) error {
	for {
		select {
		case m := <-st.outbox:
			if err := c.Send(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive is the handler's view of a stream, from Joined to Left.
func (s *Server) receive(ctx context.Context, st *stream, c nodeapi.ControlPlane_ConnectServer) error {
	defer close(st.gone)
	if st.before != nil {
		<-st.before.gone
		st.before = nil
	}
	s.join(st)
	defer s.leave(st)
	var activations sync.WaitGroup
	defer activations.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, activationsMost)
	for {
		m, err := c.Recv()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch k := m.GetKind().(type) {
		case *nodeapi.NodeMessage_Activate:
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			activations.Go(func() {
				defer func() { <-slots }()
				// A stream that is too slow is cut off, and asks again when it is back.
				_ = st.send(s.handler.Activate(ctx, st.node, k.Activate))
			})
		case *nodeapi.NodeMessage_Instance:
			s.handler.Instance(st.node, k.Instance)
		case *nodeapi.NodeMessage_Load:
			s.handler.Load(st.node, k.Load.GetInFlight())
		case *nodeapi.NodeMessage_Event:
			s.handler.Event(st.node, k.Event)
		}
	}
}

func (s *Server) join(st *stream) {
	s.mu.Lock()
	s.joined[st.node] = st
	st.outbox <- &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: s.functions}} // there is room: it is the first
	s.mu.Unlock()
	s.log.Info("node joined", "node", st.node, "version", st.register.GetVersion(), "instances", len(st.register.GetInstances()))
	s.handler.Joined(st.node, st.register)
}

func (s *Server) leave(st *stream) {
	s.mu.Lock()
	delete(s.joined, st.node)
	s.mu.Unlock()
	s.log.Warn("node left", "node", st.node)
	s.handler.Left(st.node)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest[st.node] == st {
		delete(s.latest, st.node)
	}
}

// send puts a message into the outbox; it never blocks.
func (st *stream) send(m *nodeapi.ControlMessage) error {
	select {
	case st.outbox <- m:
		return nil
	default:
		st.cancel(errSlow)
		return errSlow
	}
}

// SetFunctions tells all nodes, and those that join later, what they may serve.
func (s *Server) SetFunctions(f *nodeapi.Functions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.functions = f
	for _, st := range s.joined {
		// A stream that is too slow is cut off and told at its next registration.
		_ = st.send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: f}})
	}
}

// Send sends one message to one node, after those sent before.
func (s *Server) Send(node string, m *nodeapi.ControlMessage) error {
	s.mu.Lock()
	st, ok := s.joined[node]
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("node %s: %w", node, ErrNotConnected)
	}
	return st.send(m)
}

// Connected returns the registrations of the nodes that are connected.
func (s *Server) Connected() map[string]*nodeapi.Register {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*nodeapi.Register, len(s.joined))
	for name, st := range s.joined {
		all[name] = st.register
	}
	return all
}
