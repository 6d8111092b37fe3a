package streams

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

// aheadLimit is how long an answer that was given ahead counts.
const aheadLimit = 30 * time.Second

// target is an address that programs' connections are asked about for.
type target struct {
	at       netip.AddrPort
	listener *Listener
	asked    bool   // ahead, in this conversation
	ahead    *taken // nil: it is used, or there is none
}

// taken is an answer of the daemon's: it takes the other end of a program's connection.
type taken struct {
	by       *conversation
	id       uint64 // the question's
	listener *Listener
}

// Targets tells whether the daemon is to be asked about a connection to an address. While it is away there is none.
// A program that connects to the address that it is connected to, as for cancelling a query, means the target.
func (s *Shim) Targets(at netip.AddrPort) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.targets[canonical(at)] != nil
}

// Ahead returns what connects a program's socket in place of its connect(2) to an address, if the daemon has said so
// ahead; nil: it has not. It is to be called once. If it fails the socket is not connected.
func (s *Shim) Ahead(at netip.AddrPort) (connect func(socket int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[canonical(at)]
	if t == nil || t.ahead == nil {
		return nil
	}
	a := t.ahead
	t.ahead = nil
	return func(socket int) { s.connect(a, socket) }
}

// Connect asks the daemon, and returns what Ahead does; nil: the program connects on its own.
func (s *Shim) Connect(ctx context.Context, at netip.AddrPort) (connect func(socket int), err error) {
	s.mu.Lock()
	c, t := s.daemon, s.targets[canonical(at)]
	s.mu.Unlock()
	if c == nil || t == nil {
		return nil, nil
	}
	a, err := t.ask(ctx, c, false)
	if a == nil || err != nil {
		return nil, err
	}
	return func(socket int) { s.connect(a, socket) }, nil
}

// ask returns nil if the daemon does not take the connection.
func (t *target) ask(ctx context.Context, c *conversation, ahead bool) (*taken, error) {
	answer, _, err := c.ask(ctx, parcel{message: message{Connect: t.at.String(), Ahead: ahead}})
	descriptors.CloseAll(answer.files)
	if err == nil {
		err = answer.err()
	}
	if err == nil && len(answer.files) > 0 {
		err = errors.New("an answer with descriptors, which are of the daemon's network")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the daemon about a connection: %w", err)
	}
	if answer.Pass {
		return nil, nil
	}
	return &taken{c, answer.ID, t.listener}, nil
}

// connect connects a program's socket, and gives the daemon the other end in the background. If the daemon has gone
// meanwhile, the program's connection ends.
func (s *Shim) connect(a *taken, socket int) {
	s.connecting.Lock()
	f, err := a.listener.connect(socket)
	s.connecting.Unlock()
	word := parcel{message: message{End: a.id}}
	if err == nil {
		word.files = []*os.File{f}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		descriptors.CloseAll(word.files)
		return
	}
	s.joined.Go(func() {
		_ = a.by.send(word) // without the daemon nobody has the end
		descriptors.CloseAll(word.files)
	})
}

// aim has programs' connections asked about for these addresses; the caller holds mu.
func (s *Shim) aim(all []netip.AddrPort) {
	s.targets = make(map[netip.AddrPort]*target, 2*len(all))
	wanted := map[netip.AddrPort]bool{}
	for _, at := range all {
		t := s.places[at]
		if t == nil {
			l, err := s.listen(at.Addr())
			if err != nil {
				continue // programs connect to it on their own
			}
			t = &target{at: at, listener: l}
			s.places[at] = t
		}
		s.targets[at], wanted[at] = t, true
	}
	for at, t := range s.places {
		if !wanted[at] {
			s.forget(t)
		} else if s.targets[t.listener.at] == nil {
			s.targets[t.listener.at] = t
		}
	}
}

// forget closes what a target has; the caller holds mu.
func (s *Shim) forget(t *target) {
	delete(s.places, t.at)
	s.connecting.Lock()
	defer s.connecting.Unlock()
	t.listener.close()
}

// refuse closes what others than the sandbox's programs with connections have connected to its listeners.
func (s *Shim) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connecting.Lock()
	defer s.connecting.Unlock()
	for _, t := range s.places {
		t.listener.refuse()
	}
}

// fetch asks ahead, once for each target of a conversation.
func (s *Shim) fetch(c *conversation, t *target) {
	ctx, cancel := context.WithTimeout(context.Background(), aheadLimit)
	defer cancel()
	a, err := t.ask(ctx, c, true)
	if err != nil || a == nil {
		return // the daemon is asked again when the program connects
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon != c || s.targets[t.at] != t {
		return // the daemon gives it up
	}
	t.ahead = a
	time.AfterFunc(aheadLimit, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.ahead == a {
			t.ahead = nil
		}
	})
}
