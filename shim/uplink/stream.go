package uplink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// The control plane is on this machine or a few milliseconds away, and requests
	// are parked while it is gone: try again soon, and settle at once a second.
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second

	// answersMost is how many parts of answers wait for a control plane that has more calls done.
	answersMost = 256
)

// stream is the node's side of its conversation with one control plane, over as many
// connections as it takes.
type stream struct {
	u       *Uplink
	address string
	// spare: it has the address that leads to any, and one connection. The control plane that it
	// reaches ends it, when that is reached by its own address.
	spare bool
	conn  Conn
	ctx   context.Context
	end   context.CancelFunc
	news  chan struct{} // holds a token when there is something to send
	// doubted holds a token when it is to be found out whether the control plane hangs.
	doubted chan struct{}

	// What follows is guarded by the uplink's mu.
	gone  bool // the directory does not have it any more
	up    bool // it has said something on this connection
	state state
	// charge is when it last said that it is in charge, by the uplink's count; 0: it is not.
	charge int
	place  int // in the journal
	loads  int // the count of what it was told last
	// answers are those to its calls, which a control plane forgets with the connection.
	answers []*nodeapi.NodeMessage
	// What it was told last; words, on this connection.
	roundTrips, signals *nodeapi.NodeMessage
	words               words

	// said is guarded by the uplink's handling.
	said said
}

// newStream is told what no other control plane was told before it; the caller holds mu.
func (u *Uplink) newStream(ctx context.Context, address string, conn Conn) *stream {
	s := &stream{u: u, address: address, conn: conn, news: make(chan struct{}, 1), doubted: make(chan struct{}, 1), place: u.journal.nextTold}
	s.ctx, s.end = context.WithCancel(ctx)
	if u.roundTrips.told {
		s.roundTrips = u.roundTrips.message
	}
	if u.signals.told {
		s.signals = u.signals.message
	}
	return s
}

// run keeps the stream open until its context ends, or it is gone.
func (s *stream) run() {
	defer s.leave()
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = reconnectFirst, reconnectLongest
	level := slog.LevelWarn
	for {
		began := time.Now()
		err := s.connect()
		if s.down() || s.spare || s.ctx.Err() != nil {
			return
		}
		if time.Since(began) > reconnectLongest {
			wait.Reset()
			level = slog.LevelWarn
		}
		s.u.log.Log(s.ctx, level, "a control plane is away; parked requests wait until one is there", "address", s.address, "error", err)
		level = slog.LevelDebug // one warning until it is back
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(wait.NextBackOff()):
		}
	}
}

// leave forgets the stream.
func (s *stream) leave() {
	s.end()
	s.u.mu.Lock()
	s.u.streams = slices.DeleteFunc(s.u.streams, func(other *stream) bool { return other == s })
	s.u.mu.Unlock()
	if err := s.conn.Close(); err != nil {
		s.u.log.Debug("closing a connection to a control plane", "address", s.address, "error", err)
	}
}

// down says that the connection has ended, and returns whether there shall be no other.
func (s *stream) down() (gone bool) {
	s.u.handling.Lock()
	defer s.u.handling.Unlock()
	s.said = said{}
	s.u.mu.Lock()
	s.up, s.state, s.charge, gone = false, sound, 0, s.gone
	s.u.mu.Unlock()
	s.u.tellKeys()
	s.u.choose()
	signal(s.u.broken)
	return gone
}

// connect is one connection's stream, until it ends. A direction that fails takes the other
// along: gRPC ends the stream with it.
func (s *stream) connect() error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	c, err := nodeapi.NewControlPlaneClient(s.conn).Connect(ctx)
	if err != nil {
		return fmt.Errorf("opening the stream: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.receive(c) })
	g.Go(func() error { return s.resolve(ctx) })
	g.Go(func() error {
		if err := s.send(ctx, c); !errors.Is(err, io.EOF) {
			return err
		}
		return nil // the stream is broken: receive learns why
	})
	return g.Wait()
}

// send sends the registration and what is open, then what comes.
func (s *stream) send(ctx context.Context, c nodeapi.ControlPlane_ConnectClient) error {
	// In this order: what ends between the two is in both, and not in none.
	register := s.u.register()
	ended, before := s.lasting()
	register.Parts = true
	register.Instances = append(register.Instances, ended...)
	if err := c.Send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: register}}); err != nil {
		return fmt.Errorf("registering: %w", err)
	}
	s.u.askAnew(s)
	for first := true; ; first = false {
		// What was reported before a question is told before it: the question may come
		// of it. Hence the questions are taken first.
		asks := s.u.unasked(s)
		for _, m := range append(s.next(first, before), asks...) {
			if err := c.Send(m); err != nil {
				return fmt.Errorf("sending: %w", err)
			}
		}
		before = nil
		select {
		case <-s.news:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lasting is what of the messages that wait the node's state does not tell: which instances have
// ended for a reason, a job's result among them, and the other messages.
func (s *stream) lasting() (ended []*nodeapi.InstanceStatus, all []*nodeapi.NodeMessage) {
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	waiting, next := s.u.journal.since(s.place)
	s.place = next
	for _, m := range waiting {
		switch in := m.GetInstance(); {
		case in == nil:
			all = append(all, m)
		case in.GetReason() != "":
			ended = append(ended, in)
		}
	}
	return ended, all
}

// next is what there is to say: the load, always if it is the first word, what is left from
// before the connection, and all that is new.
func (s *stream) next(first bool, before []*nodeapi.NodeMessage) (all []*nodeapi.NodeMessage) {
	u := s.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if first || s.loads != u.loads {
		s.loads = u.loads
		all = append(all, u.loadMessage())
	}
	if first {
		s.answers, s.words = nil, words{}
	}
	for kind, m := range u.words {
		if s.words[kind] != m {
			s.words[kind] = m
			all = append(all, m)
		}
	}
	all = append(all, before...)
	all = append(all, s.answers...)
	s.answers = nil
	news, next := u.journal.since(s.place)
	s.place = next
	all = append(all, news...)
	for _, kind := range []struct {
		newest *measured
		told   **nodeapi.NodeMessage
	}{{&u.roundTrips, &s.roundTrips}, {&u.signals, &s.signals}} {
		if kind.newest.message != *kind.told {
			*kind.told, kind.newest.told = kind.newest.message, true
			all = append(all, kind.newest.message)
		}
	}
	return all
}

// listens tells whether the control plane takes the answers to its calls. Those of one that does not would fill the
// node's memory.
func (s *stream) listens() bool {
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	return len(s.answers) < answersMost
}

// answer answers a call of the control plane.
func (s *stream) answer(m *nodeapi.CacheAnswer) {
	message := &nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_CacheAnswer{CacheAnswer: m}}
	if !sendable(message) {
		s.u.log.Error("an answer to a control plane is not UTF-8; it was dropped")
		return
	}
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	s.answers = append(s.answers, message)
	signal(s.news)
}

func (s *stream) receive(c nodeapi.ControlPlane_ConnectClient) error {
	for {
		m, err := c.Recv()
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		s.heard(m)
	}
}
