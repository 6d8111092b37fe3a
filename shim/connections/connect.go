package connections

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/session"
)

// Connect answers a program that connects to an address of a destination, by program: a stream from its own network
// namespace, which takes the place of its socket. It is the server's if it is taken; else the program connects by itself.
func (s *Server) Connect(ctx context.Context, id string, at netip.AddrPort, program net.Conn) (taken bool, err error) {
	sb, name, d := s.at(id, at)
	if d == nil {
		return false, nil
	}
	leave, err := s.room(sb, name)
	if err != nil {
		return false, err
	}
	serve := func() { s.serve(sb, name, program) }
	if d.raw() {
		c := &caller{server: s, sb: sb, name: name, d: d}
		w, ok := c.waits(ctx, session.Bare)
		if !ok { // then nothing is gained, and the program hears by itself whether the server is there
			leave()
			return false, nil
		}
		began := time.Now()
		serve = func() {
			s.tell(sb, name, c.way, began, nil)
			s.pass(sb, name, program, w.conn)
		}
	}
	s.background.Go(func() {
		defer leave()
		serve()
	})
	return true, nil
}

// Ahead is Connect before the program asks. No connection to a server is used for that: those wait in the pool.
func (s *Server) Ahead(ctx context.Context, id string, at netip.AddrPort, program net.Conn) (taken bool, err error) {
	if _, _, d := s.at(id, at); d == nil || d.raw() {
		return false, nil
	}
	return s.Connect(ctx, id, at, program)
}

// at finds the destination at an address that a sandbox is connected to by connect(2); nil: none is.
func (s *Server) at(id string, at netip.AddrPort) (*sandbox, string, *destination) {
	sb := s.known(id)
	if sb == nil || sb.By != filterapi.ByConnect {
		return nil, "", nil
	}
	for _, name := range sb.Destinations {
		if d, err := s.list.get(name, sb.namespace); err == nil && d.has(at) {
			return sb, name, d
		}
	}
	return nil, "", nil
}

// has tells whether a destination is at the address, as far as the node knows.
func (d *destination) has(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.at[at.Addr().Unmap()]
	return is && at.Port() == d.port
}

// locate finds out where a sandbox's destinations are, and tells its shim.
func (s *Server) locate(sb *sandbox) {
	s.target(sb) // as far as that is known
	var others bool
	for _, name := range sb.Destinations {
		d, err := s.list.get(name, sb.namespace)
		if err != nil {
			continue
		}
		seen, _ := d.look(sb.ctx, true) // what is wrong is told of by Watch
		if others = others || seen != same; seen == renewed {
			s.renew(name)
		}
	}
	if others {
		s.targetAll()
	}
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

// Rekeyed hears that a program's connection has ended because the server changed its TLS keys.
func (s *Server) Rekeyed() { s.config.Metrics.rekeyed.Inc() }

// Lapse hears that a shim cannot ask about the connections of a sandbox's programs.
func (s *Server) Lapse(id, reason, why string) {
	sb := s.known(id)
	if sb == nil {
		return
	}
	s.config.Metrics.fallback("", reasonConnect)
	s.config.Event(&nodeapi.Event{Function: sb.Function, Reason: reason, Field: filterapi.AnnotationConnectionsBy,
		Message: fmt.Sprintf("its programs connect by themselves: %s; use the sockets in /headstart/socket", why)})
}
