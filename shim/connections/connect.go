package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/session"
)

const (
	// bareStart is of streams to the server as they are: a program that speaks TLS itself gets one.
	bareStart session.Start = "\x00bare"
	// pairsMost is how many pairs of sockets are ready for the programs of a sandbox: its first connections.
	pairsMost = 2
)

// Connect answers a program that connects to an address of a destination: the file takes the place of its socket. nil
// without an error: it connects by itself.
func (s *Server) Connect(_ context.Context, id string, at netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil || sb.By != filterapi.ByConnect {
		return nil, nil
	}
	for _, name := range sb.Destinations {
		d, err := s.list.get(name, sb.namespace)
		if err != nil || !d.has(at) {
			continue
		}
		if d.config.GetKind() == destinations.KindTCP {
			return s.itself(sb, name, d), nil
		}
		p, err := sb.pair()
		if err != nil {
			return nil, err
		}
		s.background.Go(func() { s.serve(sb, name, p.own, false) })
		return p.theirs, nil
	}
	return nil, nil
}

// has tells whether a destination is at the address, as far as the node knows.
func (d *destination) has(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return at.Port() == d.port && slices.Contains(d.at, at.Addr().Unmap())
}

// bare takes streams as they are: the program speaks TLS.
type bare struct{ session.Raw }

// Accept implements session.Protocol.
func (bare) Accept(ctx context.Context, _ net.Conn, from session.Sessions) (*session.Session, error) {
	return from.Take(ctx, bareStart)
}

// pair is a connection of TCP by the loopback: drivers look at the addresses of theirs.
type pair struct {
	theirs *os.File
	own    net.Conn
}

// pair returns one that is ready, or makes one.
func (sb *sandbox) pair() (pair, error) {
	select {
	case p := <-sb.pairs:
		return p, nil
	default:
		return newPair(sb.ctx)
	}
}

// readyPairs makes pairs for a sandbox's first connections.
func (s *Server) readyPairs(sb *sandbox) {
	for range pairsMost {
		p, err := newPair(sb.ctx)
		if err != nil {
			return // they are made when they are needed
		}
		sb.pairs <- p
	}
	<-sb.ctx.Done()
	for len(sb.pairs) > 0 {
		p := <-sb.pairs
		_, _ = p.theirs.Close(), p.own.Close()
	}
}

func newPair(ctx context.Context) (p pair, err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return p, fmt.Errorf("making a pair of sockets: %w", err)
	}
	defer l.Close()
	theirs, err := new(net.Dialer).DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		return p, fmt.Errorf("making a pair of sockets: %w", err)
	}
	defer theirs.Close() // p has a copy
	for {
		if p.own, err = l.Accept(); err != nil {
			return p, fmt.Errorf("making a pair of sockets: %w", err)
		}
		if p.own.RemoteAddr().String() == theirs.LocalAddr().String() {
			break
		}
		_ = p.own.Close() // a stranger's
	}
	if p.theirs, err = theirs.(*net.TCPConn).File(); err != nil {
		return p, errors.Join(fmt.Errorf("making a pair of sockets: %w", err), p.own.Close())
	}
	return p, nil
}

// locate finds out where a sandbox's destinations are, and tells its shim.
func (s *Server) locate(sb *sandbox) {
	s.target(sb) // as far as that is known
	for _, name := range sb.Destinations {
		d, err := s.list.get(name, sb.namespace)
		if err != nil {
			continue
		}
		if changed, _ := d.look(sb.ctx, true); changed { // what is wrong is told of by Watch
			s.pool.Renew(name)
		}
	}
	s.target(sb)
}

// target tells the shim of a sandbox which addresses its programs' connections are asked about for.
func (s *Server) target(sb *sandbox) {
	var all []netip.AddrPort
	for _, name := range sb.Destinations {
		if d, err := s.list.get(name, sb.namespace); err == nil {
			all = append(all, d.where()...)
		}
	}
	s.config.Shims.Targets(sb.id, all)
}

// targetAll does so for all sandboxes, after addresses have changed.
func (s *Server) targetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.By == filterapi.ByConnect {
			s.target(sb)
		}
	}
}

// Lapse hears that a shim cannot ask about the connections of a sandbox's programs.
func (s *Server) Lapse(id, reason, why string) {
	s.mu.Lock()
	sb := s.sandboxes[id]
	s.mu.Unlock()
	if sb == nil {
		return
	}
	s.config.Metrics.fallback("", reasonConnect)
	s.config.Event(&nodeapi.Event{Function: sb.Function, Reason: reason, Field: filterapi.AnnotationConnectionsBy,
		Message: fmt.Sprintf("its programs connect by themselves: %s; use the sockets in /headstart/socket", why)})
}
