// Package nodes is the control plane's side of its streams with the nodes.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// outboxSize is how many messages wait for one node. A node that takes none for that
// long is cut off; it registers anew and is told everything again.
const outboxSize = 4096

// Handler acts on what the nodes say. For one node its methods are called one after
// the other, in the order of the messages, and must not block.
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

	mu        sync.Mutex
	streams   map[string]*stream
	functions *nodeapi.Functions
}

type stream struct {
	register *nodeapi.Register
	outbox   chan *nodeapi.ControlMessage
	cancel   context.CancelCauseFunc
}

var (
	errReplaced = errors.New("the node opened another stream")
	errSlow     = errors.New("the node does not take its messages")
)

// ErrNotConnected means that a message has no stream to go by.
var ErrNotConnected = errors.New("the node is not connected")

// New returns a server; SetHandler comes before it serves.
func New(log *slog.Logger) *Server {
	return &Server{log: log, streams: map[string]*stream{}, functions: &nodeapi.Functions{}}
}

// SetHandler names who acts on the nodes' messages. The handler usually sends by the
// server itself, hence the two steps.
func (s *Server) SetHandler(h Handler) { s.handler = h }

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
	st := &stream{register: first.GetRegister(), outbox: make(chan *nodeapi.ControlMessage, outboxSize), cancel: cancel}
	s.add(node, st)
	s.log.Info("node joined", "node", node, "version", st.register.GetVersion(), "instances", len(st.register.GetInstances()))
	s.handler.Joined(node, st.register)
	defer func() {
		if s.remove(node, st) {
			s.log.Warn("node left", "node", node)
			s.handler.Left(node)
		}
	}()

	received := make(chan error, 1)
	go func() { received <- s.receive(ctx, node, st, c) }() // ends with the stream, that is with this method
	for {
		select {
		case m := <-st.outbox:
			if err := c.Send(m); err != nil {
				return err
			}
		case err := <-received:
			return err
		case <-ctx.Done():
			return status.Error(codes.Aborted, context.Cause(ctx).Error())
		}
	}
}

func (s *Server) receive(ctx context.Context, node string, st *stream, c nodeapi.ControlPlane_ConnectServer) error {
	for {
		m, err := c.Recv()
		if err != nil {
			return err
		}
		switch k := m.GetKind().(type) {
		case *nodeapi.NodeMessage_Activate:
			answer := s.handler.Activate(ctx, node, k.Activate)
			if err := st.send(answer); err != nil {
				return err
			}
		case *nodeapi.NodeMessage_Instance:
			s.handler.Instance(node, k.Instance)
		case *nodeapi.NodeMessage_Load:
			s.handler.Load(node, k.Load.GetInFlight())
		case *nodeapi.NodeMessage_Event:
			s.handler.Event(node, k.Event)
		}
	}
}

func (st *stream) send(m *nodeapi.ControlMessage) error {
	select {
	case st.outbox <- m:
		return nil
	default:
		st.cancel(errSlow)
		return errSlow
	}
}

func (s *Server) add(node string, st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.streams[node]; ok {
		old.cancel(errReplaced)
	}
	s.streams[node] = st
	st.outbox <- &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: s.functions}}
}

// remove tells whether the stream was still the node's own.
func (s *Server) remove(node string, st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[node] != st {
		return false
	}
	delete(s.streams, node)
	return true
}

// SetFunctions tells all nodes, and those that join later, what they may serve.
func (s *Server) SetFunctions(f *nodeapi.Functions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.functions = f
	for _, st := range s.streams {
		// A stream that is too slow is cut off and told at its next registration.
		_ = st.send(&nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Functions{Functions: f}})
	}
}

// Send sends one message to one node, after those sent before.
func (s *Server) Send(node string, m *nodeapi.ControlMessage) error {
	s.mu.Lock()
	st, ok := s.streams[node]
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
	all := make(map[string]*nodeapi.Register, len(s.streams))
	for name, st := range s.streams {
		all[name] = st.register
	}
	return all
}

// Names returns the connected nodes' names, sorted.
func (s *Server) Names() []string {
	return slices.Sorted(maps.Keys(s.Connected()))
}
