// Package uplink is the node's side of its one stream with the control plane.
package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
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
	Instances(*nodeapi.Instances)
	Triggers(*nodeapi.Triggers)
	Neighbours(*nodeapi.Neighbours)
}

// Uplink keeps one stream open, and the node's open activations across streams.
type Uplink struct {
	client   nodeapi.ControlPlaneClient
	register func() *nodeapi.Register
	handler  Handler
	log      *slog.Logger

	outbox chan *nodeapi.NodeMessage // reports and events
	// Each holds one token when there is something to send.
	asked, loadChanged chan struct{}
	// Each holds the newest of its kind.
	roundTrips, signals chan *nodeapi.NodeMessage

	mu   sync.Mutex
	open map[string]*activation
	load map[string]int32
	seen map[string]bool // functions that requests pass by the daemon to
}

// New returns an uplink; register states what the node is and runs, anew for each
// stream.
func New(client nodeapi.ControlPlaneClient, register func() *nodeapi.Register, handler Handler, log *slog.Logger) *Uplink {
	return &Uplink{client: client, register: register, handler: handler, log: log,
		outbox: make(chan *nodeapi.NodeMessage, outboxSize), asked: make(chan struct{}, 1), loadChanged: make(chan struct{}, 1),
		roundTrips: make(chan *nodeapi.NodeMessage, 1), signals: make(chan *nodeapi.NodeMessage, 1),
		open: map[string]*activation{}, load: map[string]int32{}, seen: map[string]bool{}}
}

// Run keeps the stream open until ctx ends.
func (u *Uplink) Run(ctx context.Context) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	for {
		began := time.Now()
		err := u.connect(ctx)
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

// connect is one stream, until it ends. A direction that fails takes the other along:
// gRPC ends the stream with it.
func (u *Uplink) connect(ctx context.Context) error {
	stream, err := u.client.Connect(ctx)
	if err != nil {
		return fmt.Errorf("opening the stream: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return u.receive(stream) })
	g.Go(func() error {
		if err := u.send(ctx, stream); !errors.Is(err, io.EOF) {
			return err
		}
		return nil // the stream is broken: receive learns why
	})
	return g.Wait()
}

// send sends the registration and what is open, then what comes.
func (u *Uplink) send(ctx context.Context, stream nodeapi.ControlPlane_ConnectClient) error {
	u.dropReports()
	if err := stream.Send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: u.register()}}); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	if err := stream.Send(u.loadMessage()); err != nil {
		return fmt.Errorf("sending the load: %w", err)
	}
	u.askAnew()
	for {
		// What was reported before a question is told before it: the question may come
		// of it. Hence the questions are taken first.
		asks := u.unasked()
		for _, m := range append(u.waiting(), asks...) {
			if err := stream.Send(m); err != nil {
				return fmt.Errorf("sending: %w", err)
			}
		}
		var m *nodeapi.NodeMessage
		select {
		case <-u.asked:
			continue
		case <-u.loadChanged:
			m = u.loadMessage()
		case m = <-u.roundTrips:
		case m = <-u.signals:
		case m = <-u.outbox:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := stream.Send(m); err != nil {
			return fmt.Errorf("sending: %w", err)
		}
	}
}

// dropReports forgets what instances were said to be: the registration says it anew.
// It is silent on why some ended, so that goes on as an event.
func (u *Uplink) dropReports() {
	for _, m := range u.waiting() {
		switch s := m.GetInstance(); {
		case s == nil:
			u.post(m)
		case s.GetReason() != "":
			u.Event(&nodeapi.Event{Function: s.GetFunction(), Reason: s.GetReason(), Message: s.GetMessage(), Field: s.GetField(), At: timestamppb.Now()})
		}
	}
}

// waiting takes what is in the outbox; only send does.
func (u *Uplink) waiting() (all []*nodeapi.NodeMessage) {
	for range len(u.outbox) {
		all = append(all, <-u.outbox)
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
		case *nodeapi.ControlMessage_Instances:
			u.handler.Instances(k.Instances)
		case *nodeapi.ControlMessage_Triggers:
			u.handler.Triggers(k.Triggers)
		case *nodeapi.ControlMessage_Neighbours:
			u.handler.Neighbours(k.Neighbours)
		case *nodeapi.ControlMessage_Bound:
			u.settle(k.Bound.GetRequest(), answer{bound: k.Bound})
		case *nodeapi.ControlMessage_Refused:
			u.settle(k.Refused.GetRequest(), answer{err: refusal(k.Refused)})
		}
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
	signal(u.loadChanged)
}

// Seen tells whether gateways of this node have requests of the function that pass the
// daemon by. Such a function counts as one request more in the node's load, however many
// there are: the control plane only asks whether it is idle. The function has to be one
// that the control plane named: what a request says could be anything, and any number.
func (u *Uplink) Seen(function string, active bool) {
	u.mu.Lock()
	changed := u.seen[function] != active
	if active {
		u.seen[function] = true
	} else {
		delete(u.seen, function)
	}
	u.mu.Unlock()
	if changed {
		signal(u.loadChanged)
	}
}

// RoundTrips tells what the node measured. It never blocks; what still waits to be told is
// out of date with it. One of a time without control plane is told when that is back.
func (u *Uplink) RoundTrips(m *nodeapi.RoundTrips) {
	replace(u.roundTrips, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_RoundTrips{RoundTrips: m}})
}

// Signals tells of the requests that instances got, likewise.
func (u *Uplink) Signals(m *nodeapi.Signals) {
	replace(u.signals, &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Signals{Signals: m}})
}

// replace puts a message where one has room. Only one goroutine may do so for a channel.
func replace(in chan *nodeapi.NodeMessage, m *nodeapi.NodeMessage) {
	select {
	case <-in:
	default:
	}
	in <- m
}

// signal leaves a token: whoever takes it finds all that is new by then.
func signal(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

func (u *Uplink) loadMessage() *nodeapi.NodeMessage {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := &nodeapi.Load{InFlight: make(map[string]int32, len(u.load)+len(u.seen))}
	for f, n := range u.load {
		l.InFlight[f] = n
	}
	for f := range u.seen {
		l.InFlight[f]++
	}
	return &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Load{Load: l}}
}

// sendable tells whether a message can be sent: gRPC ends the stream over one that
// cannot, and what comes from requests may be anything but UTF-8.
func sendable(m *nodeapi.NodeMessage) bool {
	_, err := proto.Marshal(m)
	return err == nil
}

func (u *Uplink) post(m *nodeapi.NodeMessage) {
	if !sendable(m) {
		u.log.Error("a message to the control plane is not UTF-8; it was dropped")
		return
	}
	select {
	case u.outbox <- m:
	default:
		u.log.Warn("the control plane does not take messages; one was dropped")
	}
}
