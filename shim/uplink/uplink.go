// Package uplink is the node's side of its one stream with the control plane.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// The control plane is on this machine or a few milliseconds away, and requests
	// are parked while it is gone: try again soon, and settle at once a second.
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second
	// outboxSize is how many messages wait for the stream before status reports are
	// dropped; a reconnect's registration states everything anew.
	outboxSize = 1024
)

// Handler acts on what the control plane says. Its methods are called one after the
// other, in the order of the messages, and must not block.
type Handler interface {
	Functions(*nodeapi.Functions)
	Start(*nodeapi.StartInstance)
	Stop(*nodeapi.StopInstance)
	Expect(*nodeapi.Expect)
}

// Uplink keeps one stream open, and the node's open activations across streams.
type Uplink struct {
	client   nodeapi.ControlPlaneClient
	register func() *nodeapi.Register
	handler  Handler
	log      *slog.Logger

	outbox      chan *nodeapi.NodeMessage
	loadChanged chan struct{} // holds one token

	mu   sync.Mutex
	open map[string]*activation
	load map[string]int32
}

type activation struct {
	message *nodeapi.NodeMessage
	answer  chan answer // holds one
}

type answer struct {
	bound *nodeapi.Bound
	err   error
}

// New returns an uplink; register states what the node is and runs, anew for each
// stream.
func New(client nodeapi.ControlPlaneClient, register func() *nodeapi.Register, handler Handler, log *slog.Logger) *Uplink {
	return &Uplink{client: client, register: register, handler: handler, log: log,
		outbox: make(chan *nodeapi.NodeMessage, outboxSize), loadChanged: make(chan struct{}, 1),
		open: map[string]*activation{}, load: map[string]int32{}}
}

// Run keeps the stream open until ctx ends.
func (u *Uplink) Run(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	for {
		began := time.Now()
		err := u.session(ctx)
		if ctx.Err() != nil {
			return
		}
		u.log.Warn("the control plane is away; parked requests wait for it", "error", err)
		if time.Since(began) > reconnectLongest {
			wait.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// session is one stream: registration, open activations, then both directions until
// one ends.
func (u *Uplink) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.client.Connect(ctx)
	if err != nil {
		return fmt.Errorf("opening the stream: %w", err)
	}
	u.dropOutbox()
	if err := stream.Send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: u.register()}}); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	for _, m := range u.unanswered() {
		if err := stream.Send(m); err != nil {
			return fmt.Errorf("repeating an activation: %w", err)
		}
	}
	received := make(chan error, 1)
	go func() { received <- u.receive(stream) }()
	defer func() {
		cancel()
		<-received
	}()
	for {
		select {
		case m := <-u.outbox:
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("sending: %w", err)
			}
		case <-u.loadChanged:
			if err := stream.Send(u.loadMessage()); err != nil {
				return fmt.Errorf("sending the load: %w", err)
			}
		case err := <-received:
			received <- nil
			return err
		}
	}
}

// dropOutbox forgets what was meant for the stream before: the registration says it
// better.
func (u *Uplink) dropOutbox() {
	for {
		select {
		case <-u.outbox:
		default:
			return
		}
	}
}

// unanswered returns the messages that the new stream starts with.
func (u *Uplink) unanswered() []*nodeapi.NodeMessage {
	all := []*nodeapi.NodeMessage{u.loadMessage()}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range u.open {
		all = append(all, a.message)
	}
	return all
}

func (u *Uplink) receive(stream nodeapi.ControlPlane_ConnectClient) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		switch k := m.GetKind().(type) {
		case *nodeapi.ControlMessage_Functions:
			u.handler.Functions(k.Functions)
		case *nodeapi.ControlMessage_Start:
			u.handler.Start(k.Start)
		case *nodeapi.ControlMessage_Stop:
			u.handler.Stop(k.Stop)
		case *nodeapi.ControlMessage_Expect:
			u.handler.Expect(k.Expect)
		case *nodeapi.ControlMessage_Bound:
			u.settle(k.Bound.GetRequest(), answer{bound: k.Bound})
		case *nodeapi.ControlMessage_Refused:
			r := k.Refused
			u.settle(r.GetRequest(), answer{err: problem.New(int(r.GetStatus()), r.GetReason(), r.GetField(), r.GetMessage())})
		}
	}
}

func (u *Uplink) settle(request string, a answer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if act, ok := u.open[request]; ok {
		delete(u.open, request)
		act.answer <- a
	}
}

// Activate asks for an instance and waits until the request is bound to one. The
// question survives reconnects. An error is a *problem.Problem or ctx's.
func (u *Uplink) Activate(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
	act := &activation{message: &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Activate{Activate: a}}, answer: make(chan answer, 1)}
	u.mu.Lock()
	if _, taken := u.open[a.GetRequest()]; taken {
		u.mu.Unlock()
		return nil, problem.New(http.StatusConflict, "DuplicateRequest", "x-headstart-request", "a request with this id is being activated")
	}
	u.open[a.GetRequest()] = act
	u.mu.Unlock()
	// Unlike a report, a question must not be dropped: without a stream the reconnect
	// asks it, with one there is soon room.
	select {
	case u.outbox <- act.message:
	case <-ctx.Done():
	}
	select {
	case ans := <-act.answer:
		return ans.bound, ans.err
	case <-ctx.Done():
		u.mu.Lock()
		delete(u.open, a.GetRequest())
		u.mu.Unlock()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, problem.New(http.StatusGatewayTimeout, "ActivationTimeout", "",
				"the control plane placed no instance in time; `headstart status` shows whether it runs and has nodes")
		}
		return nil, ctx.Err()
	}
}

// Report tells of an instance's change. It never blocks.
func (u *Uplink) Report(s *nodeapi.InstanceStatus) {
	u.post(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Instance{Instance: s}})
}

// Event tells the operator something. It never blocks.
func (u *Uplink) Event(e *nodeapi.Event) {
	u.post(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Event{Event: e}})
}

// Hold adds delta to the number of requests that the node has in its hands for the
// function and tells the control plane, which stops no instance meanwhile.
func (u *Uplink) Hold(function string, delta int32) {
	u.mu.Lock()
	if u.load[function] += delta; u.load[function] <= 0 {
		delete(u.load, function)
	}
	u.mu.Unlock()
	select {
	case u.loadChanged <- struct{}{}:
	default: // a message is due anyway, and will tell the newest
	}
}

func (u *Uplink) loadMessage() *nodeapi.NodeMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &nodeapi.Load{InFlight: make(map[string]int32, len(u.load))}
	for f, n := range u.load {
		l.InFlight[f] = n
	}
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: l}}
}

func (u *Uplink) post(m *nodeapi.NodeMessage) {
	select {
	case u.outbox <- m:
	default:
		u.log.Warn("the control plane does not take messages; one was dropped")
	}
}
