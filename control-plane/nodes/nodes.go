// Package nodes is the control plane's side of its streams with the nodes.
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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
// A node whose daemon is being updated has two for a while, whose words come side by side:
// it has Joined with each, and Left with the last. They must not block. Activate may until
// its context ends; calls of it run side by side, between Joined and Left.
type Handler interface {
	Joined(node string, r *nodeapi.Register)
	Left(node string)
	Instance(node string, s *nodeapi.InstanceStatus)
	// Activate returns a Bound or a Refused.
	Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage
	// Load is what all daemons of the node have in their hands together.
	Load(node string, inFlight map[string]int32)
	Event(node string, e *nodeapi.Event)
}

// Observer hears what the nodes measure. Its methods must not block. For one daemon they are
// called one after the other: Came, what it says, Went. Of a node that has two daemons the
// older one's RoundTrips are not heard: two that share a name would say two things in turns.
type Observer interface {
	Came(node, process string)
	Went(node, process string)
	RoundTrips(node string, m *nodeapi.RoundTrips)
	Signals(node, process string, m *nodeapi.Signals)
}

// Budget hears how many unused connections daemons have and want. Its methods must not block. For one daemon they are
// called one after the other. Of a node's daemons only the newest is to get more.
type Budget interface {
	Unused(node, process string, newest bool, m *nodeapi.Unused)
	Went(node, process string)
}

// Server implements nodeapi.ControlPlaneServer.
type Server struct {
	nodeapi.UnimplementedControlPlaneServer
	handler  Handler
	observer Observer // nil: nobody wants to know
	budget   Budget   // likewise
	log      *slog.Logger
	serving  sync.WaitGroup

	// told is held while the handler hears what is of all daemons of a node together.
	told sync.Mutex

	mu        sync.Mutex
	latest    map[process]*stream  // of each daemon, until the handler knows that it has left
	joined    map[string][]*stream // those that messages can be sent by, by node; the newest last
	functions *nodeapi.Functions
	inCharge  bool
	keys      *nodeapi.Keys // nil: its capabilities are not signed
	// destinations are told with the functions, to daemons that take these in parts.
	destinations []*nodeapi.Destination
}

// process is one daemon of a node.
type process struct{ node, name string }

type stream struct {
	process
	register *nodeapi.Register
	outbox   chan *nodeapi.ControlMessage
	cancel   context.CancelCauseFunc
	before   *stream       // the node's previous one, if that may still have something to say
	gone     chan struct{} // closed when the handler hears no more of this one

	// Of the server's mu.
	since     time.Time                    // when it joined
	load      map[string]int32             // as it was told last
	refused   *nodeapi.GatewayRefusals     // likewise
	stores    *nodeapi.StoreProblems       // likewise
	kept      *nodeapi.Keeps               // likewise; nil: it said nothing
	unreached *nodeapi.DestinationProblems // likewise
	unused    *nodeapi.Unused              // likewise
	// confirms are the Confirms that wait, each closed with the daemon's word.
	confirms map[int64]chan struct{}
	// calls are the Caches that wait.
	calls map[int64]chan *nodeapi.CacheAnswer
}

var (
	errReplaced = errors.New("the node opened another stream")
	errSlow     = errors.New("the node does not take its messages")
)

// ErrNotConnected means that a message has no stream to go by.
var ErrNotConnected = errors.New("the node is not connected")

// New returns a server; SetHandler comes before it serves.
func New(log *slog.Logger) *Server {
	return &Server{log: log, latest: map[process]*stream{}, joined: map[string][]*stream{}, functions: &nodeapi.Functions{}}
}

// SetHandler names who acts on the nodes' messages. The handler usually sends by the
// server itself, hence the two steps.
func (s *Server) SetHandler(h Handler) { s.handler = h }

// SetObserver names who hears what nodes measure; it comes before the server serves.
func (s *Server) SetObserver(o Observer) { s.observer = o }

// SetDestinations names the operator's destinations, of which nodes are told; it comes before the server serves.
func (s *Server) SetDestinations(all []*nodeapi.Destination) { s.destinations = all }

// SetBudget names who hears of unused connections; it comes before the server serves.
func (s *Server) SetBudget(b Budget) { s.budget = b }

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
	// One that says that it is alone is known by its address: another one there takes its place, and
	// one elsewhere, which has the same name by mistake, does not.
	daemon := cmp.Or(first.GetRegister().GetProcess(), first.GetRegister().GetPeerAddress())
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	st := &stream{process: process{node, daemon}, register: first.GetRegister(),
		outbox: make(chan *nodeapi.ControlMessage, outboxSize), cancel: cancel, gone: make(chan struct{}),
		confirms: map[int64]chan struct{}{}, calls: map[int64]chan *nodeapi.CacheAnswer{}}
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

// replace makes st its daemon's stream and ends the one before.
func (s *Server) replace(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.before = s.latest[st.process]; st.before != nil {
		st.before.cancel(errReplaced)
	}
	s.latest[st.process] = st
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
			s.loaded(st, k.Load.GetInFlight())
		case *nodeapi.NodeMessage_Event:
			s.handler.Event(st.node, k.Event)
		case *nodeapi.NodeMessage_GatewayRefusals:
			s.refuses(st, k.GatewayRefusals)
		case *nodeapi.NodeMessage_StoreProblems:
			s.lacks(st, k.StoreProblems)
		case *nodeapi.NodeMessage_DestinationProblems:
			s.misses(st, k.DestinationProblems)
		case *nodeapi.NodeMessage_Keeps:
			s.keeps(st, k.Keeps)
		case *nodeapi.NodeMessage_Confirmed:
			s.confirmed(st, k.Confirmed.GetId())
		case *nodeapi.NodeMessage_CacheAnswer:
			s.answered(st, k.CacheAnswer)
		case *nodeapi.NodeMessage_RoundTrips, *nodeapi.NodeMessage_Signals:
			s.observe(st, m)
		case *nodeapi.NodeMessage_Unused:
			s.holds(st, k.Unused)
			if s.budget != nil {
				s.budget.Unused(st.node, st.name, s.newest(st), k.Unused)
			}
		}
	}
}

func (s *Server) join(st *stream) {
	s.told.Lock()
	defer s.told.Unlock()
	s.mu.Lock()
	st.since = time.Now()
	s.joined[st.node] = append(s.joined[st.node], st)
	if s.keys != nil { // first: with functions, the node takes requests over
		_ = st.send(keys(s.keys))
	}
	_ = st.tell(s.whole(st)...) // there is room: it is the second
	if s.inCharge {
		_ = st.send(inCharge(true)) // the third
	}
	s.mu.Unlock()
	s.log.Info("node joined", "node", st.node, "version", st.register.GetVersion(), "process", st.name, "instances", len(st.register.GetInstances()))
	s.handler.Joined(st.node, st.register)
	if s.observer != nil {
		s.observer.Came(st.node, st.name)
	}
}

func (s *Server) leave(st *stream) {
	s.told.Lock()
	defer s.told.Unlock()
	s.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(s.joined[st.node]), func(other *stream) bool { return other == st })
	s.joined[st.node] = left
	if len(left) == 0 {
		delete(s.joined, st.node)
	}
	s.mu.Unlock()
	s.log.Warn("node left", "node", st.node, "process", st.name)
	if s.observer != nil {
		s.observer.Went(st.node, st.name)
	}
	if s.budget != nil {
		s.budget.Went(st.node, st.name)
	}
	if len(left) == 0 {
		s.handler.Left(st.node)
	} else {
		s.handler.Load(st.node, s.load(st.node))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest[st.process] == st {
		delete(s.latest, st.process)
	}
}

// observe passes on what a daemon measured.
func (s *Server) observe(st *stream, m *nodeapi.NodeMessage) {
	if s.observer == nil {
		return
	}
	if measured := m.GetSignals(); measured != nil {
		s.observer.Signals(st.node, st.name, measured)
		return
	}
	if s.newest(st) {
		s.observer.RoundTrips(st.node, m.GetRoundTrips())
	}
}

// newest tells whether the stream, which has joined, is that of its node's newest daemon.
func (s *Server) newest(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.joined[st.node]
	return of[len(of)-1] == st
}

// loaded takes a daemon's word on what it has in its hands.
func (s *Server) loaded(st *stream, inFlight map[string]int32) {
	s.told.Lock()
	defer s.told.Unlock()
	s.mu.Lock()
	st.load = inFlight
	s.mu.Unlock()
	s.handler.Load(st.node, s.load(st.node))
}

// load is what all daemons of a node have together.
func (s *Server) load(node string) map[string]int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.joined[node]; len(of) == 1 {
		return of[0].load
	}
	sum := map[string]int32{}
	for _, st := range s.joined[node] {
		for function, n := range st.load {
			sum[function] += n
		}
	}
	return sum
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

// tell sends several messages, one after the other.
func (st *stream) tell(all ...*nodeapi.ControlMessage) error {
	for _, m := range all {
		if err := st.send(m); err != nil {
			return err
		}
	}
	return nil
}

// whole is what a stream is told of all functions; the caller holds mu.
func (s *Server) whole(st *stream) []*nodeapi.ControlMessage {
	if st.register.GetParts() {
		return s.changes(s.functions.GetFunctions(), nil, s.functions.GetStores())
	}
	return []*nodeapi.ControlMessage{{Kind: &nodeapi.ControlMessage_Functions{Functions: s.functions}}}
}

// SetFunctions tells all nodes, and those that join later, what they may serve: what is different, if
// anything is.
func (s *Server) SetFunctions(f *nodeapi.Functions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, removed := differ(s.functions, f)
	sameStores := slices.EqualFunc(s.functions.GetStores(), f.GetStores(), func(a, b *nodeapi.Store) bool { return proto.Equal(a, b) })
	if s.functions = f; len(changed)+len(removed) == 0 && sameStores {
		return
	}
	news := s.changes(changed, removed, f.GetStores())
	for _, of := range s.joined {
		for _, st := range of {
			// A stream that is too slow is cut off and told at its next registration.
			if st.register.GetParts() {
				_ = st.tell(news...)
			} else {
				_ = st.tell(s.whole(st)...)
			}
		}
	}
}

// SetKeys tells all nodes, and those that join later, which keys this control plane's capabilities may
// be signed by. A new key is told before it signs, and an old one until its last capability has expired.
func (s *Server) SetKeys(k *nodeapi.Keys) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = k
	for _, of := range s.joined {
		for _, st := range of {
			_ = st.send(keys(k)) // as above
		}
	}
}

func keys(k *nodeapi.Keys) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Keys{Keys: k}}
}

// SetInCharge tells all nodes, and those that join later, whether this control plane is the one
// of several that they follow.
func (s *Server) SetInCharge(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inCharge == held {
		return
	}
	s.inCharge = held
	for _, of := range s.joined {
		for _, st := range of {
			_ = st.send(inCharge(held)) // as above
		}
	}
}

func inCharge(held bool) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_InCharge{InCharge: &nodeapi.InCharge{Held: held}}}
}

// Send sends one message to one node, after those sent before. Of two daemons the newer
// gets it; only what runs on the node is told to both. Who sends Instances or Triggers sends one
// at a time: large ones go in parts.
func (s *Server) Send(node string, m *nodeapi.ControlMessage) error {
	s.mu.Lock()
	of := s.joined[node]
	s.mu.Unlock()
	if len(of) == 0 {
		return fmt.Errorf("node %s: %w", node, ErrNotConnected)
	}
	newest := len(of) - 1
	if m.GetInstances() != nil {
		for _, st := range of[:newest] {
			// As above: one that is too slow is told when it is back.
			_ = st.tell(st.cut(m)...)
		}
	}
	return of[newest].tell(of[newest].cut(m)...)
}

// SendTo sends one message to one daemon of a node.
func (s *Server) SendTo(node, process string, m *nodeapi.ControlMessage) error {
	s.mu.Lock()
	of := s.joined[node]
	s.mu.Unlock()
	for _, st := range of {
		if st.name == process {
			return st.tell(st.cut(m)...)
		}
	}
	return fmt.Errorf("node %s: %w", node, ErrNotConnected)
}

// cut is a message as the daemon takes it.
func (st *stream) cut(m *nodeapi.ControlMessage) []*nodeapi.ControlMessage {
	if st.register.GetParts() {
		return inParts(m)
	}
	return []*nodeapi.ControlMessage{m}
}

// Connected returns the registrations of the nodes that are connected.
func (s *Server) Connected() map[string]*nodeapi.Register {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]*nodeapi.Register, len(s.joined))
	for name, of := range s.joined {
		all[name] = of[len(of)-1].register
	}
	return all
}
